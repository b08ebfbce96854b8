//! Latency: from the moment that an order is due to its acknowledgement, which comes after its commit. Arrivals do not
//! wait for each other (an open loop), and the time of an order counts from when it was due, not from when it was sent.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use tokio::time::sleep;

use super::{
    fixture::{Fixture, STREAM, Tables},
    resp::Resp,
    results::{AtRate, Latency, median},
    sender,
    sizes::Sizes,
    tap::{Seen, Tap},
    workers::{Shape, Workers},
};

/// The rates that every run measures, in orders a second.
const RATES: [f64; 4] = [100.0, 1_000.0, 5_000.0, 20_000.0];
/// The higher rates, measured until p99 rises.
const RISING: [f64; 6] = [40_000.0, 60_000.0, 80_000.0, 100_000.0, 150_000.0, 200_000.0];
/// The most orders at one of the higher rates, which must not take longer than all others.
const MOST_ORDERS: f64 = 400_000.0;
/// The time for the workers to finish after the last order was sent.
const CATCH_UP: Duration = Duration::from_secs(15);
/// The pause between orders of a quiet system.
const QUIET: Duration = Duration::from_millis(25);

pub async fn measure(fixture: &mut Fixture, sizes: &Sizes) -> Result<Latency> {
    let commit_before_ms = commits(fixture, sizes.alone, Duration::ZERO).await?;
    let quiet_commit_ms = commits(fixture, sizes.alone, QUIET).await?;
    let (committed, acknowledged) = alone(fixture, sizes.alone).await?;
    let mut rates = Vec::new();
    for rate in RATES {
        rates.push(at_rate(fixture, rate, sizes.latency).await?);
    }
    for rate in RISING {
        let length = sizes.latency.min(Duration::from_secs_f64(MOST_ORDERS / rate));
        rates.push(at_rate(fixture, rate, length).await?);
        if Latency::knee_of(&rates).is_some() {
            break;
        }
    }
    // This is measured twice, and the faster result counts: it is the unit of other figures, and a slow moment of the
    // disk would make them look good.
    let commit_ms = commits(fixture, sizes.alone, Duration::ZERO).await?.min(commit_before_ms);
    Ok(Latency {
        commit_ms,
        quiet_commit_ms,
        alone_committed_ms: median(&committed),
        alone_acknowledged_ms: median(&acknowledged),
        rates,
    })
}

/// The median time of one durable INSERT in its own transaction, on an idle connection.
async fn commits(fixture: &mut Fixture, count: usize, pause: Duration) -> Result<f64> {
    fixture.clear_tables(Tables::Fresh, 1).await?;
    let mut session = fixture.connect(Tables::Fresh).await?;
    let mut took = Vec::new();
    for order in fixture.numbers.take(count + 20, 1).iter() {
        sleep(pause).await;
        let began = Instant::now();
        sqlx::query(
            "INSERT INTO tb_voucher_order (id, user_id, voucher_id, entry_id) VALUES (?, ?, ?, '1-1')",
        )
        .bind(order.id)
        .bind(order.user)
        .bind(order.voucher)
        .execute(&mut session)
        .await?;
        took.push(ms(began.elapsed()));
    }
    // The first ones prepare the statement and warm the server up.
    Ok(median(&took[20..]))
}

/// Measures one order at a time: the milliseconds until its row can be read, and (of other orders) until it is
/// acknowledged.
async fn alone(fixture: &mut Fixture, count: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let workers = quiet_workers(fixture).await?;
    let mut redis = Resp::connect(fixture.redis_server.port()).await?;
    let mut session = fixture.connect(Tables::Fresh).await?;
    let mut committed = Vec::new();
    for order in fixture.numbers.take(count + 5, 1).iter() {
        sleep(QUIET).await;
        let [id, user, voucher] = [order.id, order.user, order.voucher].map(|number| number.to_string());
        let began = Instant::now();
        redis.call(&["XADD", STREAM, "*", "userId", &user, "voucherId", &voucher, "id", &id]).await?;
        let look = "SELECT COUNT(*) FROM tb_voucher_order WHERE id = ?";
        while sqlx::query_scalar::<_, i64>(look).bind(order.id).fetch_one(&mut session).await? == 0 {
            anyhow::ensure!(began.elapsed() < CATCH_UP, "Order {id} does not arrive: {}", workers.logs());
        }
        committed.push(ms(began.elapsed()));
    }
    let orders = fixture.numbers.take(count, 1);
    let acknowledged = open_loop(fixture, &orders, 1.0 / QUIET.as_secs_f64()).await?;
    workers.stop().await?;
    Ok((committed.split_off(5), acknowledged.latencies_ms))
}

async fn at_rate(fixture: &mut Fixture, rate: f64, length: Duration) -> Result<AtRate> {
    let workers = quiet_workers(fixture).await?;
    let warm_up = fixture.numbers.take((rate * 0.5) as usize, 1);
    open_loop(fixture, &warm_up, rate).await?;
    let orders = fixture.numbers.take((rate * length.as_secs_f64()) as usize, 1);
    let mut found = open_loop(fixture, &orders, rate).await?;
    workers.stop().await?;
    found.latencies_ms.sort_by(f64::total_cmp);
    found.late_ms.sort_by(f64::total_cmp);
    let at = |share| quantile(&found.latencies_ms, share);
    Ok(AtRate {
        rate,
        orders: orders.len(),
        unfinished: orders.len() - found.latencies_ms.len(),
        p50_ms: at(0.5),
        p99_ms: at(0.99),
        p999_ms: at(0.999),
        max_ms: at(1.0),
        sent_late_p99_ms: quantile(&found.late_ms, 0.99),
    })
}

async fn quiet_workers(fixture: &mut Fixture) -> Result<Workers> {
    fixture.clear_tables(Tables::Fresh, 1).await?;
    fixture.clear_redis().await?;
    Workers::start(
        &fixture.program,
        Shape::DEFAULT,
        &fixture.redis_server.url(),
        &[fixture.url(Tables::Fresh)],
    )
    .await
}

/// The measurements of an open loop.
struct Found {
    /// The times from due to acknowledged; orders that were not acknowledged in time are missing.
    latencies_ms: Vec<f64>,
    /// The times from due to added.
    late_ms: Vec<f64>,
}

async fn open_loop(fixture: &Fixture, orders: &super::orders::Orders, rate: f64) -> Result<Found> {
    let port = fixture.redis_server.port();
    let tap = Tap::start(port, orders)?;
    let begin = Instant::now() + Duration::from_millis(50);
    let sender = sender::start(port, orders.clone(), rate, begin)?;
    while !sender.is_finished() {
        sleep(Duration::from_millis(20)).await;
    }
    sender.join().map_err(|_| anyhow!("The sender panicked"))?.context("Failed to send orders")?;
    let sent = Instant::now();
    while tap.acknowledged() < orders.len() && sent.elapsed() < CATCH_UP {
        sleep(Duration::from_millis(20)).await;
    }
    let Seen { added, acknowledged } = tap.finish()?;
    let since_due = |times: Vec<Option<Instant>>| {
        let seen = times.into_iter().enumerate().filter_map(|(at, time)| Some((at, time?)));
        seen.map(|(at, time)| ms(time.saturating_duration_since(sender::due(begin, rate, at)))).collect()
    };
    Ok(Found { latencies_ms: since_due(acknowledged), late_ms: since_due(added) })
}

/// The smallest of sorted values that is not below that share of them.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or_default()
}

pub fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn quantiles_are_values_that_occurred() {
        let values: Vec<f64> = (1..=1000).map(f64::from).collect();
        assert_eq!(
            [0.5, 0.99, 0.999, 1.0].map(|share| quantile(&values, share)),
            [500.0, 990.0, 999.0, 1000.0]
        );
        assert_eq!(quantile(&[], 0.5), 0.0);
    }
}
