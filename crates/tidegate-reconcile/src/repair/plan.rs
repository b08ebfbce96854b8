//! The plan of a repair, made from the differences of a comparison. Pure.

use std::collections::BTreeMap;

use serde::Serialize;
use tidegate_compare::{Difference, RepairMethod, reconciled::DifferenceKind, text::counted};
use tidegate_operations::change::{Next, Plan};
use tidegate_orders::{
    JournalNote, OrderId, Quantity, UserId, VoucherId,
    scripts::{MOST_REPAIRED, OrderRepair, RepairAction, RepairGuard, UserAfter, VoucherRepair},
};

use crate::stock::{StockMove, StockTotals};

/// The largest number of differences of a kind that are listed.
const MOST_NAMED: usize = 20;

/// The differences between Redis and MySQL that a comparison found for a voucher, with the values that a repair needs.
#[derive(Clone, Debug)]
pub struct VoucherFindings {
    /// The voucher that has differences between Redis and MySQL.
    pub voucher: VoucherId,
    /// The values in Redis and MySQL before the comparison began. A repair changes the voucher only if these values are
    /// still the same.
    pub guard: RepairGuard,
    /// The sums of the voucher's units in both stores. None: the sum of the journal (the Redis hash of orders) is
    /// unknown, or MySQL does not know the voucher.
    pub totals: Option<StockTotals>,
    /// Whether the comparison skipped old orders, so that it could not calculate the right stock.
    pub is_partial: bool,
    /// The differences of the voucher between Redis and MySQL. No order of these differences has an unfinished entry,
    /// except for events of lost orders.
    pub differences: Vec<Difference>,
}

/// The plan of a repair, for all vouchers with differences.
#[derive(Clone, Debug, Serialize)]
pub struct RepairPlan {
    /// The id of the repair. The notes that the repair writes to journals (Redis hashes of orders) name
    /// `repair:<id>.<part>`.
    pub id: String,
    /// The plans of the vouchers with differences.
    pub vouchers: Vec<VoucherRepairPlan>,
    /// The number of differences that exceed the limit of one repair. The next repair handles them.
    pub beyond: u64,
}

/// The plan of a repair for one voucher.
#[derive(Clone, Debug, Serialize)]
pub struct VoucherRepairPlan {
    /// The voucher that the repair changes.
    pub voucher: VoucherId,
    /// The numbers of planned repairs of the voucher, by kind.
    pub repaired: PlanCounts,
    /// The units that the repair adds to the stock in Redis, including the units of repaired orders. Negative: the
    /// repair deducts units.
    pub stock_moves: i64,
    /// The differences of the voucher that the repair does not change, by kind and reason.
    pub left: Vec<Unrepaired>,
    #[serde(skip)]
    pub(super) guard: RepairGuard,
    #[serde(skip)]
    pub(super) chunks: Vec<Chunk>,
    #[serde(skip)]
    pub(super) again: Vec<Rerun>,
}

/// The numbers of planned repairs of a voucher, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PlanCounts {
    /// The number of lost orders whose entries the repair will write to MySQL again.
    pub run_again: u64,
    /// The number of orders whose lost events the repair will record in MySQL again.
    pub events_again: u64,
    /// The number of orders that will get a cancelled row in MySQL.
    pub cancelled_rows: u64,
    /// The number of orders that the repair will mark as admitted in Redis again.
    pub admitted: u64,
    /// The number of orders that the repair will release in Redis, which returns their units to the stock.
    pub released: u64,
    /// The number of users that the repair will add to the buyers in Redis.
    pub barred: u64,
    /// The number of users that the repair will remove from the buyers in Redis, so that they can order again.
    pub unbarred: u64,
    /// The number of limit counters, and of fields with the orders of a user, that the repair will set to the right
    /// values.
    pub counters: u64,
    /// The units that the repair adds to the journal's sum of loaded units, so that the sum matches MySQL. Negative:
    /// the repair deducts units.
    pub loaded: i64,
    /// The stock in Redis minus the sum of the voucher's journal (the Redis hash of orders). The repair deducts this
    /// number from the stock.
    pub drift: i64,
}

/// The differences of one kind that a repair does not change, all for the same reason.
#[derive(Clone, Debug, Serialize)]
pub struct Unrepaired {
    /// The kind of the differences that are not repaired.
    pub kind: DifferenceKind,
    /// The reason why the differences of this kind are not repaired.
    pub why: UnrepairedReason,
    /// The number of differences of this kind that are not repaired.
    pub total: u64,
    /// The units of all differences of this kind that are not repaired.
    pub units: i64,
    /// The first differences of this kind that are not repaired.
    pub first: Vec<Difference>,
}

/// The reason why a repair does not change a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnrepairedReason {
    /// No program may repair the difference: an operator has to decide.
    ByHand,
    /// Redis has no complete journal, so neither the journal nor the stock can be repaired.
    NoCompleteJournal,
    /// A change of the stock is still in progress.
    ChangeIsOpen,
    /// Redis has lost the sale.
    Forgotten,
    /// The journal changed too fast to be added up.
    NotAddedUp,
    /// The user or the units of the order cannot be read.
    Unreadable,
    /// The comparison skipped orders that were admitted before a given time.
    NotAllCompared,
}

/// A part of the repair that Redis executes in one step.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunk {
    pub(super) orders: Vec<OrderRepair>,
    pub(super) stock: StockMove,
}

/// An order whose entries are run again.
#[derive(Clone, Debug)]
pub(super) struct Rerun {
    pub(super) order: OrderId,
    pub(super) user: UserId,
    pub(super) units: Quantity,
    /// The time of the order's admission, in Unix milliseconds. None: the journal does not have it, so the whole
    /// stream is searched.
    pub(super) admitted_ms: Option<i64>,
    pub(super) what: Again,
}

/// The entries of an order that are run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// All entries of the order. If the stream no longer holds its own entry, it gets a new one.
    Order,
    /// The entries that the stream holds of the order.
    Entries,
    /// The events of the order, which itself has its row.
    Events,
    /// The events of the order, which gets a cancelled row first because Redis released it.
    Released,
}

impl Again {
    /// Whether orders are written, which take their users' places.
    pub(super) const fn writes_orders(self) -> bool {
        matches!(self, Self::Order | Self::Entries)
    }
}

impl UnrepairedReason {
    /// The command that helps to repair the difference. None: no command helps.
    #[must_use]
    pub fn command(self, voucher: VoucherId) -> Option<String> {
        match self {
            Self::NoCompleteJournal | Self::Forgotten => {
                Some(format!("tidegate rebuild --voucher {voucher}"))
            }
            Self::ChangeIsOpen => Some(format!("tidegate voucher show --voucher {voucher}")),
            Self::NotAddedUp => Some(format!("tidegate reconcile --voucher {voucher}")),
            Self::NotAllCompared => Some(format!("tidegate reconcile --voucher {voucher} --repair")),
            Self::ByHand | Self::Unreadable => None,
        }
    }
}

impl RepairPlan {
    /// Creates the plan to repair the given findings. `beyond` is the number of differences that exceed the limit of
    /// one repair.
    #[must_use]
    pub fn new(findings: Vec<VoucherFindings>, beyond: u64) -> Self {
        let vouchers = findings.into_iter().map(VoucherRepairPlan::new);
        let is_something = |plan: &VoucherRepairPlan| !plan.left.is_empty() || plan.has_work();
        Self { id: VoucherRepair::new_id(), vouchers: vouchers.filter(is_something).collect(), beyond }
    }
}

impl Plan for RepairPlan {
    fn next(&self) -> Next {
        let vouchers = self.vouchers.iter().filter(|voucher| voucher.has_work()).count();
        match (vouchers, self.vouchers.is_empty()) {
            (0, true) => Next::NothingToDo,
            (0, false) => Next::Refused,
            _ => Next::Ask(format!("Repair {}?", counted(vouchers as u64, "voucher"))),
        }
    }
}

impl VoucherFindings {
    /// The correction of the stock in Redis, or the reason why there is none. The same reason also prevents the
    /// release of orders.
    fn stock_correction(&self) -> Result<StockMove, UnrepairedReason> {
        if !self.guard.is_complete() {
            return Err(UnrepairedReason::NoCompleteJournal);
        }
        if self.is_partial {
            return Err(UnrepairedReason::NotAllCompared);
        }
        let totals = self.totals.ok_or(UnrepairedReason::NotAddedUp)?;
        if totals.is_change_open || self.guard.is_change_open() {
            return Err(UnrepairedReason::ChangeIsOpen);
        }
        totals.stock_move().ok_or(UnrepairedReason::NotAddedUp)
    }
}

impl VoucherRepairPlan {
    fn has_work(&self) -> bool {
        !self.chunks.is_empty() || !self.again.is_empty() || self.repaired.counters > 0
    }

    fn new(findings: VoucherFindings) -> Self {
        let correction = findings.stock_correction();
        let VoucherFindings { voucher, guard, differences, .. } = findings;
        let mut sorted = Sorted::default();
        for difference in differences {
            sorted.add(difference, &guard, correction.as_ref().err().copied());
        }
        let stock = correction.unwrap_or_default();
        let Sorted { lowering, users, raising, again, mut repaired, left, .. } = sorted;
        (repaired.loaded, repaired.drift) = (stock.loaded, stock.drift);
        let orders: Vec<OrderRepair> = lowering.into_iter().chain(users).chain(raising).collect();
        let moved: i64 = orders.iter().filter_map(OrderRepair::change).sum();
        let left = left.into_values().collect();
        let (stock_moves, chunks) = (moved + stock.units(), chunks(orders, stock));
        Self { voucher, repaired, stock_moves, left, guard, chunks, again }
    }
}

/// Divides the repairs into chunks. Those that lower the stock come first and those that raise it last, so that there
/// are never too many units on sale.
fn chunks(orders: Vec<OrderRepair>, stock: StockMove) -> Vec<Chunk> {
    let (mut orders, mut chunks) = (orders.into_iter().peekable(), Vec::new());
    while orders.peek().is_some() {
        let orders = orders.by_ref().take(MOST_REPAIRED).collect();
        chunks.push(Chunk { orders, stock: StockMove::default() });
    }
    if stock.is_nothing() {
        return chunks;
    }
    if chunks.is_empty() {
        chunks.push(Chunk::default());
    }
    let last = chunks.len() - 1;
    if stock.units() <= 0 {
        chunks[0].stock = stock;
    } else if stock.drift > 0 {
        // This comes before the release of any order, because a service may have released its units already.
        chunks[last].stock.loaded = stock.loaded;
        chunks[0].stock.drift = stock.drift;
    } else {
        chunks[last].stock = stock;
    }
    chunks
}

/// The differences, sorted by their repair.
#[derive(Default)]
struct Sorted {
    lowering: Vec<OrderRepair>,
    users: Vec<OrderRepair>,
    raising: Vec<OrderRepair>,
    again: Vec<Rerun>,
    repaired: PlanCounts,
    left: BTreeMap<(DifferenceKind, UnrepairedReason), Unrepaired>,
}

impl Sorted {
    /// Adds a difference. `withheld` is the reason why the stock is not corrected; None: it is corrected.
    fn add(&mut self, difference: Difference, guard: &RepairGuard, withheld: Option<UnrepairedReason>) {
        // Differences that are no failure need no repair.
        if !difference.kind.is_failure() {
            return;
        }
        let added = match difference.repair {
            RepairMethod::RunAgain | RepairMethod::RecordEvents | RepairMethod::WriteCancelledRow => {
                self.run_again(&difference)
            }
            RepairMethod::ByHand => Err(UnrepairedReason::ByHand),
            RepairMethod::Rebuild => Err(UnrepairedReason::Forgotten),
            RepairMethod::SetCounter => {
                self.repaired.counters += 1;
                Ok(())
            }
            _ if !guard.is_complete() => Err(UnrepairedReason::NoCompleteJournal),
            // The correction of the stock is computed from the totals.
            RepairMethod::MoveStock => withheld.map_or(Ok(()), Err),
            // A service may have returned the units of such an order by itself. The correction of the stock takes
            // these units away again; without it, they would come back twice.
            RepairMethod::Release => withheld.map_or_else(|| self.repair(&difference), Err),
            RepairMethod::Admit | RepairMethod::Bar | RepairMethod::Unbar => self.repair(&difference),
        };
        if let Err(why) = added {
            self.leave(difference, why);
        }
    }

    fn repair(&mut self, difference: &Difference) -> Result<(), UnrepairedReason> {
        let user = difference.user.ok_or(UnrepairedReason::Unreadable)?;
        let action = match difference.repair {
            RepairMethod::Admit => RepairAction::Admit(quantity(difference)?),
            RepairMethod::Release => RepairAction::Release(UserAfter::Freed),
            RepairMethod::Bar => RepairAction::Bar,
            _ => RepairAction::Unbar,
        };
        let (order, found) = (difference.order, difference.note.clone());
        let repair = OrderRepair { order, found, user, action, limited: None };
        repair.change().ok_or(UnrepairedReason::Unreadable)?;
        let (orders, count) = match action {
            RepairAction::Admit(_) => (&mut self.lowering, &mut self.repaired.admitted),
            RepairAction::Release(_) => (&mut self.raising, &mut self.repaired.released),
            RepairAction::Bar => (&mut self.users, &mut self.repaired.barred),
            RepairAction::Unbar => (&mut self.users, &mut self.repaired.unbarred),
        };
        orders.push(repair);
        *count += 1;
        Ok(())
    }

    fn run_again(&mut self, difference: &Difference) -> Result<(), UnrepairedReason> {
        let note = difference.note.as_deref().and_then(|note| JournalNote::parse(note.as_bytes()));
        let released = note.as_ref().and_then(|note| note.admitted);
        // A note that a repair or a rebuild wrote does not have the time when the order entered the stream.
        let admitted_ms = match released {
            Some(released) => released.at_ms.filter(|_| released.from.is_some()),
            None => {
                note.filter(|note| note.from.is_some() && note.repaired.is_none()).and_then(|note| note.at_ms)
            }
        };
        let (what, count) = match (difference.repair, difference.kind) {
            (RepairMethod::WriteCancelledRow, _) => (Again::Released, &mut self.repaired.cancelled_rows),
            (RepairMethod::RecordEvents, _) => (Again::Events, &mut self.repaired.events_again),
            (_, DifferenceKind::LostEvent) => (Again::Entries, &mut self.repaired.events_again),
            _ => (Again::Order, &mut self.repaired.run_again),
        };
        let units = match what {
            Again::Order => quantity(difference)?,
            // The row belongs to an order that holds nothing. If an emptied Redis released the order, its units are
            // unknown.
            Again::Released => quantity(difference).unwrap_or(Quantity::ONE),
            // The order itself is not written when only its events are run.
            Again::Entries | Again::Events => Quantity::ONE,
        };
        self.again.push(Rerun {
            order: difference.order.ok_or(UnrepairedReason::Unreadable)?,
            user: difference.user.ok_or(UnrepairedReason::Unreadable)?,
            units,
            admitted_ms,
            what,
        });
        *count += 1;
        Ok(())
    }

    fn leave(&mut self, difference: Difference, why: UnrepairedReason) {
        let kind = difference.kind;
        let none = Unrepaired { kind, why, total: 0, units: 0, first: Vec::new() };
        let left = self.left.entry((kind, why)).or_insert(none);
        left.total += 1;
        left.units += difference.units;
        if left.first.len() < MOST_NAMED {
            left.first.push(difference);
        }
    }
}

fn quantity(difference: &Difference) -> Result<Quantity, UnrepairedReason> {
    Quantity::try_from(difference.units.saturating_abs()).map_err(|_| UnrepairedReason::Unreadable)
}
