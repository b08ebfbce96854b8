//! What a lane does with a batch of orders: decode, lock, write, give back, unlock.

mod foresee;
mod refusals;

use std::{sync::Arc, time::Instant};

use tidegate_stream::{Cause, Death, Entry, Handler, Outage, Outcome, Stage};

use crate::{
    account::{Account, Accountant},
    gate::{Gate, GateError, Release, ReleaseReply, UserAfter},
    ledger::{Contention, Incoming, Ledger, Refusal, Verdict},
    tally::{Tally, TallyCounts},
    user_lock::{Locked, UserLocks},
    wire::FieldNames,
};
pub use foresee::Foreseen;
use refusals::RefusalLog;

/// Turns stream entries into orders in MySQL.
#[derive(Clone, Debug)]
pub struct OrderHandler {
    gate: Gate,
    locks: UserLocks,
    ledger: Ledger,
    tally: Arc<Tally>,
    refusals: Arc<RefusalLog>,
    accountant: Option<Arc<dyn Accountant>>,
}

/// An order on its way through a batch, with the place in the batch that its outcome belongs to.
struct Placed {
    at: usize,
    incoming: Incoming,
}

impl OrderHandler {
    /// A handler that locks with `locks`, writes to `ledger` and gives refused units back through `gate`.
    #[must_use]
    pub fn new(gate: Gate, locks: UserLocks, ledger: Ledger, tally: Arc<Tally>) -> Self {
        Self { gate, locks, ledger, tally, refusals: Arc::default(), accountant: None }
    }

    /// Gives `accountant` an account of every batch that it wants one of.
    #[must_use]
    pub fn accounted_to(self, accountant: Arc<dyn Accountant>) -> Self {
        Self { accountant: Some(accountant), ..self }
    }

    async fn work_off(
        &self,
        batch: &[Entry],
        mut account: Option<&mut Account>,
    ) -> Result<Vec<Outcome>, Outage> {
        let (orders, mut outcomes) = decode(self.gate.fields(), batch);
        let orders = self.without_held_vouchers(orders, &mut outcomes).await?;
        if !orders.is_empty() {
            let began = Instant::now();
            let locked = self.locks.lock(orders.iter().map(|placed| placed.incoming.order.user)).await;
            let stage = Stage::since(began);
            if let Some(account) = &mut account {
                account.locking = Some(stage);
            }
            let locked = locked?;
            self.tally.locked_in(stage.time());
            let written = self.locks.hold(&locked, self.write(&locked, orders, &mut outcomes, account)).await;
            self.locks.unlock(locked).await;
            written?;
        }
        Ok(outcomes)
    }

    /// Leaves out the orders whose vouchers' rows somebody else holds: they cost no lock and no wait.
    async fn without_held_vouchers(
        &self,
        mut orders: Vec<Placed>,
        outcomes: &mut [Outcome],
    ) -> Result<Vec<Placed>, Outage> {
        let vouchers = orders.iter().map(|placed| placed.incoming.order.voucher);
        let held = self.ledger.held_vouchers(vouchers).await?;
        if !held.is_empty() {
            let waiting: Vec<Placed> =
                orders.extract_if(.., |placed| held.contains(&placed.incoming.order.voucher)).collect();
            self.tally.contended(waiting.len());
            for Placed { at, incoming } in waiting {
                outcomes[at] = waits_for(Contention::Voucher(incoming.order.voucher));
            }
        }
        Ok(orders)
    }

    /// Writes the orders whose users are locked; the others stay pending.
    async fn write(
        &self,
        locked: &Locked,
        orders: Vec<Placed>,
        outcomes: &mut [Outcome],
        account: Option<&mut Account>,
    ) -> Result<(), Outage> {
        let (waiting, orders): (Vec<_>, Vec<_>) =
            orders.into_iter().partition(|placed| locked.is_refused(placed.incoming.order.user));
        self.tally.lock_refused(waiting.len());
        for Placed { at, incoming } in waiting {
            outcomes[at] = set_aside("user_lock", incoming.order.user.get());
        }
        let (places, incoming): (Vec<usize>, Vec<Incoming>) =
            orders.into_iter().map(|placed| (placed.at, placed.incoming)).unzip();
        let began = Instant::now();
        let verdicts = self.ledger.record(&incoming).await;
        let stage = Stage::since(began);
        if let Some(account) = account {
            account.writing = Some(stage);
            account.wrote(&places, verdicts.as_deref().unwrap_or_default());
        }
        let verdicts = verdicts?;
        self.tally.written(&verdicts, stage.time());
        let given_back = self.give_back(&incoming, &verdicts).await?;
        let mut refused = TallyCounts::default();
        for (((at, incoming), verdict), given_back) in
            places.into_iter().zip(&incoming).zip(verdicts).zip(given_back)
        {
            outcomes[at] = given_back.unwrap_or_else(|| {
                refused.count_refusal(&verdict);
                outcome(incoming, verdict)
            });
        }
        self.tally.add(refused);
        Ok(())
    }

    /// Gives back what Redis holds for refused orders, once per order id, before they are acknowledged. Answers
    /// with an outcome for each order that could not be given back: that concerns no other order.
    async fn give_back(
        &self,
        incoming: &[Incoming],
        verdicts: &[Verdict],
    ) -> Result<Vec<Option<Outcome>>, Outage> {
        let mut refused = Vec::new();
        let mut releases = Vec::new();
        for (at, (incoming, verdict)) in incoming.iter().zip(verdicts).enumerate() {
            if let Verdict::Refused(refusal) = verdict {
                refused.push((at, *refusal));
                releases.push(release(&incoming.order, *refusal));
            }
        }
        let mut outcomes = vec![None; incoming.len()];
        let mut withheld = 0;
        let replies = self.gate.release_all(&releases).await;
        for ((at, refusal), reply) in refused.into_iter().zip(replies) {
            match reply {
                Ok(ReleaseReply::GivenBackBefore) => {}
                Ok(_) => self.refusals.tell(&incoming[at], refusal),
                Err(GateError::Unreachable(error)) => return Err(error.into()),
                Err(error @ GateError::IdTaken { .. }) => outcomes[at] = Some(id_taken(error.to_string())),
                Err(error) => {
                    withheld += 1;
                    tell_withheld(&incoming[at], &error, withheld);
                    outcomes[at] = Some(set_aside("release", incoming[at].order.voucher.get()));
                }
            }
        }
        Ok(outcomes)
    }
}

/// Loud for the first of a batch only: a stock key of the wrong type concerns every order of its voucher.
fn tell_withheld(Incoming { order, entry }: &Incoming, error: &GateError, nth: usize) {
    if nth == 1 {
        tracing::error!(
            order = %order.id, voucher = %order.voucher, %entry, %error,
            "a refused order cannot be given back: it stays pending, as do others of this batch if need be"
        );
    } else {
        tracing::debug!(order = %order.id, %error, "cannot be given back either");
    }
}

impl Handler for OrderHandler {
    async fn handle(&self, batch: &[Entry]) -> Result<Vec<Outcome>, Outage> {
        let Some(accountant) = self.accountant.as_ref().filter(|accountant| accountant.wants(batch)) else {
            return self.work_off(batch, None).await;
        };
        let mut account = Account::of(batch.len());
        let outcomes = self.work_off(batch, Some(&mut account)).await;
        accountant.take(account);
        outcomes
    }
}

/// Reads the orders of a batch. An entry that is none is dead; all others wait for their outcome.
fn decode(fields: &FieldNames, batch: &[Entry]) -> (Vec<Placed>, Vec<Outcome>) {
    let mut orders = Vec::with_capacity(batch.len());
    let mut outcomes = vec![set_aside("undecided", 0); batch.len()];
    for (at, entry) in batch.iter().enumerate() {
        match fields.decode(entry) {
            Ok(order) => orders.push(Placed { at, incoming: Incoming { order, entry: entry.id } }),
            Err(error) => {
                outcomes[at] = Outcome::Dead(Death { reason: error.reason(), error: error.to_string() });
            }
        }
    }
    (orders, outcomes)
}

/// What is given back for a refused order. Out of stock: the user may try again, but the stock in Redis is not
/// raised, for MySQL says that there is none. User has an order: its unit is free, and the user stays barred.
fn release(order: &crate::Order, refusal: Refusal) -> Release {
    let (units, user_after) = match refusal {
        Refusal::OutOfStock => (None, UserAfter::Freed),
        Refusal::UserHasOrder => (Some(order.quantity), UserAfter::StaysBuyer),
    };
    let by = format!("worker:{}", refusal.word()).into();
    Release { order: order.id, user: order.user, voucher: order.voucher, units, user_after, by }
}

fn outcome(incoming: &Incoming, verdict: Verdict) -> Outcome {
    let order = &incoming.order;
    match verdict {
        Verdict::Created | Verdict::AlreadyThere | Verdict::Refused(_) => Outcome::Done,
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
