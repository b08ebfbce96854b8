//! What a lane does with a batch of orders and events: decode, lock, write, give back, unlock. [`Handler::handle`] is the entry, and
//! `OrderHandler::handle_batch` has the steps in this order.

mod earlier;
mod events;
mod limited_log;
mod predict;

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Instant,
};

use tidegate_stream::{Cause, Death, Entry, Handler, Outage, Outcome, Stage, StreamInspector};

use crate::{
    batch_trace::{BatchTrace, BatchTracer},
    gate::{Gate, GateError, Release, ReleaseReply, UserAfter},
    ledger::{Contention, Incoming, IncomingEvent, Ledger, Refusal, Verdict},
    order::{OrderId, UserId, VoucherId},
    order_counters::{OrderCounters, OrderCounts},
    user_lock::{Locked, UserLocks},
    wire::{FieldNames, Message},
};
use earlier::EarlierEntries;
use limited_log::LimitedLog;
pub use predict::Predicted;

/// Turns stream entries into orders in MySQL, and moves these by their events.
#[derive(Clone, Debug)]
pub struct OrderHandler {
    gate: Gate,
    locks: UserLocks,
    ledger: Ledger,
    order_counters: Arc<OrderCounters>,
    limited_log: Arc<LimitedLog>,
    earlier: Arc<EarlierEntries>,
    batch_tracer: Option<Arc<dyn BatchTracer>>,
}

/// An order or an event, and the place in its batch that its outcome belongs to.
struct Placed<T> {
    at: usize,
    incoming: T,
}

/// What user and voucher have in common, whether something is an order or happened to one.
trait Concerns {
    fn user(&self) -> UserId;
    fn voucher(&self) -> VoucherId;
}

impl Concerns for Incoming {
    fn user(&self) -> UserId {
        self.order.user
    }

    fn voucher(&self) -> VoucherId {
        self.order.voucher
    }
}

impl Concerns for IncomingEvent {
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
        let earlier = Arc::new(EarlierEntries::new(inspector, gate.fields().clone()));
        Self { gate, locks, ledger, order_counters, limited_log: Arc::default(), earlier, batch_tracer: None }
    }

    /// Gives `batch_tracer` a trace of every batch that it wants.
    #[must_use]
    pub fn traced_by(self, batch_tracer: Arc<dyn BatchTracer>) -> Self {
        Self { batch_tracer: Some(batch_tracer), ..self }
    }
}

impl Handler for OrderHandler {
    async fn handle(&self, batch: &[Entry]) -> Result<Vec<Outcome>, Outage> {
        let Some(batch_tracer) = self.batch_tracer.as_ref().filter(|batch_tracer| batch_tracer.wants(batch))
        else {
            return self.handle_batch(batch, None).await;
        };
        let mut batch_trace = BatchTrace::of(batch.len());
        let outcomes = self.handle_batch(batch, Some(&mut batch_trace)).await;
        batch_tracer.take(batch_trace);
        outcomes
    }
}

impl OrderHandler {
    /// The steps of a batch. Answers with one outcome an entry.
    async fn handle_batch(
        &self,
        batch: &[Entry],
        batch_trace: Option<&mut BatchTrace>,
    ) -> Result<Vec<Outcome>, Outage> {
        let (decoded, outcomes) = decode(self.gate.fields(), batch);
        let has_events = !decoded.events.is_empty();
        let outcomes = self.handle_decoded(batch, decoded, outcomes, batch_trace).await?;
        if has_events {
            self.earlier.settled(batch, &outcomes);
        }
        Ok(outcomes)
    }

    async fn handle_decoded(
        &self,
        batch: &[Entry],
        Decoded { orders, events }: Decoded,
        mut outcomes: Vec<Outcome>,
        mut batch_trace: Option<&mut BatchTrace>,
    ) -> Result<Vec<Outcome>, Outage> {
        let (orders, events) = self.set_later_aside(batch, orders, events, &mut outcomes).await?;
        let in_batch: Vec<(usize, OrderId)> = match events.is_empty() {
            true => Vec::new(),
            false => orders.iter().map(|placed| (placed.at, placed.incoming.order.id)).collect(),
        };
        let held = self.held_vouchers(&orders, &events).await?;
        let orders = self.set_held_vouchers_aside(&held, orders, &mut outcomes);
        let events = self.set_held_vouchers_aside(&held, events, &mut outcomes);
        if orders.is_empty() && events.is_empty() {
            return Ok(outcomes);
        }
        let locked = self.lock(&orders, &events, batch_trace.as_deref_mut()).await?;
        let orders = self.set_locked_users_aside(&locked, orders, &mut outcomes);
        let events = self.set_locked_users_aside(&locked, events, &mut outcomes);
        // On the heap, as are the transactions below it: nested by value, these futures overflow a worker thread's stack.
        let work = Box::pin(async {
            self.write_and_give_back(orders, &mut outcomes, batch_trace).await?;
            let waiting = waiting(&in_batch, &outcomes);
            self.record_and_give_back(events, &waiting, &mut outcomes).await
        });
        let worked = self.locks.hold(&locked, work).await;
        self.locks.unlock(locked).await;
        worked.map(|()| outcomes)
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
        if !held.is_empty() {
            let waiting: Vec<Placed<T>> =
                placed.extract_if(.., |placed| held.contains(&placed.incoming.voucher())).collect();
            self.order_counters.contended(waiting.len());
            for Placed { at, incoming } in waiting {
                outcomes[at] = waits_for(Contention::Voucher(incoming.voucher()));
            }
        }
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
        placed: Vec<Placed<T>>,
        outcomes: &mut [Outcome],
    ) -> Vec<Placed<T>> {
        let (waiting, free): (Vec<_>, Vec<_>) =
            placed.into_iter().partition(|placed| locked.is_refused(placed.incoming.user()));
        self.order_counters.lock_refused(waiting.len());
        for Placed { at, incoming } in waiting {
            outcomes[at] = set_aside("user_lock", incoming.user().get());
        }
        free
    }

    /// Writes orders, and gives back what Redis holds for those that hold nothing in MySQL.
    async fn write_and_give_back(
        &self,
        orders: Vec<Placed<Incoming>>,
        outcomes: &mut [Outcome],
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
        self.order_counters.written(&verdicts, stage.time());
        let given_back = self.give_back(&incoming, &verdicts).await?;
        let mut refused = OrderCounts::default();
        for (((at, incoming), verdict), given_back) in
            places.into_iter().zip(&incoming).zip(verdicts).zip(given_back)
        {
            outcomes[at] = given_back.unwrap_or_else(|| {
                refused.count_refusal(&verdict);
                outcome(incoming, verdict)
            });
        }
        self.order_counters.add(refused);
        Ok(())
    }

    /// Gives back what Redis holds for orders that were refused, or ended by an event before they came, once per order id and
    /// before they are acknowledged. Answers with an outcome for each order that could not be given back: that concerns no
    /// other order.
    async fn give_back(
        &self,
        incoming: &[Incoming],
        verdicts: &[Verdict],
    ) -> Result<Vec<Option<Outcome>>, Outage> {
        let ended = self.ended_by_events(incoming, verdicts).await?;
        let mut places = Vec::new();
        let mut releases = Vec::new();
        for (at, (incoming, verdict)) in incoming.iter().zip(verdicts).enumerate() {
            match (verdict, ended.get(&incoming.order.id)) {
                (Verdict::Refused(refusal), _) => {
                    places.push((at, Some(*refusal)));
                    releases.push(release(&incoming.order, *refusal));
                }
                (Verdict::Cancelled, Some(user_after)) => {
                    places.push((at, None));
                    releases.push(release_ended(&incoming.order, *user_after));
                }
                _ => {}
            }
        }
        let mut outcomes = vec![None; incoming.len()];
        let mut withheld = 0;
        let replies = self.gate.release_all(&releases).await;
        for ((at, refusal), reply) in places.into_iter().zip(replies) {
            match reply {
                Ok(ReleaseReply::GivenBackBefore) => {}
                Ok(_) => {
                    if let Some(refusal) = refusal {
                        self.limited_log.refusal(&incoming[at], refusal);
                    }
                }
                Err(GateError::Unreachable(error)) => return Err(error.into()),
                Err(error @ GateError::IdTaken { .. }) => outcomes[at] = Some(id_taken(error.to_string())),
                Err(error) => {
                    withheld += 1;
                    log_withheld(&incoming[at], &error, withheld);
                    outcomes[at] = Some(set_aside("release", incoming[at].order.voucher.get()));
                }
            }
        }
        Ok(outcomes)
    }
}

/// The orders of a batch that are to be tried again.
fn waiting(in_batch: &[(usize, OrderId)], outcomes: &[Outcome]) -> HashSet<OrderId> {
    let is_waiting = |(at, _): &&(usize, OrderId)| matches!(outcomes[*at], Outcome::SetAside(_));
    in_batch.iter().filter(is_waiting).map(|(_, order)| *order).collect()
}

/// An error for the first of a batch only: a stock key of the wrong type concerns every order of its voucher.
fn log_withheld(Incoming { order, entry }: &Incoming, error: &GateError, nth: usize) {
    if nth == 1 {
        tracing::error!(
            order = %order.id, voucher = %order.voucher, %entry, %error,
            "a refused order cannot be given back: it stays pending, as do others of this batch if need be"
        );
    } else {
        tracing::debug!(order = %order.id, %error, "cannot be given back either");
    }
}

/// Reads the orders and events of a batch. An entry that is neither is dead; for the others, the outcome is still to be
/// decided.
fn decode(fields: &FieldNames, batch: &[Entry]) -> (Decoded, Vec<Outcome>) {
    let mut decoded = Decoded { orders: Vec::with_capacity(batch.len()), events: Vec::new() };
    let mut outcomes = vec![set_aside("undecided", 0); batch.len()];
    for (at, entry) in batch.iter().enumerate() {
        match fields.decode_message(entry) {
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
        Refusal::UserHasOrder => (Some(order.quantity), UserAfter::StaysBuyer),
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
    }
}

fn set_aside(kind: &'static str, key: i64) -> Outcome {
    Outcome::SetAside(Cause { kind, key: key.unsigned_abs() })
}

fn id_taken(error: String) -> Outcome {
    Outcome::Dead(Death { reason: "id_taken", error })
}
