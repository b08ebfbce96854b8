//! How often the worker allocates memory for an order, from the reply of Redis to the acknowledgement. The clients of
//! both stores are included.

use std::time::Duration;

use anyhow::Result;
use tokio::runtime::Builder;

use crate::drain::Drain;

const ORDERS: i64 = 20_000;
const BATCH: usize = 1_000;
/// 5 % more than when this test was written. The Redis client makes nine allocations for the parts of an entry, and the
/// worker one for its fields.
const MOST: f64 = 11.3;

/// On one thread, because the counter counts the allocations of this thread only, whatever other tests do.
#[test]
fn plain_orders_in_full_batches_take_so_many_allocations_each_and_no_more() -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut drain = runtime.block_on(Drain::open())?;
    let mut each = MOST;
    // The first run opens sessions, and its buffers grow.
    for _ in 0..2 {
        runtime.block_on(drain.fill(ORDERS))?;
        let mut took = Ok(Duration::ZERO);
        let counted = allocation_counter::measure(|| {
            took = runtime.block_on(drain.run(ORDERS, BATCH, None));
        });
        took?;
        each = counted.count_total as f64 / ORDERS as f64;
    }
    assert!((1.0..MOST).contains(&each), "{each} allocations an order");
    Ok(())
}
