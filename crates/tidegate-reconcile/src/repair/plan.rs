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

/// The findings of a comparison about a voucher.
#[derive(Clone, Debug)]
pub struct VoucherFindings {
    /// The voucher that has the differences.
    pub voucher: VoucherId,
    /// The state of both sides before the comparison began.
    pub guard: RepairGuard,
    /// The totals of the voucher. None: the sum of its journal is unknown, or MySQL does not know the voucher.
    pub totals: Option<StockTotals>,
    /// Whether only orders since some time were compared: then the right stock is unknown.
    pub is_partial: bool,
    /// The differences of the voucher. None of them may be in flight, except events of lost orders.
    pub differences: Vec<Difference>,
}

/// The plan of a repair.
#[derive(Clone, Debug, Serialize)]
pub struct RepairPlan {
    /// The id of this repair: its notes in journals have the name `repair:<id>.<part>`.
    pub id: String,
    /// The plans of the vouchers with differences.
    pub vouchers: Vec<VoucherRepairPlan>,
    /// The number of differences beyond those that one repair takes. The next repair finds them.
    pub beyond: u64,
}

/// The plan for one voucher.
#[derive(Clone, Debug, Serialize)]
pub struct VoucherRepairPlan {
    /// The voucher that is repaired.
    pub voucher: VoucherId,
    /// The counts of planned repairs.
    pub repaired: PlanCounts,
    /// The units by which the stock in Redis moves in all, including the repaired orders.
    pub stock_moves: i64,
    /// The differences that stay, by kind and reason.
    pub left: Vec<Unrepaired>,
    #[serde(skip)]
    pub(super) guard: RepairGuard,
    #[serde(skip)]
    pub(super) chunks: Vec<Chunk>,
    #[serde(skip)]
    pub(super) again: Vec<Rerun>,
}

/// The counts of a voucher's planned repairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PlanCounts {
    /// Orders that are run again.
    pub run_again: u64,
    /// Orders whose events are run again.
    pub events_again: u64,
    /// Orders that get a cancelled row.
    pub cancelled_rows: u64,
    /// Orders whose admission is restored in Redis.
    pub admitted: u64,
    /// Orders that are released in Redis.
    pub released: u64,
    /// Users that are counted as buyers again.
    pub barred: u64,
    /// Users that may order again.
    pub unbarred: u64,
    /// Limit counters and user slots that are set to the uses of orders.
    pub counters: u64,
    /// Units that the sale gets by the journal; below 0, it loses them.
    pub loaded: i64,
    /// Units by which the stock was above its journal; they are taken back.
    pub drift: i64,
}

/// The differences of a kind that stay for the same reason.
#[derive(Clone, Debug, Serialize)]
pub struct Unrepaired {
    /// The kind of the differences.
    pub kind: DifferenceKind,
    /// The reason why they stay.
    pub why: UnrepairedReason,
    /// The number of these differences.
    pub total: u64,
    /// The units of these differences.
    pub units: i64,
    /// The first of these differences.
    pub first: Vec<Difference>,
}

/// The reason why a difference is not repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnrepairedReason {
    /// A program must not decide it; an operator has to.
    ByHand,
    /// Redis holds no complete journal, so neither journal nor stock can be repaired.
    NoCompleteJournal,
    /// A change of the stock is still in progress.
    ChangeIsOpen,
    /// Redis has lost the sale.
    Forgotten,
    /// The journal changed too fast to be added up.
    NotAddedUp,
    /// The user or the units of the order cannot be read.
    Unreadable,
    /// Only orders since some time were compared.
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
    /// The command that helps to repair the difference, if there is one.
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
    /// Creates the plan for these findings. `beyond` is the number of further differences.
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
