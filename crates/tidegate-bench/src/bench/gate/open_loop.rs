//! Requests on a schedule, whether or not earlier ones are answered. The time of each counts from when it was due,
//! whatever delayed it.

use std::{
    io::Write,
    net::TcpStream as StdTcpStream,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use tokio::{net::TcpStream, task::JoinSet, time::timeout};

use super::callers::{CALLERS, Caller, Load, request};
use crate::bench::{
    latency::{ms, quantile},
    orders::{NewOrder, Orders},
    results::AtRate,
    sender::due,
};

/// The time for answers after the last request is due.
const CATCH_UP: Duration = Duration::from_secs(15);

/// Sends `orders` at `rate` a second, over all connections in turn.
pub async fn measure(load: Load, orders: &Orders, rate: f64) -> Result<AtRate> {
    let (mut senders, mut callers) = (Vec::new(), Vec::new());
    for _ in 0..CALLERS {
        let stream = StdTcpStream::connect(load.address).context("Failed to connect")?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        senders.push(stream.try_clone()?);
        callers.push(Caller::over(TcpStream::from_std(stream)?, load.wanted_status));
    }
    let begin = Instant::now() + Duration::from_millis(50);
    let orders: Vec<NewOrder> = orders.iter().collect();
    let count = orders.len();
    let sender = thread::spawn(move || send(senders, &orders, rate, begin));
    let mut hearing = JoinSet::new();
    for (first, caller) in callers.into_iter().enumerate() {
        hearing.spawn(hear(caller, first, count, rate, begin));
    }
    let mut latencies_ms = Vec::with_capacity(count);
    let last = Duration::from_secs_f64(count as f64 / rate);
    let all = async {
        while let Some(heard) = hearing.join_next().await {
            latencies_ms.extend(heard??);
        }
        Ok::<(), anyhow::Error>(())
    };
    timeout(last + CATCH_UP, all).await.context("Not all are answered in time")??;
    let mut late_ms = sender.join().map_err(|_| anyhow!("The sender panicked"))??;
    late_ms.sort_by(f64::total_cmp);
    latencies_ms.sort_by(f64::total_cmp);
    let at = |share| quantile(&latencies_ms, share);
    Ok(AtRate {
        rate,
        orders: count,
        unfinished: 0,
        p50_ms: at(0.5),
        p99_ms: at(0.99),
        p999_ms: at(0.999),
        max_ms: at(1.0),
        sent_late_p99_ms: quantile(&late_ms, 0.99),
    })
}

/// Sends the requests, and returns how late each was sent. The buffers of the kernel must have room for a request, or
/// the connection hangs and the run fails.
fn send(mut streams: Vec<StdTcpStream>, orders: &[NewOrder], rate: f64, begin: Instant) -> Result<Vec<f64>> {
    let (mut late_ms, connections) = (Vec::with_capacity(orders.len()), streams.len());
    for (at, order) in orders.iter().enumerate() {
        let due = due(begin, rate, at);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        streams[at % connections].write_all(&request(*order)).context("Failed to send in time")?;
        late_ms.push(ms(due.elapsed()));
    }
    Ok(late_ms)
}

/// Returns the times from due to answered, for the requests of one connection.
async fn hear(mut caller: Caller, first: usize, count: usize, rate: f64, begin: Instant) -> Result<Vec<f64>> {
    let mut latencies_ms = Vec::new();
    for at in (first..count).step_by(CALLERS) {
        caller.hear().await?;
        latencies_ms.push(ms(due(begin, rate, at).elapsed()));
    }
    Ok(latencies_ms)
}
