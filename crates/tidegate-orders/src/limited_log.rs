//! Limits the log lines of frequent messages: refused orders, rejected events and payments to refund.
//!
//! The log has a few lines of each reason, and one sum for the others, so that a rush on a sold-out voucher does not
//! fill the log.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::sleep;

use crate::ledger::{Incoming, Refusal};

/// The lines of one reason within a period. The tables `tidegate_refusal` and `tidegate_event` hold every refusal and
/// event.
const LOGGED_ONE_BY_ONE: u64 = 3;
const PERIOD: Duration = Duration::from_secs(60);

/// A log that writes a limited number of messages for each reason. In each period, the first messages of a reason get a
/// line each. At the end of the period, one line gives the number of the remaining messages.
#[derive(Debug)]
pub struct LimitedLog {
    period: Duration,
    /// The message of the lines with the sums.
    rest: &'static str,
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl Default for LimitedLog {
    /// The log that all lanes share.
    fn default() -> Self {
        Self::new(
            "more orders were refused, events were rejected or payments must be refunded: see the tables tidegate_refusal and tidegate_event",
        )
    }
}

impl LimitedLog {
    /// Creates a log that limits its lines. `rest` is the message of the line that gives the number of messages without
    /// a line of their own.
    #[must_use]
    pub const fn new(rest: &'static str) -> Self {
        Self { period: PERIOD, rest, counts: Mutex::new(BTreeMap::new()) }
    }

    /// Logs the refusal of an order, or only counts it for the summary line of this period.
    pub fn refusal(self: &Arc<Self>, Incoming { order, entry }: &Incoming, refusal: Refusal) {
        let reason = refusal.word();
        if self.is_shown(reason) {
            tracing::warn!(
                order = %order.id, user = %order.user, voucher = %order.voucher, quantity = %order.quantity,
                %entry, reason, "order refused"
            );
        }
    }

    /// Whether a message of the given reason gets a line of its own. Otherwise, the log counts the message for the
    /// summary line of this period.
    pub fn is_shown(self: &Arc<Self>, reason: &'static str) -> bool {
        self.count(reason) <= LOGGED_ONE_BY_ONE
    }

    /// Counts a message of this reason, and returns how many there were in this period. A period begins with its first
    /// message.
    fn count(self: &Arc<Self>, reason: &'static str) -> u64 {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.is_empty() {
            // A process that ends earlier logs the sum then.
            let (log, period) = (Arc::downgrade(self), self.period);
            tokio::spawn(async move {
                sleep(period).await;
                if let Some(log) = log.upgrade() {
                    log.log_rest();
                }
            });
        }
        let count = counts.entry(reason).or_default();
        *count += 1;
        *count
    }

    /// Ends a period: logs one line for each reason, with the number of messages that got no line of their own.
    fn log_rest(&self) {
        let counts = mem::take(&mut *self.counts.lock().unwrap_or_else(PoisonError::into_inner));
        for (reason, count) in counts {
            if let more @ 1.. = count.saturating_sub(LOGGED_ONE_BY_ONE) {
                tracing::warn!(reason, count = more, within_s = self.period.as_secs(), "{}", self.rest);
            }
        }
    }
}

impl Drop for LimitedLog {
    fn drop(&mut self) {
        self.log_rest();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Write},
        time::Instant,
    };

    use tidegate_stream::EntryId;
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;
    use crate::order::{Order, OrderId, Quantity, Slot, UserId, VoucherId};

    fn order(id: i64) -> Order {
        Order {
            id: OrderId::try_from(id).unwrap(),
            user: UserId::try_from(id).unwrap(),
            voucher: VoucherId::try_from(7).unwrap(),
            quantity: Quantity::ONE,
            slot: Slot::FIRST,
            uses: None,
        }
    }

    /// The text that was logged.
    #[derive(Clone, Default)]
    struct Said(Arc<Mutex<Vec<u8>>>);

    impl Said {
        fn count(&self, text: &str) -> usize {
            String::from_utf8_lossy(&self.0.lock().unwrap()).matches(text).count()
        }

        async fn until_said(&self, text: &str, times: usize) {
            let began = Instant::now();
            while self.count(text) != times {
                assert!(began.elapsed() < Duration::from_secs(20), "{text:?} was not said");
                sleep(Duration::from_millis(1)).await;
            }
        }
    }

    impl Write for Said {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Said {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    #[tokio::test]
    async fn the_first_refusals_of_each_reason_are_told_in_every_period_and_the_others_summed_up() {
        let said = Said::default();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(said.clone()).finish();
        let _said = tracing::subscriber::set_default(subscriber);
        let mut log = LimitedLog::default();
        log.period = Duration::from_millis(200);
        let log = Arc::new(log);
        let refuse = |times: u32, refusal| {
            for id in 1..=times {
                log.refusal(&Incoming { order: order(id.into()), entry: EntryId::MIN }, refusal);
            }
        };
        refuse(1_000, Refusal::OutOfStock);
        refuse(2, Refusal::UserHasOrder);
        assert_eq!(said.count("order refused order="), 5);
        said.until_said("reason=\"out_of_stock\" count=997", 1).await;
        assert_eq!(said.count("more orders were"), 1, "the two that have a line each are not summed up");
        // Another period.
        refuse(5, Refusal::OutOfStock);
        assert_eq!(said.count("order refused order="), 8);
        drop(log);
        assert_eq!(said.count("reason=\"out_of_stock\" count=2"), 1, "logged at the end of the process");
    }
}
