//! A random sale: buyers place orders and services report events of them, in any sequence and repeatedly. Unpaid orders
//! of some vouchers expire.

use rand::{RngExt, rngs::StdRng};
use tidegate_orders::{Event, EventKind, scripts::AdmitReply};

use super::fleet::Fleet;

const STEPS: usize = 100;
const STOCK: i64 = 1_000;
/// The time limit for payment of every third voucher. Some orders are paid within it.
pub const PAY_WITHIN_S: u32 = 1;

/// A request for an order, and its reply.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub order: i64,
    pub user: i64,
    pub reply: AdmitReply,
}

/// A voucher and its requests.
pub struct Sale {
    pub seed: u64,
    pub voucher: i64,
    /// The ids of orders and users begin with a multiple of this number.
    ids: i64,
    /// Order and user of each request.
    orders: Vec<(i64, i64)>,
}

impl Sale {
    /// Puts a voucher on sale. Its orders have ids from `voucher * ids`.
    pub async fn open(fleet: &Fleet<'_>, (voucher, ids): (i64, i64), seed: u64) -> Self {
        fleet.load(voucher, STOCK, (voucher % 3 == 0).then_some(PAY_WITHIN_S)).await;
        Self::new((voucher, ids), seed)
    }

    /// A sale of a voucher that is on sale already.
    pub fn new((voucher, ids): (i64, i64), seed: u64) -> Self {
        Self { seed, voucher, ids, orders: Vec::new() }
    }

    pub async fn run(&mut self, fleet: &Fleet<'_>, rng: &mut StdRng) {
        for _ in 0..STEPS {
            match self.step(fleet, rng).await {
                Some(Attempt { order, user, reply, .. }) if !reply.is_admitted() => {
                    let is_second = order != user && reply == AdmitReply::UserHasOrder;
                    assert!(is_second, "order {order} of {user}: {reply:?}");
                }
                _ => {}
            }
        }
    }

    /// Places an order, or reports an event of one.
    pub async fn step(&mut self, fleet: &Fleet<'_>, rng: &mut StdRng) -> Option<Attempt> {
        match rng.random_range(0..100) {
            0..25 => {
                let id = self.next_id();
                return Some(self.admit(fleet, (id, id), rng.random_range(1..=3)).await);
            }
            // A user who ordered before is refused, unless that order has ended in both stores.
            25..31 => {
                let (_, user) = self.any(rng)?;
                return Some(self.admit(fleet, (self.next_id(), user), 1).await);
            }
            // An order is cancelled before it is placed.
            31..34 => {
                let id = self.next_id();
                self.append(fleet, rng, EventKind::Cancelled, (id, id)).await;
                let attempt = self.admit(fleet, (id, id), 2).await;
                if !attempt.reply.is_admitted() {
                    // The id belongs to this user since the cancellation: no other user may have it.
                    self.orders.push((id, id));
                }
                return Some(attempt);
            }
            // An event of an order that is never placed: a payment without an order, or a cancellation that stays
            // alone.
            34..37 => {
                let id = (self.voucher + 1) * self.ids - 1;
                let kind = any_kind(rng);
                self.append(fleet, rng, kind, (id, id)).await;
            }
            _ => {
                let order = self.any(rng)?;
                let kind = any_kind(rng);
                self.append(fleet, rng, kind, order).await;
            }
        }
        None
    }

    fn next_id(&self) -> i64 {
        self.voucher * self.ids + i64::try_from(self.orders.len()).expect("a small number")
    }

    fn any(&self, rng: &mut StdRng) -> Option<(i64, i64)> {
        (!self.orders.is_empty()).then(|| self.orders[rng.random_range(0..self.orders.len())])
    }

    async fn admit(&mut self, fleet: &Fleet<'_>, (order, user): (i64, i64), quantity: i64) -> Attempt {
        let reply = fleet.admit((order, user, self.voucher), quantity).await;
        if reply.is_admitted() {
            self.orders.push((order, user));
        }
        Attempt { order, user, reply }
    }

    /// Appends an event, once or twice.
    async fn append(&self, fleet: &Fleet<'_>, rng: &mut StdRng, kind: EventKind, (order, user): (i64, i64)) {
        let mut text = |chance: u32| {
            let is_there = rng.random_range(0..100) < chance;
            is_there.then(|| ["a", "b"][rng.random_range(0..2)].parse().expect("a text"))
        };
        let event = Event {
            kind,
            order: order.try_into().expect("an order id"),
            user: user.try_into().expect("a user id"),
            voucher: self.voucher.try_into().expect("a voucher id"),
            reference: text(70),
            payment: text(40).filter(|_| kind.is_refund()),
            reason: None,
        };
        for _ in 0..1 + usize::from(rng.random_range(0..8) == 0) {
            fleet.append(&event).await;
        }
    }
}

fn any_kind(rng: &mut StdRng) -> EventKind {
    EventKind::ALL[rng.random_range(0..EventKind::ALL.len())]
}
