//! What a lane does with a batch of orders and events: decode, lock, write, give back, announce. [`Handler::handle`] is the entry, and
//! `OrderHandler::handle_batch` has the steps in this order. The unlock is left for the lane, unless the batch has events or an event waits.

mod earlier;
mod events;
mod predict;
mod results;

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Instant,
};

use tidegate_stream::{
    Cause, Causes, Death, Entry, EntryId, Handled, Handler, Outage, Outcome, Stage, StreamInspector,
};

use crate::{
    announcer::Announcer,
    batch_trace::{BatchTrace, BatchTracer},
    gate::{Gate, GateError, Release, ReleaseReply, UserAfter},
    ledger::{Contention, EndedOrder, EndedOrders, Incoming, IncomingEvent, Ledger, Refusal, Verdict},
    limited_log::LimitedLog,
    order::{OrderId, UserId, VoucherId},
    order_counters::{OrderCounters, OrderCounts},
    order_status::ID_TAKEN,
    partition::Partition,
    results::Announced,
    user_lock::{Locked, UserLocks},
    wire::{FieldNames, Message},
    witness::{LOST_IN_MYSQL, Witness},
};
use earlier::EarlierEntries;
pub use predict::Predicted;
pub use results::AnnouncedEntries;
use results::Results;

/// Turns stream entries into orders in MySQL, and moves these by their events.
#[derive(Clone, Debug)]
pub struct OrderHandler {
    gate: Gate,
    locks: Arc<UserLocks>,
    ledger: Ledger,
    order_counters: Arc<OrderCounters>,
    limited_log: Arc<LimitedLog>,
    earlier: Arc<EarlierEntries>,
    announcer: Option<Announcer>,
    batch_tracer: Option<Arc<dyn BatchTracer>>,
}

/// An order or an event, and the place in its batch that its outcome belongs to.
struct Placed<T> {
    at: usize,
    incoming: T,
}

/// What order, user and voucher have in common, whether something is an order or happened to one.
trait Concerns {
    fn order(&self) -> OrderId;
    fn user(&self) -> UserId;
    fn voucher(&self) -> VoucherId;
}

impl Concerns for Incoming {
    fn order(&self) -> OrderId {
        self.order.id
    }

    fn user(&self) -> UserId {
        self.order.user
    }

    fn voucher(&self) -> VoucherId {
        self.order.voucher
    }
}

impl Concerns for IncomingEvent {
    fn order(&self) -> OrderId {
        self.event.order
    }

    fn user(&self) -> UserId {
        self.event.user
    }

    fn voucher(&self) -> VoucherId {
        self.event.voucher
    }
}

/// What a batch holds, in stream order each.
#[derive(Default)]
struct Decoded {
    orders: Vec<Placed<Incoming>>,
    events: Vec<Placed<IncomingEvent>>,
}

impl OrderHandler {
    /// A handler that locks with `locks`, writes to `ledger`, gives refused units back through `gate`, and looks with
    /// `inspector` for older entries of an order before it records what happened to it.
    #[must_use]
    pub fn new(
        gate: Gate,
        locks: UserLocks,
        ledger: Ledger,
        order_counters: Arc<OrderCounters>,
        inspector: StreamInspector,
    ) -> Self {
        let ledger = ledger.hearing(Witness::new(gate.clone(), inspector.clone()));
        let earlier = Arc::new(EarlierEntries::new(inspector, gate.fields().clone()));
        Self {
            gate,
            locks: Arc::new(locks),
            ledger,
            order_counters,
            limited_log: Arc::default(),
            earlier,
            announcer: None,
            batch_tracer: None,
        }
    }

    /// Lets `announcer` tell what becomes of orders and events. Without one, nobody is told.
    #[must_use]
    pub fn announcing(self, announcer: Announcer) -> Self {
        Self { announcer: Some(announcer), ..self }
    }

    /// Lets the lanes that have set this aside try at once what waits behind an entry of its order, when that is settled.
    #[must_use]
    pub fn waking(self, set_aside: Arc<Causes>) -> Self {
        Self { earlier: Arc::new(self.earlier.for_lanes(set_aside)), ..self }
    }

    /// Gives `batch_tracer` a trace of every batch that it wants.
    #[must_use]
    pub fn traced_by(self, batch_tracer: Arc<dyn BatchTracer>) -> Self {
        Self { batch_tracer: Some(batch_tracer), ..self }
    }

    /// The order that an entry names, whether it is one or happened to one.
    #[must_use]
    pub fn order_of(&self, entry: &Entry) -> Option<OrderId> {
        self.earlier.order_of(entry)
    }
}

impl Handler for OrderHandler {
    async fn handle(&self, batch: &[Entry]) -> Result<Handled, Outage> {
        let Some(batch_tracer) = self.batch_tracer.as_ref().filter(|batch_tracer| batch_tracer.wants(batch))
        else {
            return self.handle_batch(batch, AnnouncedEntries::All, None).await;
        };
        let mut batch_trace = BatchTrace::of(batch.len());
        let handled = self.handle_batch(batch, AnnouncedEntries::All, Some(&mut batch_trace)).await;
        batch_tracer.take(batch_trace);
        handled
    }

    async fn before_burial(&self, entry: EntryId, death: &Death) -> Result<(), Outage> {
        let announcer = self.announcer.as_ref().filter(|announcer| announcer.announced() != Announced::None);
        let Some(announcer) = announcer else { return Ok(()) };
        let names = self.gate.fields();
        let glimpsed = self.earlier.glimpse(entry).await?;
        announcer.announce_burial(names, &glimpsed, death.reason).await
    }
}

impl OrderHandler {
    /// As [`Handler::handle`], and announces the results of these entries only.
    ///
    /// # Errors
    /// As [`Handler::handle`].
    pub async fn handle_announcing(
        &self,
        batch: &[Entry],
        entries: AnnouncedEntries<'_>,
    ) -> Result<Vec<Outcome>, Outage> {
        let Handled { outcomes, rest } = self.handle_batch(batch, entries, None).await?;
        if let Some(rest) = rest {
            rest.await;
        }
        Ok(outcomes)
    }

    /// The steps of a batch, up to unlocking, which is left for the time in which it is settled.
    async fn handle_batch(
        &self,
        batch: &[Entry],
        entries: AnnouncedEntries<'_>,
        batch_trace: Option<&mut BatchTrace>,
    ) -> Result<Handled, Outage> {
        let (decoded, outcomes) = decode(self.gate.fields(), self.gate.partition(), batch);
        let has_events = !decoded.events.is_empty();
        let announced = self.announcer.as_ref().map_or(Announced::None, Announcer::announced);
        let results = Results::new(batch, self.gate.fields(), announced, entries);
        let mut handled = self.handle_decoded(batch, decoded, (outcomes, results), batch_trace).await?;
        if has_events || self.earlier.are_awaited() {
            // A lane that is woken locks the same users.
            if let Some(unlock) = handled.rest.take() {
                unlock.await;
            }
            self.earlier.settled(batch, &handled.outcomes);
        }
        Ok(handled)
    }

    async fn handle_decoded(
        &self,
        batch: &[Entry],
        Decoded { orders, events }: Decoded,
        (mut outcomes, mut results): (Vec<Outcome>, Results<'_>),
        mut batch_trace: Option<&mut BatchTrace>,
    ) -> Result<Handled, Outage> {
        let (orders, events) = self.set_later_aside(batch, orders, events, &mut outcomes).await?;
        let in_batch: Vec<(usize, OrderId)> = match events.is_empty() {
            true => Vec::new(),
            false => orders.iter().map(|placed| (placed.at, placed.incoming.order.id)).collect(),
        };
        let held = self.held_vouchers(&orders, &events).await?;
        let orders = self.set_held_vouchers_aside(&held, orders, &mut outcomes);
        let events = self.set_held_vouchers_aside(&held, events, &mut outcomes);
        if orders.is_empty() && events.is_empty() {
            self.announce(results, &outcomes).await?;
            return Ok(outcomes.into());
        }
        let locked = self.lock(&orders, &events, batch_trace.as_deref_mut()).await?;
        let orders = self.set_locked_users_aside(&locked, orders, &mut outcomes);
        let events = self.set_locked_users_aside(&locked, events, &mut outcomes);
        // On the heap, as are the transactions below it: nested by value, these futures overflow a worker thread's stack.
        let work = Box::pin(async {
            self.write_and_give_back(orders, (&mut outcomes, &mut results), batch_trace).await?;
            let waiting = waiting(&in_batch, &outcomes);
            self.record_and_give_back(events, &waiting, (&mut outcomes, &mut results)).await
        });
        let worked = self.locks.hold(&locked, work).await;
        let announced = match worked {
            Ok(()) => self.announce(results, &outcomes).await,
            Err(outage) => Err(outage),
        };
        if let Err(outage) = announced {
            self.locks.unlock(locked).await;
            return Err(outage);
        }
        let locks = Arc::clone(&self.locks);
        Ok(Handled { outcomes, rest: Some(Box::pin(async move { locks.unlock(locked).await })) })
    }

    /// Tells what became of a batch, when that is durable and before it is acknowledged. Nothing is called where there is nothing
    /// to tell.
    async fn announce(&self, results: Results<'_>, outcomes: &[Outcome]) -> Result<(), Outage> {
        let Some(announcer) = &self.announcer else { return Ok(()) };
        announcer.announce(&results.with_dead(outcomes)).await
    }

    /// Of the vouchers of a batch, those whose rows somebody else holds.
    async fn held_vouchers(
        &self,
        orders: &[Placed<Incoming>],
        events: &[Placed<IncomingEvent>],
    ) -> Result<BTreeSet<VoucherId>, Outage> {
        let of_orders = orders.iter().map(|placed| placed.incoming.voucher());
        let of_events = events.iter().map(|placed| placed.incoming.voucher());
        self.ledger.held_vouchers(of_orders.chain(of_events)).await
    }

    /// Sets aside whatever needs the row of a held voucher, and answers with the others. It takes no lock and waits for none.
    fn set_held_vouchers_aside<T: Concerns>(
        &self,
        held: &BTreeSet<VoucherId>,
        mut placed: Vec<Placed<T>>,
        outcomes: &mut [Outcome],
    ) -> Vec<Placed<T>> {
        let all = placed.len();
        set_aside_where(&mut placed, outcomes, |placed| {
            let voucher = placed.incoming.voucher();
            held.contains(&voucher).then(|| waits_for(Contention::Voucher(voucher)))
        });
        self.order_counters.contended(all - placed.len());
        placed
    }

    /// Locks the users of a batch, as far as no other worker has locked them.
    async fn lock(
        &self,
        orders: &[Placed<Incoming>],
        events: &[Placed<IncomingEvent>],
        batch_trace: Option<&mut BatchTrace>,
    ) -> Result<Locked, Outage> {
        let began = Instant::now();
        let of_orders = orders.iter().map(|placed| placed.incoming.user());
        let of_events = events.iter().map(|placed| placed.incoming.user());
        let locked = self.locks.lock(of_orders.chain(of_events)).await;
        let stage = Stage::since(began);
        if let Some(batch_trace) = batch_trace {
            batch_trace.locking = Some(stage);
        }
        let locked = locked?;
        self.order_counters.locked_in(stage.time());
        Ok(locked)
    }

    /// Sets aside whatever concerns users whom another worker has locked, and answers with the others.
    fn set_locked_users_aside<T: Concerns>(
        &self,
        locked: &Locked,
        mut placed: Vec<Placed<T>>,
        outcomes: &mut [Outcome],
    ) -> Vec<Placed<T>> {
        let all = placed.len();
        set_aside_where(&mut placed, outcomes, |placed| {
            let user = placed.incoming.user();
            locked.is_refused(user).then(|| set_aside("user_lock", user.get()))
        });
        self.order_counters.lock_refused(all - placed.len());
        placed
    }

    /// Writes orders, and gives back what Redis holds for those that hold nothing in MySQL.
    async fn write_and_give_back(
        &self,
        orders: Vec<Placed<Incoming>>,
        (outcomes, results): (&mut [Outcome], &mut Results<'_>),
        batch_trace: Option<&mut BatchTrace>,
    ) -> Result<(), Outage> {
        if orders.is_empty() {
            return Ok(());
        }
        let (places, incoming): (Vec<usize>, Vec<Incoming>) =
            orders.into_iter().map(|placed| (placed.at, placed.incoming)).unzip();
        let began = Instant::now();
        let verdicts = self.ledger.record(&incoming).await;
        let stage = Stage::since(began);
        if let Some(batch_trace) = batch_trace {
            batch_trace.writing = Some(stage);
            batch_trace.wrote(&places, verdicts.as_deref().unwrap_or_default());
        }
        let verdicts = verdicts?;
        self.order_counters.written(&incoming, &verdicts, stage.time());
        let ended = self.ended(&incoming, &verdicts).await?;
        let given_back = self.give_back(&incoming, &verdicts, &ended).await?;
        let mut refused = OrderCounts::default();
        for (((at, incoming), verdict), given_back) in
            places.into_iter().zip(&incoming).zip(verdicts).zip(given_back)
        {
            outcomes[at] = given_back.unwrap_or_else(|| {
                refused.count_refusal(&verdict);
                results.order(at, incoming, &verdict, ended.by_events.get(&incoming.order.id));
                outcome(incoming, verdict)
            });
        }
        self.order_counters.add(refused);
        Ok(())
    }

    /// Gives back what Redis holds for orders that were refused, or ended before they came, once per order id and
    /// before they are acknowledged. Answers with an outcome for each order that could not be given back: that concerns no
    /// other order.
    async fn give_back(
        &self,
        incoming: &[Incoming],
        verdicts: &[Verdict],
        ended: &EndedOrders,
    ) -> Result<Vec<Option<Outcome>>, Outage> {
        let mut releases = Vec::new();
        for (at, (Incoming { order, entry }, verdict)) in incoming.iter().zip(verdicts).enumerate() {
            let user_after = match ended.by_events.get(&order.id) {
                Some(EndedOrder { user_after, .. }) => Some(user_after),
                None => ended.by_another_program.get(&order.id).map(|(user_after, _)| user_after),
            };
            match (verdict, user_after) {
                (Verdict::Refused(refusal), _) => {
                    releases.push(((at, Some(*refusal)), (release(order, *refusal), *entry)));
                }
                (Verdict::Cancelled, Some(user_after)) => {
                    releases.push(((at, None), (release_ended(order, *user_after), *entry)));
                }
                _ => {}
            }
        }
        let (refusals, releases): (Vec<_>, Vec<_>) = releases.into_iter().unzip();
        let given_back = self.release_all(&releases).await?;
        let mut outcomes = vec![None; incoming.len()];
        for ((at, refusal), given_back) in refusals.into_iter().zip(given_back) {
            match (given_back, refusal) {
                (Ok(ReleaseReply::GivenBackBefore), _) | (Ok(_), None) => {}
                (Ok(_), Some(refusal)) => self.limited_log.refusal(&incoming[at], refusal),
                (Err(outcome), _) => outcomes[at] = Some(outcome),
            }
        }
        Ok(outcomes)
    }

    /// Gives orders back, with the entries that ask for it. Answers for each with the reply of Redis, or with the outcome of
    /// its entry where it cannot be given back: that concerns no other order.
    async fn release_all(
        &self,
        releases: &[(Release, EntryId)],
    ) -> Result<Vec<Result<ReleaseReply, Outcome>>, Outage> {
        let (calls, entries): (Vec<Release>, Vec<EntryId>) = releases.iter().cloned().unzip();
        let mut answers = Vec::with_capacity(calls.len());
        let (mut withheld, mut without_sale) = (0, Vec::new());
        for ((reply, release), entry) in
            self.gate.release_all(&calls).await.into_iter().zip(&calls).zip(entries)
        {
            answers.push(match reply {
                Ok(reply) => {
                    if reply == ReleaseReply::NotAdmitted && self.limited_log.is_shown("not_admitted") {
                        tracing::warn!(
                            order = %release.order, voucher = %release.voucher, %entry,
                            "units went back in MySQL only: a complete journal does not hold the order as admitted"
                        );
                    }
                    if reply == ReleaseReply::NoSale {
                        without_sale.push((release, entry));
                    }
                    Ok(reply)
                }
                Err(GateError::Unreachable(error)) => return Err(error.into()),
                Err(error @ GateError::IdTaken { .. }) => Err(id_taken(error.to_string())),
                Err(error) => {
                    withheld += 1;
                    log_withheld(release, entry, &error, withheld);
                    Err(set_aside("release", release.voucher.get()))
                }
            });
        }
        self.tell_of_lost_sales(&without_sale).await;
        Ok(answers)
    }

    /// Says of orders whose sale Redis does not hold that they went back in MySQL only; nothing of those that were delisted,
    /// whose keys are removed on purpose.
    async fn tell_of_lost_sales(&self, without_sale: &[(&Release, EntryId)]) {
        let vouchers = without_sale.iter().map(|(release, _)| release.voucher).collect();
        let delisted = self.ledger.delisted_of(&vouchers).await;
        for (release, entry) in without_sale {
            if !delisted.contains(&release.voucher) && self.limited_log.is_shown("no_stock") {
                tracing::warn!(
                    order = %release.order, voucher = %release.voucher, %entry,
                    "units went back in MySQL only: Redis holds no key of the sale"
                );
            }
        }
    }
}

/// Sets those aside for which `outcome` says what they wait for, and keeps the others.
fn set_aside_where<T>(
    placed: &mut Vec<Placed<T>>,
    outcomes: &mut [Outcome],
    outcome: impl Fn(&Placed<T>) -> Option<Outcome>,
) {
    placed.retain(|placed| match outcome(placed) {
        Some(outcome) => {
            outcomes[placed.at] = outcome;
            false
        }
        None => true,
    });
}

/// The orders of a batch that are to be tried again.
fn waiting(in_batch: &[(usize, OrderId)], outcomes: &[Outcome]) -> HashSet<OrderId> {
    let is_waiting = |(at, _): &&(usize, OrderId)| matches!(outcomes[*at], Outcome::SetAside(_));
    in_batch.iter().filter(is_waiting).map(|(_, order)| *order).collect()
}

/// An error for the first of a batch only: a stock key of the wrong type concerns every order of its voucher.
fn log_withheld(Release { order, voucher, .. }: &Release, entry: EntryId, error: &GateError, nth: usize) {
    if nth == 1 {
        tracing::error!(
            %order, %voucher, %entry, %error,
            "an order cannot be given back: its entry stays pending, as do others of this batch if need be"
        );
    } else {
        tracing::debug!(%order, %error, "cannot be given back either");
    }
}

/// Reads the orders and events of a batch. An entry that is neither is dead; for the others, the outcome is still to be
/// decided.
fn decode(fields: &FieldNames, partition: &Partition, batch: &[Entry]) -> (Decoded, Vec<Outcome>) {
    let mut decoded = Decoded { orders: Vec::with_capacity(batch.len()), events: Vec::new() };
    let mut outcomes = vec![set_aside("undecided", 0); batch.len()];
    for (at, entry) in batch.iter().enumerate() {
        let message = fields.decode_message(entry);
        let voucher = message.as_ref().ok().map(Message::voucher);
        if let Some(death) = voucher.and_then(|voucher| partition.refuses(voucher)) {
            outcomes[at] = Outcome::Dead(death);
            continue;
        }
        match message {
            Ok(Message::Order(order)) => {
                decoded.orders.push(Placed { at, incoming: Incoming { order, entry: entry.id } });
            }
            Ok(Message::Event(event)) => {
                decoded.events.push(Placed { at, incoming: IncomingEvent { event, entry: entry.id } });
            }
            Err(error) => {
                outcomes[at] = Outcome::Dead(Death { reason: error.reason(), error: error.to_string() });
            }
        }
    }
    (decoded, outcomes)
}

/// What is given back for a refused order. Out of stock: the user may try again, but the stock in Redis is not raised,
/// because MySQL has none. The user has an order: its units go back, and the user stays a buyer.
fn release(order: &crate::Order, refusal: Refusal) -> Release {
    let (units, user_after) = match refusal {
        Refusal::OutOfStock => (None, UserAfter::Freed),
        Refusal::UserHasOrder => (Some(order.quantity), UserAfter::SlotIsTaken),
    };
    let by = format!("worker:{}", refusal.word()).into();
    Release { order: order.id, user: order.user, voucher: order.voucher, units, user_after, by }
}

/// An order that was ended before its own entry came, or whose entry comes again: its own units, if they were not given back
/// before.
fn release_ended(order: &crate::Order, user_after: UserAfter) -> Release {
    let (units, by) = (Some(order.quantity), "worker:cancelled".into());
    Release { order: order.id, user: order.user, voucher: order.voucher, units, user_after, by }
}

fn outcome(incoming: &Incoming, verdict: Verdict) -> Outcome {
    let order = &incoming.order;
    match verdict {
        Verdict::Created | Verdict::AlreadyThere | Verdict::Cancelled | Verdict::Refused(_) => Outcome::Done,
        Verdict::UnknownVoucher => Outcome::Dead(Death {
            reason: "unknown_voucher",
            error: format!("voucher {} is not in tb_seckill_voucher, or has no stock there", order.voucher),
        }),
        Verdict::PastLimits(since_ms) => Outcome::Dead(Death {
            reason: "past_limits",
            error: format!(
                "voucher {} has limits since {since_ms} (Unix ms), and this entry, which came later, does not say what it used",
                order.voucher
            ),
        }),
        Verdict::IdTaken => {
            id_taken(format!("order id {} belongs to an order of another user or voucher", order.id))
        }
        Verdict::Contended(contention) => waits_for(contention),
        Verdict::Rejected(error) => Outcome::Dead(Death { reason: "rejected_by_database", error }),
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
    Outcome::Dead(Death { reason: ID_TAKEN, error })
}
