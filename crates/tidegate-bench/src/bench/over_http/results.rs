//! Results that the gate shows: to applications that follow all orders, and to buyers that watch their own.

use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{WaitingSale, row, server_sent::GateClient};
use crate::bench::{
    fixture::{Fixture, Tables},
    gate::server::Server,
    headlines::show,
    orders::NewOrder,
    results::Rate,
    writers::tell,
};

/// The applications that follow all results; every second one by long polls.
const FOLLOWERS: usize = 10;
/// The buyers that watch their orders.
const BUYERS: usize = 1_000;
const ALL_WITHIN: Duration = Duration::from_secs(120);

/// The clients of the gate during a drain.
#[derive(Clone, Copy, Debug)]
struct Audience {
    followers: usize,
    buyers: usize,
}

const AUDIENCES: [Audience; 3] = [
    Audience { followers: 0, buyers: 0 },
    Audience { followers: FOLLOWERS, buyers: 0 },
    Audience { followers: FOLLOWERS, buyers: BUYERS },
];

impl Audience {
    fn name(self) -> String {
        match self {
            Self { followers: 0, .. } => "no clients".to_owned(),
            Self { followers, buyers: 0 } => format!("{followers} followers"),
            Self { followers, buyers } => format!("{followers} followers and {} buyers", show(buyers as f64)),
        }
    }
}

/// The result of one drain.
#[derive(Clone, Copy, Debug)]
struct Run {
    orders_per_s: f64,
    /// The results that all followers together got in a second.
    results_per_s: f64,
    /// The time from the last acknowledgement until all clients knew everything, in milliseconds.
    behind_ms: f64,
    /// The CPU time of the gate, in seconds.
    gate_s: f64,
}

/// Measures a drain without clients, with followers, and with followers and buyers, in turn. Returns the section of the
/// page.
pub async fn measure(fixture: &mut Fixture, count: usize, rounds: usize) -> Result<String> {
    let mut found = AUDIENCES.map(|_| Vec::new());
    for round in 0..rounds {
        tell(&format!("results, round {} of {rounds}", round + 1));
        for (runs, audience) in found.iter_mut().zip(AUDIENCES) {
            runs.push(once(fixture, count, audience).await?);
        }
    }
    let mut text = format!(
        "\n## Results\n\nA worker with `results.publish = \"all\"` drains {} orders. Followers read the results of all orders: half of them by \
         long polls, half as server-sent events. A buyer reads the events of one order until the order is confirmed. If a client does not get \
         everything, the run fails. \"Behind\" is the time from the last acknowledgement until all clients have everything.\n\n| clients | \
         orders/s | ratio to no clients | results/s to followers | behind, ms | gate's CPU, s |\n|---|--:|--:|--:|--:|--:|\n",
        show(count as f64)
    );
    let alone: Vec<f64> = found[0].iter().map(|run| run.orders_per_s).collect();
    for (runs, audience) in found.iter().zip(AUDIENCES) {
        let of = |figure: fn(&Run) -> f64| show(Rate::of(runs.iter().map(figure).collect()).median);
        let share = runs.iter().zip(&alone).map(|(run, alone)| run.orders_per_s / alone).collect();
        let mut values = vec![of(|run| run.orders_per_s), show(Rate::of(share).median)];
        if audience.followers > 0 {
            values.extend([of(|run| run.results_per_s), of(|run| run.behind_ms), of(|run| run.gate_s)]);
        } else {
            values.extend(["", "", ""].map(str::to_owned));
        }
        row(&mut text, &audience.name(), &values);
    }
    Ok(text)
}

async fn once(fixture: &mut Fixture, count: usize, audience: Audience) -> Result<Run> {
    let sale = WaitingSale::open(fixture, count, &[("TIDEGATE_RESULTS_PUBLISH", "all")]).await?;
    let settings = [("TIDEGATE_RESULTS_PUBLISH", "all"), ("TIDEGATE_MYSQL_URL", fixture.url(Tables::Fresh))];
    let gate = Server::gate(&fixture.program, &fixture.redis_server.url(), &settings).await?;
    let ready = Arc::new(AtomicUsize::new(0));
    let (mut followers, mut buyers) = (JoinSet::new(), JoinSet::new());
    for at in 0..audience.followers {
        let (address, ready) = (gate.address(), Arc::clone(&ready));
        followers.spawn(async move {
            match at % 2 {
                0 => follow_events(address, count, &ready).await,
                _ => follow_pages(address, count, &ready).await,
            }
        });
    }
    // The buyers of orders all over the stream.
    for order in sale.orders.iter().step_by((count / audience.buyers.max(1)).max(1)).take(audience.buyers) {
        buyers.spawn(watch(gate.address(), order, Arc::clone(&ready)));
    }
    let clients = followers.len() + buyers.len();
    let waiting = async {
        while ready.load(Relaxed) < clients {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(ALL_WITHIN, waiting).await.context("Not all clients have come")?;
    let (began, cpu_before_s) = (Instant::now(), gate.cpu_s());
    let drained = sale.drain(fixture).await?;
    let followed = all(followers, began).await?;
    let told = all(buyers, began).await?.max(followed);
    let gate_s = gate.cpu_s() - cpu_before_s;
    gate.stop()?;
    sale.end(fixture).await?;
    Ok(Run {
        orders_per_s: count as f64 / drained.as_secs_f64(),
        results_per_s: (audience.followers * count) as f64 / followed.as_secs_f64(),
        behind_ms: told.saturating_sub(drained).as_secs_f64() * 1e3,
        gate_s,
    })
}

/// Waits until all clients have everything. Returns the time from `began` until the last of them had.
async fn all(mut clients: JoinSet<Result<Instant>>, began: Instant) -> Result<Duration> {
    let mut last = began;
    let everything = async {
        while let Some(ended) = clients.join_next().await {
            last = last.max(ended??);
        }
        Ok::<(), anyhow::Error>(())
    };
    timeout(ALL_WITHIN, everything).await.context("Not all clients have everything")??;
    Ok(last - began)
}

async fn follow_events(gate: SocketAddr, wanted: usize, ready: &AtomicUsize) -> Result<Instant> {
    let mut client = GateClient::connect(gate).await?;
    let (mut events, mut orders) = (client.events("/results").await?, HashSet::new());
    ready.fetch_add(1, Relaxed);
    while orders.len() < wanted {
        events.next(|data| orders.extend(order_ids(&String::from_utf8_lossy(data)))).await?;
    }
    Ok(Instant::now())
}

async fn follow_pages(gate: SocketAddr, wanted: usize, ready: &AtomicUsize) -> Result<Instant> {
    let mut client = GateClient::connect(gate).await?;
    let (mut path, mut orders) = ("/results?limit=1000".to_owned(), HashSet::new());
    loop {
        let page = client.page(&path).await?;
        if path.ends_with("1000") {
            ready.fetch_add(1, Relaxed);
        }
        orders.extend(order_ids(&page));
        if orders.len() >= wanted {
            return Ok(Instant::now());
        }
        let after = page.rsplit_once(r#""cursor":""#).and_then(|(_, rest)| rest.split_once('"'));
        let cursor = after.context("A page without a cursor")?.0;
        path = format!("/results?limit=1000&wait=30&after={cursor}");
    }
}

/// The orders of the results in a page.
fn order_ids(page: &str) -> impl Iterator<Item = u64> {
    let after = page.split(r#""orderId":""#).skip(1);
    after.filter_map(|rest| rest.split_once('"')?.0.parse().ok())
}

/// Reads the events of an order until it is confirmed.
async fn watch(gate: SocketAddr, order: NewOrder, ready: Arc<AtomicUsize>) -> Result<Instant> {
    let mut client = GateClient::connect(gate).await?;
    let mut events =
        client.events(&format!("/orders/{}/events?voucherId={}", order.id, order.voucher)).await?;
    ready.fetch_add(1, Relaxed);
    let mut is_confirmed = false;
    while !is_confirmed {
        let is = |data: &[u8]| String::from_utf8_lossy(data).contains(r#""state":"confirmed""#);
        events.next(|data| is_confirmed |= is(data)).await?;
    }
    Ok(Instant::now())
}
