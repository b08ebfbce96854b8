//! Results that the gate shows: to applications that follow all orders, and to buyers that watch their own.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
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
    name: &'static str,
    followers: usize,
    buyers: usize,
}

const AUDIENCES: [Audience; 3] = [
    Audience { name: "nobody", followers: 0, buyers: 0 },
    Audience { name: "10 followers", followers: FOLLOWERS, buyers: 0 },
    Audience { name: "10 followers and 1,000 buyers", followers: FOLLOWERS, buyers: BUYERS },
];

/// The result of one drain.
#[derive(Clone, Copy, Debug)]
struct Run {
    orders_per_s: f64,
    /// The results that all followers together got in a second.
    results_per_s: f64,
    /// The time from the last acknowledgement until all clients knew everything, in milliseconds.
    behind_ms: f64,
    /// The CPU time of the gate for a result that a client got, in microseconds.
    gate_us: f64,
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
        "\n## Results\n\nA worker with `results.publish = \"all\"` drains {count} orders. Followers read all results: five by long polls, five \
         as server-sent events. A buyer reads the events of an order of its own until the order is confirmed. Each client must get everything, \
         or the run fails. \"Behind\" is the time from the last acknowledgement until all clients have everything.\n\n| clients | orders/s | of \
         those with nobody | results/s to followers | behind, ms | gate µs a result |\n|---|--:|--:|--:|--:|--:|\n"
    );
    let alone: Vec<f64> = found[0].iter().map(|run| run.orders_per_s).collect();
    for (runs, audience) in found.iter().zip(AUDIENCES) {
        let of = |figure: fn(&Run) -> f64| show(Rate::of(runs.iter().map(figure).collect()).median);
        let share = runs.iter().zip(&alone).map(|(run, alone)| run.orders_per_s / alone).collect();
        let mut values = vec![of(|run| run.orders_per_s), show(Rate::of(share).median)];
        if audience.followers > 0 {
            values.extend([of(|run| run.results_per_s), of(|run| run.behind_ms), of(|run| run.gate_us)]);
        } else {
            values.extend(["", "", ""].map(str::to_owned));
        }
        row(&mut text, audience.name, &values);
    }
    Ok(text)
}

async fn once(fixture: &mut Fixture, count: usize, audience: Audience) -> Result<Run> {
    let sale = WaitingSale::open(fixture, count, &[("TIDEGATE_RESULTS_PUBLISH", "all")]).await?;
    let settings = [("TIDEGATE_RESULTS_PUBLISH", "all"), ("TIDEGATE_MYSQL_URL", fixture.url(Tables::Fresh))];
    let gate = Server::gate(&fixture.program, &fixture.redis_server.url(), &settings).await?;
    let ready = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for at in 0..audience.followers {
        let (address, ready) = (gate.address(), Arc::clone(&ready));
        clients.spawn(async move {
            ready.fetch_add(1, Relaxed);
            if at % 2 == 0 { follow_events(address, count).await } else { follow_pages(address, count).await }
        });
    }
    // The buyers of orders all over the stream.
    for order in sale.orders.iter().step_by((count / audience.buyers.max(1)).max(1)).take(audience.buyers) {
        clients.spawn(watch(gate.address(), order, Arc::clone(&ready)));
    }
    let all = audience.followers + audience.buyers.min(count);
    let waiting = async {
        while ready.load(Relaxed) < all {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(ALL_WITHIN, waiting).await.context("Not all clients have come")?;
    let (began, cpu_before_s) = (Instant::now(), gate.cpu_s());
    let drained = sale.drain(fixture).await?;
    let everything = async {
        while let Some(ended) = clients.join_next().await {
            ended??;
        }
        Ok::<(), anyhow::Error>(())
    };
    timeout(ALL_WITHIN, everything).await.context("Not all clients have everything")??;
    let told = began.elapsed();
    let results = (audience.followers * count) as f64;
    let gate_us = (gate.cpu_s() - cpu_before_s) * 1e6 / results;
    gate.stop()?;
    sale.end(fixture).await?;
    Ok(Run {
        orders_per_s: count as f64 / drained.as_secs_f64(),
        results_per_s: results / told.as_secs_f64(),
        behind_ms: told.saturating_sub(drained).as_secs_f64() * 1e3,
        gate_us,
    })
}

async fn follow_events(gate: SocketAddr, wanted: usize) -> Result<()> {
    let mut client = GateClient::connect(gate).await?;
    let mut events = client.events("/results").await?;
    let mut heard = 0;
    while heard < wanted {
        events.next(|_| heard += 1).await?;
    }
    ensure!(heard == wanted, "{heard} results, not {wanted}");
    Ok(())
}

async fn follow_pages(gate: SocketAddr, wanted: usize) -> Result<()> {
    let (mut client, mut cursor, mut read) = (GateClient::connect(gate).await?, String::new(), 0);
    while read < wanted {
        let page = client.page(&format!("/results?limit=1000&wait=30&after={cursor}")).await?;
        read += page.matches(r#""orderId":"#).count();
        let after = page.rsplit_once(r#""cursor":""#).and_then(|(_, rest)| rest.split_once('"'));
        cursor = after.context("A page without a cursor")?.0.to_owned();
    }
    ensure!(read == wanted, "{read} results, not {wanted}");
    Ok(())
}

/// Reads the events of an order until it is confirmed.
async fn watch(gate: SocketAddr, order: NewOrder, ready: Arc<AtomicUsize>) -> Result<()> {
    let mut client = GateClient::connect(gate).await?;
    let mut events =
        client.events(&format!("/orders/{}/events?voucherId={}", order.id, order.voucher)).await?;
    ready.fetch_add(1, Relaxed);
    let mut is_confirmed = false;
    while !is_confirmed {
        let is = |data: &[u8]| String::from_utf8_lossy(data).contains(r#""state":"confirmed""#);
        events.next(|data| is_confirmed |= is(data)).await?;
    }
    Ok(())
}
