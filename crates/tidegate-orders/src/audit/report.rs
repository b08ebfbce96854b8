//! What an audit found, counted, and whether it holds.

use std::fmt::Display;

use serde::Serialize;

use crate::VoucherId;

/// How many offending ids are listed.
const LISTED: usize = 20;

/// What an audit found.
#[derive(Clone, Debug, Serialize)]
pub struct AuditReport {
    /// One for each voucher that either side names, ascending.
    pub vouchers: Vec<VoucherAudit>,
    /// Entries of the stream that are no orders, and so belong to no voucher.
    pub unreadable: Unreadable,
}

impl AuditReport {
    /// Everything that is wrong, a sentence each; it holds when there is nothing.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let mut failures: Vec<String> = self.vouchers.iter().flat_map(VoucherAudit::failures).collect();
        let Offenders { total, .. } = self.unreadable.lost;
        if total > 0 {
            let what = either(total, "entry was acknowledged and is", "entries were acknowledged and are");
            failures
                .push(format!("{total} unreadable {what} not in the dead stream: {}", self.unreadable.lost));
        }
        failures
    }
}

/// Ids that should not be: how many, and the first 20 of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Offenders {
    /// How many.
    pub total: u64,
    /// The first of them.
    pub first: Vec<String>,
}

impl Offenders {
    pub(super) fn add(&mut self, id: impl Display) {
        self.total += 1;
        if self.first.len() < LISTED {
            self.first.push(id.to_string());
        }
    }
}

impl Display for Offenders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.first.join(", "))?;
        match self.total.saturating_sub(self.first.len() as u64) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Entries without a readable order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// All of them.
    pub total: u64,
    /// Buried, as they should be.
    pub dead: u64,
    /// Not delivered or not settled yet.
    pub in_flight: u64,
    /// Neither: acknowledged and gone.
    pub lost: Offenders,
}

/// One voucher. `admitted = written + released + dead + in_flight` when nothing is lost or mismatched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VoucherAudit {
    /// The voucher.
    pub voucher: VoucherId,
    /// Order ids that Redis admitted: in the journal, the stream or the dead stream.
    pub admitted: u64,
    /// Admitted, and a row in MySQL, live, or cancelled since and not given back.
    pub written: u64,
    /// Admitted, and given back; cancelled in MySQL, or never written there.
    pub released: u64,
    /// Admitted, and buried.
    pub dead: u64,
    /// Of these, the ones that are cancelled in MySQL and not given back: `tidegate dead cancel` was killed between the two.
    pub half_cancelled: Offenders,
    /// Admitted, and not delivered or not settled yet.
    pub in_flight: u64,
    /// Admitted, and nowhere.
    pub lost: Offenders,
    /// Admitted, settled, and the row with their id is of another user, voucher or quantity.
    pub mismatched: Offenders,
    /// Given back although they have a live row: their units were sold twice.
    pub doubled_back: Offenders,
    /// Slots with more than one live order, as `user/slot`; possible only without the unique key.
    pub shared_slots: Offenders,
    /// Rows in MySQL that are neither cancelled nor refunded.
    pub live_orders: u64,
    /// Units in them.
    pub live_units: i64,
    /// Rows in MySQL that are cancelled or refunded.
    pub cancelled_orders: u64,
    /// Rows in MySQL that Redis does not know: older than its data, or of another producer.
    pub unknown_orders: u64,
    /// Units left by MySQL; `None` when it does not know the voucher.
    pub stock: Option<i64>,
    /// Units that were loaded; `None` for vouchers that were taken over.
    pub initial_stock: Option<i64>,
    /// Units left by Redis.
    pub redis_stock: Option<i64>,
    /// Units of the orders in flight.
    pub in_flight_units: i64,
    /// Units of the buried orders, which Redis holds until they are written or given back.
    pub dead_units: i64,
}

impl VoucherAudit {
    pub(super) fn new(voucher: VoucherId) -> Self {
        Self {
            voucher,
            admitted: 0,
            written: 0,
            released: 0,
            dead: 0,
            half_cancelled: Offenders::default(),
            in_flight: 0,
            lost: Offenders::default(),
            mismatched: Offenders::default(),
            doubled_back: Offenders::default(),
            shared_slots: Offenders::default(),
            live_orders: 0,
            live_units: 0,
            cancelled_orders: 0,
            unknown_orders: 0,
            stock: None,
            initial_stock: None,
            redis_stock: None,
            in_flight_units: 0,
            dead_units: 0,
        }
    }

    /// Units that Redis offers beyond what MySQL will have when everything in flight is written and everything
    /// dead is requeued; negative when Redis offers fewer. Not a failure: the ledger refuses what is too much.
    #[must_use]
    pub fn redis_surplus(&self) -> Option<i64> {
        Some(self.redis_stock? - (self.stock? - self.in_flight_units - self.dead_units))
    }

    /// Everything that is wrong with this voucher, a sentence each.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let offences = [
            (&self.lost, "admitted order is lost", "admitted orders are lost"),
            (
                &self.mismatched,
                "order differs from what was admitted under its id",
                "orders differ from what was admitted under their ids",
            ),
            (
                &self.doubled_back,
                "live order was given back to Redis as well",
                "live orders were given back to Redis as well",
            ),
            (
                &self.shared_slots,
                "slot of a user (user/slot) has more than one live order",
                "slots of a user (user/slot) have more than one live order",
            ),
        ];
        let offences = offences.into_iter().filter(|(offenders, ..)| offenders.total > 0);
        let mut failures: Vec<String> = offences
            .map(|(offenders, one, many)| {
                let what = either(offenders.total, one, many);
                format!("voucher {}: {} {what}: {offenders}", self.voucher, offenders.total)
            })
            .collect();
        failures.extend(
            self.stock_failures().into_iter().map(|what| format!("voucher {}: {what}", self.voucher)),
        );
        failures
    }

    fn stock_failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        let Some(stock) = self.stock else { return failures };
        if stock < 0 {
            failures.push(format!("the stock in MySQL is {stock}"));
        }
        let Some(initial) = self.initial_stock else { return failures };
        if self.live_units > initial {
            failures.push(format!("oversold: {} of {initial} units are in live orders", self.live_units));
        }
        if initial - self.live_units != stock {
            failures.push(format!(
                "the stock in MySQL is {stock}, but {initial} loaded - {} in live orders = {}",
                self.live_units,
                initial - self.live_units
            ));
        }
        failures
    }
}

/// The words for one, or for any other number.
fn either(count: u64, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}
