//! The cost of one WAIT per batch for a lane that writes orders: the same lane, stores and replica, with WAIT and
//! without it.

use std::{num::NonZeroU32, time::Duration};

use anyhow::{Context, Result};
use tidegate_stream::{Confirmation, ConfirmedIn};

use crate::drain::Drain;

const ORDERS: i64 = 20_000;
const ROUNDS: usize = 5;

/// Orders a second.
async fn rate(drain: &mut Drain, batch: usize, replicas: Option<Confirmation>) -> Result<f64> {
    drain.fill(ORDERS).await?;
    Ok(ORDERS as f64 / drain.run(ORDERS, batch, replicas).await?.as_secs_f64())
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a minute, and its figures need a release build: `just failovers`"]
async fn what_a_wait_a_batch_costs_a_drain() -> Result<()> {
    let within = Duration::from_secs(5);
    let wanted = Confirmation { replicas: NonZeroU32::MIN, within, place: ConfirmedIn::Memory };
    let mut drain = Drain::open_with_replica().await?;
    for batch in [1_000, 100, 10] {
        // The first round opens sessions and tables.
        rate(&mut drain, batch, None).await?;
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            without.push(rate(&mut drain, batch, None).await?);
            with.push(rate(&mut drain, batch, Some(wanted)).await?);
        }
        let waits = drain.fixture.typed("INFO commandstats").await?.as_string().unwrap_or_default();
        let wait = waits.lines().find(|line| line.starts_with("cmdstat_wait:")).context("nobody waited")?;
        println!(
            "batches of {batch}: {:.0} orders/s without, {:.0} with one replica ({without:.0?}, {with:.0?}); {wait}",
            median(without.clone()),
            median(with.clone())
        );
    }
    Ok(())
}
