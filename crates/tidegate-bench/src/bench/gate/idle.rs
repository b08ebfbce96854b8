//! Many clients that have sent one request and keep their connections, and one client that keeps sending requests.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::task::JoinSet;

use super::{
    callers::{CALLERS, Caller, Load, request},
    server::Server,
};
use crate::bench::{
    admission::open_sale,
    fixture::Fixture,
    latency::{ms, quantile},
    orders::{NewOrder, Orders},
    results::gate::IdleConnections,
};

/// The files that the gate and this process have open, in addition to the held connections.
const OTHER_FILES: usize = 500;
/// The calls of the active client.
const CALLS: usize = 2_000;

pub async fn measure(fixture: &mut Fixture, wanted: usize) -> Result<IdleConnections> {
    let most_files = raise_open_files()?;
    let count = wanted.min(most_files.saturating_sub(OTHER_FILES));
    let _gate = open_sale(fixture).await?;
    let places = (count + CALLERS).to_string();
    // The gate closes an idle connection if the head of its next request does not come within this time.
    let settings = [("TIDEGATE_GATE_CONNECTIONS", places.as_str()), ("TIDEGATE_GATE_READ_MS", "60000")];
    let server = Server::gate(&fixture.program, &fixture.redis_server.url(), &settings).await?;
    let load = Load { address: server.address(), wanted_status: 202 };
    let beside_alone_ms = beside(load, &fixture.numbers.take(CALLS, 1)).await?;
    let before_kib = server.rss_kib();
    let held = hold(load, &fixture.numbers.take(count, 1)).await?;
    let held_kib = server.rss_kib();
    let beside_ms = beside(load, &fixture.numbers.take(CALLS, 1)).await?;
    let open = held.iter().filter(|caller| caller.is_idle()).count();
    ensure!(open == held.len(), "Of {} idle connections, {open} are open", held.len());
    drop(held);
    server.stop()?;
    Ok(IdleConnections {
        wanted,
        most_files,
        connections: count,
        before_kib,
        held_kib,
        beside_alone_p99_ms: quantile(&beside_alone_ms, 0.99),
        beside_p99_ms: quantile(&beside_ms, 0.99),
        beside_max_ms: quantile(&beside_ms, 1.0),
    })
}

/// Raises the limit of open files to the maximum for this process, and for those that it starts from now on.
fn raise_open_files() -> Result<usize> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).context("Failed to raise the number of open files")?;
    Ok(usize::try_from(most)?)
}

/// Opens a connection for each order, and waits for all answers.
async fn hold(load: Load, orders: &Orders) -> Result<Vec<Caller>> {
    let mut held = Vec::new();
    for part in orders.chunks(CALLERS) {
        let mut asking = JoinSet::new();
        for order in part.iter() {
            asking.spawn(ask_once(load, order));
        }
        while let Some(asked) = asking.join_next().await {
            held.push(asked??);
        }
    }
    Ok(held)
}

async fn ask_once(load: Load, order: NewOrder) -> Result<Caller> {
    let mut caller = Caller::connect(load).await?;
    caller.ask(&request(order)).await?;
    Ok(caller)
}

/// Sends requests one after the other, every second one over a new connection. Returns the sorted times from
/// connecting, or sending, to the answer.
async fn beside(load: Load, orders: &Orders) -> Result<Vec<f64>> {
    let mut latencies_ms = Vec::new();
    for part in orders.chunks(2) {
        let mut caller = None;
        for order in part.iter() {
            let began = Instant::now();
            match &mut caller {
                None => caller = Some(ask_once(load, order).await?),
                Some(caller) => caller.ask(&request(order)).await?,
            }
            latencies_ms.push(ms(began.elapsed()));
        }
    }
    latencies_ms.sort_by(f64::total_cmp);
    Ok(latencies_ms)
}
