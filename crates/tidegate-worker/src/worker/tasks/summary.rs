//! The task that logs the work since the start, if there was any since the last line.

use std::sync::Arc;

use tidegate_orders::{OrderCounters, order_counters::OrderCounts};
use tidegate_stream::{Counters, Counts};

use super::{NextRun, Parts, Periodic, ProcessSettings, Routine, Task};

pub fn summary(settings: &ProcessSettings, parts: &Parts) -> impl Task + use<> {
    let (counters, order_counters) = (Arc::clone(&parts.counters), Arc::clone(&parts.order_counters));
    let (mut told, every) = (counters.counts(), settings.worker.report_every);
    Periodic(Routine::new("log a summary", every), async move || {
        let now = counters.counts();
        if now != told {
            told = now;
            tell("so far", &counters, &order_counters);
        }
        Ok(NextRun::After(every))
    })
}

/// Logs the numbers of batches, entries and orders since the start of the process.
pub fn tell(what: &str, counters: &Counters, order_counters: &OrderCounters) {
    let Counts { batches, done: _, buried, gone, retried, claimed } = counters.counts();
    let OrderCounts {
        created,
        already_there,
        user_has_order,
        out_of_stock,
        lock_refused,
        contended,
        limit_uses: _,
    } = order_counters.counts();
    tracing::info!(
        created,
        already_there,
        user_has_order,
        out_of_stock,
        buried,
        gone,
        claimed,
        retried,
        lock_refused,
        contended,
        batches,
        "{what}"
    );
}
