//! Runs a batch in transactions: each part waits for its turn, has a time limit, and is retried if that helps.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use futures_util::future::{BoxFuture, Either, select};
use tidegate_stream::Outage;
use tokio::time::timeout;

use super::{
    Ledger,
    fault::Fault,
    locked_vouchers::{PATIENT_LOOK, SECOND_LOOK},
    retry::{Failure, Tries},
    session::Session,
    verdict::Contention,
    work_list::{Item, Part, WorkList},
};

/// The time for a batch, however many of its rows other sessions hold. Orders that are not written by then wait and are
/// retried later, an eighth of a batch first.
pub(super) const BATCH_TIME: Duration = Duration::from_secs(5);

/// The time after which a transaction counts as waiting for the locks of another session, and gives up its place.
const TURN: Duration = Duration::from_millis(250);

/// The time for the search for those locks. The place stays taken until then, so that the next batch knows of the locks
/// and does not wait there as well.
const LOOK: Duration = Duration::from_millis(900);

/// Decides and writes items in one transaction, and returns an outcome for each. Boxed, because nested by value the
/// futures of a write overflow a worker thread's stack.
pub(super) type Write<T, V> =
    for<'a> fn(&'a Ledger, &'a mut Session, &'a [&'a T]) -> BoxFuture<'a, Result<Vec<V>, Fault>>;

impl Ledger {
    /// Works off a list, and returns an outcome for each item. If other sessions are in the way, an item keeps its
    /// initial outcome, or gets one that names what it waits for. Items that are not done `within` this time keep their
    /// outcomes, too. `rejected` makes the outcome of an item whose row the database refuses, from the error message.
    ///
    /// # Errors
    /// An outage says nothing about any item: each may be written or not.
    pub(super) async fn work_off<T: Item, V: Clone + From<Contention>>(
        &self,
        mut work: WorkList<'_, T, V>,
        within: Option<Duration>,
        rejected: fn(String) -> V,
        write: Write<T, V>,
    ) -> Result<Vec<V>, Outage> {
        let began = Instant::now();
        let is_time_left = || within.is_none_or(|within| began.elapsed() < within);
        while let Some(part) = work.next().filter(|_| is_time_left()) {
            let mut tries = Tries::new(&self.contentions);
            let outcomes = loop {
                match self.transact(&part, write).await {
                    Ok(outcomes) => break Ok(outcomes),
                    Err(fault) => {
                        let failure = tries.after(fault).await;
                        if let Some(failure) = failure.inspect_err(|_| self.forget_idle_connections())? {
                            break Err(failure);
                        }
                    }
                }
            };
            match outcomes {
                Ok(outcomes) => work.finish(&part, outcomes),
                Err(Failure::RowRefused(error)) if part.is_single() => {
                    // Only an entry that fails on a healthy store is at fault.
                    self.probe().await?;
                    work.finish(&part, [rejected(error)]);
                }
                Err(Failure::RowRefused(_)) => work.halve(part),
                Err(Failure::RowHeld) => {
                    let held = self.find_held(part.vouchers(), SECOND_LOOK).await?;
                    work.set_aside(part, &held);
                }
                Err(Failure::GaveUp) => {}
            }
        }
        Ok(work.into_outcomes())
    }

    /// Runs one transaction when a place is free. Its time limit counts only from then on, because the wait for a place
    /// is no fault of the store. If the transaction takes long, the rows that it may wait for are checked in the
    /// background, before the place is freed for the next batch.
    async fn transact<T: Item, V>(&self, part: &Part<'_, T>, write: Write<T, V>) -> Result<Vec<V>, Fault> {
        let place = self.writers.place(self.commit()).await;
        let began = Instant::now();
        // On the heap: `in_time` and `select` would keep it twice.
        let mut transaction = Box::pin(self.in_time(async {
            // The held vouchers that other batches found while this part waited for its turn.
            let held = self.held.among(part.items.iter().map(|item| item.voucher()));
            if !held.is_empty() && !self.find_held(held, SECOND_LOOK).await?.is_empty() {
                return Err(Fault::LockWait("another session has locked the row of a voucher".to_owned()));
            }
            let mut session = Session::open(&self.pool).await?;
            let outcomes = write(self, &mut session, &part.items).await;
            session.end(outcomes).await
        }));
        let outcomes = match timeout(TURN, &mut transaction).await {
            Ok(outcomes) => outcomes,
            Err(_) => {
                let look = Box::pin(timeout(LOOK, self.find_held(part.vouchers(), PATIENT_LOOK)));
                match select(transaction, pin!(look)).await {
                    Either::Left((outcomes, _)) => outcomes,
                    Either::Right((_, transaction)) => {
                        drop(place);
                        transaction.await
                    }
                }
            }
        };
        self.writers.note(&outcomes, began.elapsed());
        outcomes
    }
}
