//! What a repair would do about what a comparison found. Pure.

use std::collections::BTreeMap;

use serde::Serialize;
use tidegate_compare::{Difference, RepairMethod, reconciled::DifferenceKind, text::counted};
use tidegate_operations::change::{Next, Plan};
use tidegate_orders::{
    JournalNote, OrderId, Quantity, UserId, VoucherId,
    gate::{MOST_REPAIRED, OrderRepair, RepairAction, RepairGuard, UserAfter, VoucherRepair},
};

use crate::stock::{StockTotals, StockMove};

/// Differences of a kind that are named one by one, at most.
const MOST_NAMED: usize = 20;

/// What a comparison found of a voucher.
#[derive(Clone, Debug)]
pub struct VoucherFindings {
    /// The voucher.
    pub voucher: VoucherId,
    /// As it was before the comparison began, on either side.
    pub guard: RepairGuard,
    /// Its totals; None: the sum of its journal could not be told, or MySQL does not know the voucher.
    pub totals: Option<StockTotals>,
    /// Only orders since some moment were compared: what that says of the stock is not known.
    pub is_partial: bool,
    /// What is different. None of it may be in flight, but for events of lost orders.
    pub differences: Vec<Difference>,
}

/// What a repair would do.
#[derive(Clone, Debug, Serialize)]
pub struct RepairPlan {
    /// Names this repair: the notes that it makes say `repair:<id>.<part>`.
    pub id: String,
    /// One for each voucher that something is different about.
    pub vouchers: Vec<VoucherRepairPlan>,
    /// Differences that were found beyond those that one repair takes. The next repair finds them.
    pub beyond: u64,
}

/// What it would do about a voucher.
#[derive(Clone, Debug, Serialize)]
pub struct VoucherRepairPlan {
    /// The voucher.
    pub voucher: VoucherId,
    /// What would be repaired, counted.
    pub repaired: PlanCounts,
    /// Units by which the stock in Redis would move, orders and all.
    pub stock_moves: i64,
    /// What would be left, by kind and reason.
    pub left: Vec<Unrepaired>,
    #[serde(skip)]
    pub(super) guard: RepairGuard,
    #[serde(skip)]
    pub(super) chunks: Vec<Chunk>,
    #[serde(skip)]
    pub(super) again: Vec<Rerun>,
}

/// What would be repaired of a voucher.
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
    /// Users who are counted as buyers again.
    pub barred: u64,
    /// Users who may order again.
    pub unbarred: u64,
    /// Counters of limits, and slots of users, that are set to what orders hold.
    pub counters: u64,
    /// Units that the sale gets by the journal; below 0: loses.
    pub loaded: i64,
    /// Units by which the stock was above its journal, and which are taken back.
    pub drift: i64,
}

/// Differences of a kind that are left for one reason.
#[derive(Clone, Debug, Serialize)]
pub struct Unrepaired {
    /// Which kind.
    pub kind: DifferenceKind,
    /// Why they are left.
    pub why: Why,
    /// How many there are.
    pub total: u64,
    /// Their units.
    pub units: i64,
    /// The first of them.
    pub first: Vec<Difference>,
}

/// Why a difference is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// A program may not decide it.
    ByHand,
    /// Redis holds no complete journal, so neither journal nor stock are repaired.
    NoCompleteJournal,
    /// A change of the stock is not at its end.
    ChangeIsOpen,
    /// Redis has forgotten the sale.
    Forgotten,
    /// The journal moved too fast to be added up.
    NotAddedUp,
    /// Whose it is, or how many units it has, cannot be read.
    Unreadable,
    /// Only orders since some moment were compared.
    NotAllCompared,
}

/// What is repaired in Redis in one step.
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
    /// When it was admitted, in Unix milliseconds; None: the journal does not say, so the whole stream is searched.
    pub(super) admitted_ms: Option<i64>,
    pub(super) what: Again,
}

/// What is run again of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// All of it. Where the stream does not hold its own entry any more, it gets a new one.
    Order,
    /// What the stream holds of it.
    Entries,
    /// Its events: the order itself is where it belongs.
    Events,
    /// Its events: Redis released the order, so it gets a cancelled row first.
    Released,
}

impl Again {
    /// Orders are written, which take their users' places.
    pub(super) const fn writes_orders(self) -> bool {
        matches!(self, Self::Order | Self::Entries)
    }
}

impl Why {
    /// What to type, where there is something.
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
    /// What to do about what was found, and how many differences were found `beyond` it.
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
            _ => Next::Ask(format!("RepairMethod {}?", counted(vouchers as u64, "voucher"))),
        }
    }
}

impl VoucherFindings {
    /// By how much the stock in Redis is to be corrected, or why it is not. This alone decides whether orders are released, too.
    fn stock_correction(&self) -> Result<StockMove, Why> {
        if !self.guard.is_complete() {
            return Err(Why::NoCompleteJournal);
        }
        if self.is_partial {
            return Err(Why::NotAllCompared);
        }
        let totals = self.totals.ok_or(Why::NotAddedUp)?;
        if totals.is_change_open || self.guard.is_change_open() {
            return Err(Why::ChangeIsOpen);
        }
        totals.stock_move().ok_or(Why::NotAddedUp)
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

/// What lowers the stock goes first, what raises it last, so that there is never more on sale than there should be.
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
        // Before any order is released: a service may have released its units already.
        chunks[last].stock.loaded = stock.loaded;
        chunks[0].stock.drift = stock.drift;
    } else {
        chunks[last].stock = stock;
    }
    chunks
}

/// Differences by what is to be done about them.
#[derive(Default)]
struct Sorted {
    lowering: Vec<OrderRepair>,
    users: Vec<OrderRepair>,
    raising: Vec<OrderRepair>,
    again: Vec<Rerun>,
    repaired: PlanCounts,
    left: BTreeMap<(DifferenceKind, Why), Unrepaired>,
}

impl Sorted {
    /// `withheld`: why the stock is not corrected; None: it is.
    fn add(&mut self, difference: Difference, guard: &RepairGuard, withheld: Option<Why>) {
        // What others are free to do needs no repairing.
        if !difference.kind.is_failure() {
            return;
        }
        let added = match difference.repair {
            RepairMethod::RunAgain | RepairMethod::RecordEvents | RepairMethod::WriteCancelledRow => self.run_again(&difference),
            RepairMethod::ByHand => Err(Why::ByHand),
            RepairMethod::Rebuild => Err(Why::Forgotten),
            RepairMethod::SetCounter => {
                self.repaired.counters += 1;
                Ok(())
            }
            _ if !guard.is_complete() => Err(Why::NoCompleteJournal),
            // How it moves is computed from the totals.
            RepairMethod::MoveStock => withheld.map_or(Ok(()), Err),
            // A service may have returned the units of such an order by itself. The correction of the stock takes them
            // away again: without it, they would come back twice.
            RepairMethod::Release => withheld.map_or_else(|| self.repair(&difference), Err),
            RepairMethod::Admit | RepairMethod::Bar | RepairMethod::Unbar => self.repair(&difference),
        };
        if let Err(why) = added {
            self.leave(difference, why);
        }
    }

    fn repair(&mut self, difference: &Difference) -> Result<(), Why> {
        let user = difference.user.ok_or(Why::Unreadable)?;
        let action = match difference.repair {
            RepairMethod::Admit => RepairAction::Admit(quantity(difference)?),
            RepairMethod::Release => RepairAction::Release(UserAfter::Freed),
            RepairMethod::Bar => RepairAction::Bar,
            _ => RepairAction::Unbar,
        };
        let (order, found) = (difference.order, difference.note.clone());
        let repair = OrderRepair { order, found, user, action, limited: None };
        repair.change().ok_or(Why::Unreadable)?;
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

    fn run_again(&mut self, difference: &Difference) -> Result<(), Why> {
        let note = difference.note.as_deref().and_then(|note| JournalNote::parse(note.as_bytes()));
        let released = note.as_ref().and_then(|note| note.admitted);
        // Of a note that a repair or a rebuild has written, nobody knows when its order came into the stream.
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
            // A row of an order that holds nothing. How many units it had is not known if an emptied Redis released it.
            Again::Released => quantity(difference).unwrap_or(Quantity::ONE),
            // Nothing is written of an order whose events are run.
            Again::Entries | Again::Events => Quantity::ONE,
        };
        self.again.push(Rerun {
            order: difference.order.ok_or(Why::Unreadable)?,
            user: difference.user.ok_or(Why::Unreadable)?,
            units,
            admitted_ms,
            what,
        });
        *count += 1;
        Ok(())
    }

    fn leave(&mut self, difference: Difference, why: Why) {
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

fn quantity(difference: &Difference) -> Result<Quantity, Why> {
    Quantity::try_from(difference.units.saturating_abs()).map_err(|_| Why::Unreadable)
}
