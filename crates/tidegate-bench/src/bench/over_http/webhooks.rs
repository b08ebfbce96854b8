//! Webhooks: a worker sends all results to ten receivers, beside one that never answers.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use tempfile::NamedTempFile;
use tokio::time::sleep;

use super::{WaitingSale, receiver::Receiver, row};
use crate::bench::{fixture::Fixture, headlines::show, results::Rate, writers::tell};

const GOOD: usize = 10;
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const ALL_WITHIN: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The webhooks of a worker.
#[derive(Clone, Copy, Debug)]
struct Endpoints {
    name: &'static str,
    good: usize,
    dead: usize,
}

const ENDPOINTS: [Endpoints; 3] = [
    Endpoints { name: "none", good: 0, dead: 0 },
    Endpoints { name: "10 that accept", good: GOOD, dead: 0 },
    Endpoints { name: "10 that accept, 1 that never answers", good: GOOD, dead: 1 },
];

/// The result of one drain.
#[derive(Clone, Copy, Debug)]
struct Run {
    orders_per_s: f64,
    deliveries_per_s: f64,
    worker_us: f64,
}

/// Measures a drain without webhooks, with ten, and with a dead one beside them, in turn. Returns the section of the
/// page.
pub async fn measure(fixture: &mut Fixture, count: usize, rounds: usize) -> Result<String> {
    let mut found = ENDPOINTS.map(|_| Vec::new());
    for round in 0..rounds {
        tell(&format!("webhooks, round {} of {rounds}", round + 1));
        for (runs, endpoints) in found.iter_mut().zip(ENDPOINTS) {
            runs.push(once(fixture, count, endpoints).await?);
        }
    }
    let mut text = format!(
        "\n## Webhooks\n\nA worker with `results.publish = \"all\"` drains {} orders, and sends each result to each webhook. Deliveries are \
         timed until every accepting receiver has every result; otherwise, the run fails. The worker's time includes the writing of the \
         orders.\n\n| webhooks | orders/s | deliveries/s | ratio to no dead receiver | worker µs a delivery |\n|---|--:|--:|--:|--:|\n",
        show(count as f64)
    );
    for (runs, endpoints) in found.iter().zip(ENDPOINTS) {
        let of = |figure: fn(&Run) -> f64| show(Rate::of(runs.iter().map(figure).collect()).median);
        let pairs = runs.iter().zip(&found[1]);
        let share = pairs.map(|(run, good)| run.deliveries_per_s / good.deliveries_per_s).collect();
        let mut values = vec![of(|run| run.orders_per_s)];
        if endpoints.good > 0 {
            values.extend([
                of(|run| run.deliveries_per_s),
                show(Rate::of(share).median),
                of(|run| run.worker_us),
            ]);
        } else {
            values.extend(["", "", ""].map(str::to_owned));
        }
        row(&mut text, endpoints.name, &values);
    }
    Ok(text)
}

async fn once(fixture: &mut Fixture, count: usize, endpoints: Endpoints) -> Result<Run> {
    let mut secret = NamedTempFile::with_prefix("tidegate-bench-")?;
    writeln!(secret, "{SECRET}")?;
    let (mut receivers, mut webhooks) = (Vec::new(), Vec::new());
    for at in 0..endpoints.good + endpoints.dead {
        let receiver = Receiver::start(at >= endpoints.good).await?;
        webhooks.push(format!("to-{at}:{}:{}", secret.path().display(), receiver.url()));
        receivers.push(receiver);
    }
    let webhooks = webhooks.join(",");
    let settings = [("TIDEGATE_RESULTS_PUBLISH", "all"), ("TIDEGATE_WEBHOOKS", webhooks.as_str())];
    let used = if webhooks.is_empty() { &settings[..1] } else { &settings[..] };
    let sale = WaitingSale::open(fixture, count, used).await?;
    until_groups(fixture, receivers.len()).await?;
    let (began, cpu_before_s) = (Instant::now(), sale.workers.cpu_s());
    let drained = sale.drain(fixture).await?;
    let good = &receivers[..endpoints.good];
    while good.iter().any(|receiver| receiver.accepted() < count) {
        let accepted: Vec<usize> = good.iter().map(Receiver::accepted).collect();
        ensure!(began.elapsed() < ALL_WITHIN, "Accepted: {accepted:?} of {count}: {}", sale.workers.logs());
        sleep(LOOK_EVERY).await;
    }
    let (sent, deliveries) = (began.elapsed(), (endpoints.good * count) as f64);
    let worker_us = (sale.workers.cpu_s() - cpu_before_s) * 1e6 / deliveries;
    sale.end(fixture).await?;
    Ok(Run {
        orders_per_s: count as f64 / drained.as_secs_f64(),
        deliveries_per_s: deliveries / sent.as_secs_f64(),
        worker_us,
    })
}

/// Waits until the worker has created the groups of all webhooks: results before that are not sent.
async fn until_groups(fixture: &mut Fixture, wanted: usize) -> Result<()> {
    if wanted == 0 {
        return Ok(());
    }
    let began = Instant::now();
    loop {
        let groups = fixture.redis.call(&["XINFO", "GROUPS", "stream.orders.results"]).await;
        if groups.is_ok_and(|groups| groups.items().len() == wanted) {
            return Ok(());
        }
        ensure!(began.elapsed() < ALL_WITHIN, "The worker has not created all consumer groups in time");
        sleep(LOOK_EVERY).await;
    }
}
