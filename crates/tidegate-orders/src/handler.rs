//! The steps of a batch of orders and events in a lane: decode, set aside, lock, write, release, publish, unlock.
//! [`Handler::handle`] is the entry point, and `OrderHandler::handle_batch` has the steps in this order.

mod batch;
mod events;
mod older_entries;
mod predict;
mod results;

use std::{collections::BTreeMap, mem, sync::Arc, time::Instant};

use tidegate_stream::{
    Cause, Causes, DeadLetterReason, Entry, EntryId, Handled, Handler, Outage, Outcome, Stage,
};

use crate::{
    batch_trace::{BatchTrace, BatchTracer},
    evidence::{LOST_IN_MYSQL, RedisEvidence},
    ledger::{Contention, EndedOrders, Incoming, Ledger, Refusal, Verdict},
    limited_log::LimitedLog,
    order::{Order, OrderId},
    order_counters::{OrderCounters, OrderCounts},
    order_status::ID_TAKEN,
    publisher::Publisher,
    results::Published,
    scripts::{RedisStore, Release, ReleaseReply, ScriptError, UserAfter},
    user_lock::{Locked, UserLocks, locked_by_another},
};
use batch::Batch;
use older_entries::OlderPendingEntries;
pub use predict::Predicted;
pub use results::PublishedEntries;
use results::Results;

/// The handler that writes orders from stream entries to MySQL, and changes orders by the events in later entries.
#[derive(Clone, Debug)]
pub struct OrderHandler {
    redis: RedisStore,
    locks: Arc<UserLocks>,
    ledger: Ledger,
    order_counters: Arc<OrderCounters>,
    limited_log: Arc<LimitedLog>,
    older_entries: Arc<OlderPendingEntries>,
    publisher: Option<Publisher>,
    batch_tracer: Option<Arc<dyn BatchTracer>>,
}

impl OrderHandler {
    /// Creates a handler that locks users with `locks`, writes orders to `ledger` and returns the units of refused
    /// orders to the stock in `redis`. Before the handler records an event, it searches the stream for older entries of
    /// the same order.
    #[must_use]
    pub fn new(
        redis: RedisStore,
        locks: UserLocks,
        ledger: Ledger,
        order_counters: Arc<OrderCounters>,
    ) -> Self {
        let ledger = ledger.hearing(RedisEvidence::new(redis.clone()));
        let older_entries =
            Arc::new(OlderPendingEntries::new(redis.inspector().clone(), redis.keys().fields().clone()));
        Self {
            redis,
            locks: Arc::new(locks),
            ledger,
            order_counters,
            limited_log: Arc::default(),
            older_entries,
            publisher: None,
            batch_tracer: None,
        }
    }

    /// Makes the handler publish the results of orders and events with `publisher`. Without a publisher, no results are
    /// published.
    #[must_use]
    pub fn publishing(self, publisher: Publisher) -> Self {
        Self { publisher: Some(publisher), ..self }
    }

    /// Lets the handler wake other consumers, whose waiting entries are in `set_aside`. When the handler has finished
    /// an entry, the other consumers at once retry the entries that waited for this entry.
    #[must_use]
    pub fn waking(self, set_aside: Arc<Causes>) -> Self {
        Self { older_entries: Arc::new(self.older_entries.for_lanes(set_aside)), ..self }
    }

    /// Passes a trace of each batch to `batch_tracer`, if the tracer requests one.
    #[must_use]
    pub fn traced_by(self, batch_tracer: Arc<dyn BatchTracer>) -> Self {
        Self { batch_tracer: Some(batch_tracer), ..self }
    }

    /// The id of the order in an entry, whether the entry is an order or an event.
    #[must_use]
    pub fn order_of(&self, entry: &Entry) -> Option<OrderId> {
        self.older_entries.order_of(entry)
    }
}

impl Handler for OrderHandler {
    async fn handle(&self, batch: &[Entry]) -> Result<Handled, Outage> {
        let Some(batch_tracer) = self.batch_tracer.as_ref().filter(|batch_tracer| batch_tracer.wants(batch))
        else {
            return self.handle_batch(batch, PublishedEntries::All, None).await;
        };
        let mut batch_trace = BatchTrace::of(batch.len());
        let handled = self.handle_batch(batch, PublishedEntries::All, Some(&mut batch_trace)).await;
        batch_tracer.take(batch_trace);
        handled
    }

    fn received(&self, entries: &[Entry]) {
        self.older_entries.received(entries);
    }

    async fn before_burial(&self, entry: EntryId, why: &DeadLetterReason) -> Result<(), Outage> {
        let publisher = self.publisher.as_ref().filter(|publisher| publisher.published() != Published::None);
        let Some(publisher) = publisher else { return Ok(()) };
        let names = self.redis.keys().fields();
        let peeked = self.older_entries.peek(entry).await?;
        publisher.publish_burial(names, &peeked, why.reason).await
    }
}

impl OrderHandler {
    /// Handles a batch like [`Handler::handle`], but publishes only the results of the given entries.
    ///
    /// # Errors
    /// As [`Handler::handle`].
    pub async fn handle_publishing(
        &self,
        batch: &[Entry],
        entries: PublishedEntries<'_>,
    ) -> Result<Vec<Outcome>, Outage> {
        let Handled { outcomes, rest } = self.handle_batch(batch, entries, None).await?;
        if let Some(rest) = rest {
            rest.await;
        }
        Ok(outcomes)
    }

    /// Runs the steps of a batch, except for settling, which the lane does.
    async fn handle_batch(
        &self,
        entries: &[Entry],
        published: PublishedEntries<'_>,
        trace: Option<&mut BatchTrace>,
    ) -> Result<Handled, Outage> {
        let mut batch = self.decode(entries, published, trace);
        let _tracked = self.older_entries.track_batch(entries, batch.has_events);
        self.set_aside(&mut batch).await?;
        let locked = self.lock(&mut batch).await?;
        // On the heap, as are the transactions below it: nested by value, these futures overflow a worker thread's
        // stack.
        let work = Box::pin(async {
            self.write(&mut batch).await?;
            self.release(&mut batch).await?;
            self.record_events(&mut batch).await?;
            self.give_ended_back(&mut batch).await?;
            self.publish(&mut batch).await
        });
        let worked = self.locks.hold(&locked, work).await;
        self.unlock(batch, locked, worked).await
    }

    /// Decodes the entries of a batch.
    fn decode<'a>(
        &'a self,
        entries: &'a [Entry],
        published: PublishedEntries<'a>,
        trace: Option<&'a mut BatchTrace>,
    ) -> Batch<'a> {
        let kinds = self.publisher.as_ref().map_or(Published::None, Publisher::published);
        let results = Results::new(entries, self.redis.keys().fields(), kinds, published);
        Batch::decode(entries, self.redis.keys().fields(), self.redis.keys().partition(), results, trace)
    }

    /// Sets aside the entries that must come later, and those that need the row of a voucher that another session
    /// holds. It takes no lock and waits for none.
    async fn set_aside(&self, batch: &mut Batch<'_>) -> Result<(), Outage> {
        self.set_later_aside(batch).await?;
        let held = self.ledger.locked_vouchers(batch.subjects().map(|(.., voucher)| voucher)).await?;
        if !held.is_empty() {
            let contended = batch.set_aside_where(|(.., voucher)| {
                held.contains(&voucher).then(|| waits_for(Contention::Voucher(voucher)))
            });
            self.order_counters.contended(contended);
        }
        Ok(())
    }

    /// Locks the users of a batch, and sets aside the entries of users that another worker has locked.
    async fn lock(&self, batch: &mut Batch<'_>) -> Result<Locked, Outage> {
        if batch.is_over() {
            return Ok(Locked::nobody());
        }
        let began = Instant::now();
        let locked = self.locks.lock(batch.subjects().map(|(_, user, _)| user)).await;
        let stage = Stage::since(began);
        batch.trace_locking(stage);
        let locked = locked?;
        self.order_counters.locked_in(stage.time());
        if locked.has_refused() {
            let refused = batch.set_aside_where(|(_, user, _)| {
                locked.is_refused(user).then(|| Outcome::SetAside(locked_by_another(user)))
            });
            self.order_counters.lock_refused(refused);
        }
        Ok(locked)
    }

    /// Writes the orders of the batch to MySQL.
    async fn write(&self, batch: &mut Batch<'_>) -> Result<(), Outage> {
        if batch.orders.is_empty() {
            return Ok(());
        }
        let began = Instant::now();
        let verdicts = self.ledger.record(&batch.orders.items).await;
        let stage = Stage::since(began);
        batch.trace_writing(stage, verdicts.as_deref().unwrap_or_default());
        batch.verdicts = verdicts?;
        self.order_counters.written(&batch.orders.items, &batch.verdicts, stage.time());
        Ok(())
    }

    /// Releases what Redis holds for orders that were refused, or that ended before they came. Each order id is
    /// released once, before its entry is acknowledged.
    async fn release(&self, batch: &mut Batch<'_>) -> Result<(), Outage> {
        let verdicts = mem::take(&mut batch.verdicts);
        let ended = self.ended(&batch.orders.items, &verdicts).await?;
        let owed: Vec<Owed> = batch
            .orders
            .items
            .iter()
            .zip(&verdicts)
            .enumerate()
            .filter_map(|(nth, (incoming, verdict))| {
                let release = owed(&incoming.order, verdict, &ended)?;
                Some(Owed { nth, entry: incoming.entry, release })
            })
            .collect();
        let mut withheld = BTreeMap::new();
        for (owed, released) in owed.iter().zip(self.release_all(&owed).await?) {
            match (released, &verdicts[owed.nth]) {
                (Ok(ReleaseReply::ReleasedBefore), _) => {}
                (Ok(_), Verdict::Refused(refusal)) => {
                    self.limited_log.refusal(&batch.orders.items[owed.nth], *refusal);
                }
                (Ok(_), _) => {}
                (Err(outcome), _) => drop(withheld.insert(owed.nth, outcome)),
            }
        }
        let mut refused = OrderCounts::default();
        for (nth, verdict) in verdicts.into_iter().enumerate() {
            let outcome = withheld.remove(&nth).unwrap_or_else(|| {
                refused.count_refusal(&verdict);
                let (at, incoming) = (batch.orders.places[nth], &batch.orders.items[nth]);
                batch.results.order(at, incoming, &verdict, ended.by_events.get(&incoming.order.id));
                outcome(incoming, verdict)
            });
            batch.decide_order(nth, outcome);
        }
        self.order_counters.add(refused);
        Ok(())
    }

    /// Publishes the results of a batch, after they are durable and before the batch is acknowledged. Without results,
    /// it sends no call.
    async fn publish(&self, batch: &mut Batch<'_>) -> Result<(), Outage> {
        let Some(publisher) = &self.publisher else { return Ok(()) };
        publisher.publish(batch.results.with_dead(&batch.outcomes)).await
    }

    /// Unlocks the users, in most cases while the lane settles the batch. It unlocks them at once if the work failed,
    /// if the batch has events, or if an event waits: a lane that is woken then locks the same users.
    async fn unlock(
        &self,
        batch: Batch<'_>,
        locked: Locked,
        worked: Result<(), Outage>,
    ) -> Result<Handled, Outage> {
        if worked.is_err() || batch.has_events || self.older_entries.are_awaited() {
            self.locks.unlock(locked).await;
            worked?;
            self.older_entries.settled(batch.entries, &batch.outcomes);
            return Ok(batch.outcomes.into());
        }
        self.older_entries.forget(batch.entries, &batch.outcomes);
        let locks = Arc::clone(&self.locks);
        Ok(Handled {
            outcomes: batch.outcomes,
            rest: Some(Box::pin(async move { locks.unlock(locked).await })),
        })
    }

    /// Releases orders, with the entries that ask for it. The answer for each order is the reply of Redis, or the
    /// outcome of its entry if the order cannot be released. Such a failure does not affect other orders.
    async fn release_all(&self, owed: &[Owed]) -> Result<Vec<Result<ReleaseReply, Outcome>>, Outage> {
        let calls: Vec<Release> = owed.iter().map(|owed| owed.release.clone()).collect();
        let mut answers = Vec::with_capacity(calls.len());
        let (mut withheld, mut without_sale) = (0, Vec::new());
        for (reply, Owed { release, entry, .. }) in
            self.redis.releases().release_all(&calls).await.into_iter().zip(owed)
        {
            answers.push(match reply {
                Ok(reply) => {
                    if reply == ReleaseReply::NotAdmitted && self.limited_log.is_shown("not_admitted") {
                        tracing::warn!(
                            order = %release.order, voucher = %release.voucher, %entry,
                            "no units returned to the stock in Redis: by the voucher's complete journal, Redis never admitted the order"
                        );
                    }
                    if reply == ReleaseReply::NoSale {
                        without_sale.push((release, *entry));
                    }
                    Ok(reply)
                }
                Err(ScriptError::Unreachable(error)) => return Err(error.into()),
                Err(error @ ScriptError::IdTaken { .. }) => Err(id_taken(error.to_string())),
                Err(error) => {
                    withheld += 1;
                    log_withheld(release, *entry, &error, withheld);
                    Err(set_aside("release", release.voucher.get()))
                }
            });
        }
        self.tell_of_lost_sales(&without_sale).await;
        Ok(answers)
    }

    /// Logs the orders that were released in MySQL only, because Redis does not hold their sale. It logs nothing for
    /// delisted vouchers, because their keys were removed on purpose.
    async fn tell_of_lost_sales(&self, without_sale: &[(&Release, EntryId)]) {
        let vouchers = without_sale.iter().map(|(release, _)| release.voucher).collect();
        let delisted = self.ledger.delisted_of(&vouchers).await;
        for (release, entry) in without_sale {
            if !delisted.contains(&release.voucher) && self.limited_log.is_shown("no_stock") {
                tracing::warn!(
                    order = %release.order, voucher = %release.voucher, %entry,
                    "no units returned to the stock in Redis: Redis has no key of the voucher's sale"
                );
            }
        }
    }
}

/// A release that is due for an order or an event.
struct Owed {
    /// The position among the orders, or among the events, of its batch.
    nth: usize,
    entry: EntryId,
    release: Release,
}

/// Logs an error for the first order of a batch only: a stock key of the wrong type concerns every order of its
/// voucher.
fn log_withheld(Release { order, voucher, .. }: &Release, entry: EntryId, error: &ScriptError, nth: usize) {
    if nth == 1 {
        tracing::error!(
            %order, %voucher, %entry, %error,
            "the units of an order cannot be released in Redis: the order's entry stays pending and is tried again later"
        );
    } else {
        tracing::debug!(%order, %error, "the units of another order in the batch cannot be released in Redis");
    }
}

/// The release that is due for an order with this verdict.
fn owed(order: &Order, verdict: &Verdict, ended: &EndedOrders) -> Option<Release> {
    match verdict {
        Verdict::Refused(refusal) => Some(release(order, *refusal)),
        Verdict::Cancelled => {
            let by_event = ended.by_events.get(&order.id).map(|ended| ended.user_after);
            let by_another = || ended.by_another_program.get(&order.id).map(|(user_after, _)| *user_after);
            by_event.or_else(by_another).map(|user_after| release_ended(order, user_after))
        }
        _ => None,
    }
}

/// The release of a refused order. Out of stock: the user may try again, but the stock in Redis is not raised, because
/// MySQL has none. The user has an order: its units return to the stock, and the user stays a buyer.
fn release(order: &Order, refusal: Refusal) -> Release {
    let (units, user_after) = match refusal {
        Refusal::OutOfStock => (None, UserAfter::Freed),
        Refusal::UserHasOrder => (Some(order.quantity), UserAfter::SlotIsTaken),
    };
    let by = format!("worker:{}", refusal.word()).into();
    Release { order: order.id, user: order.user, voucher: order.voucher, units, user_after, by }
}

/// The release of an order that ended before its own entry came, or whose entry comes again. It returns the units of
/// the order, unless they were released before.
fn release_ended(order: &Order, user_after: UserAfter) -> Release {
    let (units, by) = (Some(order.quantity), "worker:cancelled".into());
    Release { order: order.id, user: order.user, voucher: order.voucher, units, user_after, by }
}

fn outcome(incoming: &Incoming, verdict: Verdict) -> Outcome {
    let order = &incoming.order;
    match verdict {
        Verdict::Created | Verdict::AlreadyThere | Verdict::Cancelled | Verdict::Refused(_) => Outcome::Done,
        Verdict::UnknownVoucher => Outcome::Dead(DeadLetterReason {
            reason: "unknown_voucher",
            error: format!("voucher {} is not in tb_seckill_voucher, or its stock is NULL", order.voucher),
        }),
        Verdict::PastLimits(since_ms) => Outcome::Dead(DeadLetterReason {
            reason: "past_limits",
            error: format!(
                "voucher {} has limits since {since_ms} (Unix ms), but this later entry does not state which limits the order used",
                order.voucher
            ),
        }),
        Verdict::IdTaken => {
            id_taken(format!("order id {} belongs to an order of another user or voucher", order.id))
        }
        Verdict::Contended(contention) => waits_for(contention),
        Verdict::Rejected(error) => Outcome::Dead(DeadLetterReason { reason: "rejected_by_database", error }),
    }
}

fn waits_for(contention: Contention) -> Outcome {
    match contention {
        Contention::Voucher(voucher) => set_aside("voucher_row", voucher.get()),
        Contention::Row(order) => set_aside("order_row", order.get()),
        Contention::Batch => Outcome::SetAside(Cause::UNKNOWN),
        Contention::NodeBehind => set_aside("node_behind", 0),
        Contention::Lost(voucher) => set_aside(LOST_IN_MYSQL, voucher.get()),
    }
}

fn set_aside(kind: &'static str, key: i64) -> Outcome {
    Outcome::SetAside(Cause::new(kind, key.unsigned_abs()))
}

fn id_taken(error: String) -> Outcome {
    Outcome::Dead(DeadLetterReason { reason: ID_TAKEN, error })
}
