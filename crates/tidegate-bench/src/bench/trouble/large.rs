//! The memory of a worker with entries that have a field of 64 KiB.

use std::time::Instant;

use anyhow::{Context, Result};

use super::{
    case::Case,
    load::{self, Load},
    run::check,
};
use crate::bench::{
    drain::{FILLED, until_settled},
    fixture::{Fixture, GROUP, STREAM, Tables},
    results::trouble::LargeEntries,
    workers::{Shape, Workers},
};

const FIELD_BYTES: usize = 64 * 1024;
const PIPELINE: usize = 50;

/// Measures with large entries only; then with small ones first, and large ones from the middle on.
pub async fn measure(fixture: &mut Fixture, entries: usize) -> Result<LargeEntries> {
    let all_large = drain(fixture, entries, 0).await?;
    let turning = drain(fixture, entries, entries / 2).await?;
    Ok(LargeEntries {
        entries,
        all_large_peak_kib: all_large.peak_kib,
        all_large_per_s: all_large.per_s,
        turning_peak_kib: turning.peak_kib,
    })
}

struct Drained {
    peak_kib: u64,
    per_s: f64,
}

/// Drains this many entries; the first `small` of them are small.
async fn drain(fixture: &mut Fixture, entries: usize, small: usize) -> Result<Drained> {
    fixture.clear_tables(Tables::Fresh, 1).await?;
    fixture.clear_redis().await?;
    let (redis, mysql) = (fixture.redis_server.url(), fixture.url(Tables::Fresh));
    let workers = Workers::start(&fixture.program, Shape::DEFAULT, &redis, &[mysql]).await?;
    let orders = fixture.numbers.take(entries, 1);
    let load = Load::of(Case::Plain, &orders);
    fixture.redis.call(&["XGROUP", "CREATE", FILLED, GROUP, "0", "MKSTREAM"]).await?;
    let last = fill(fixture, &load, small).await?;

    let began = Instant::now();
    fixture.redis.call(&["RENAME", FILLED, STREAM]).await?;
    until_settled(&mut fixture.redis, &last, 0).await.with_context(|| workers.logs())?;
    let per_s = entries as f64 / began.elapsed().as_secs_f64();
    let peak_kib = workers.peak_kib();
    check(fixture, &orders, entries, &workers).await?;
    workers.stop().await?;
    Ok(Drained { peak_kib, per_s })
}

async fn fill(fixture: &mut Fixture, load: &Load, small: usize) -> Result<String> {
    let note = "x".repeat(FIELD_BYTES);
    let mut last = String::new();
    for (part, entries) in load.entries.chunks(PIPELINE).enumerate() {
        for (at, entry) in entries.iter().enumerate() {
            let is_large = part * PIPELINE + at >= small;
            load::put(&mut fixture.redis, FILLED, entry, is_large.then_some(note.as_str()));
        }
        fixture.redis.flush().await?;
        for _ in entries {
            fixture.redis.receive().await?.text().clone_into(&mut last);
        }
    }
    Ok(last)
}
