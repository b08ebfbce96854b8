//! One admission: the facts of both stores about an order id, entry by entry, and its column in the report. Pure.

use tidegate_orders::{
    OrderFacts, OrderId, OrderStatus, RowState, UserId, VoucherId,
    order_status::{EntryFact, JournalFact, LetterFact, RowFact},
    records::OrderRow,
};
use tidegate_stream::EntryId;

/// The facts about one admission: an entry of the stream, or a note of the journal whose entry is gone. It has 48
/// bytes, because there may be millions.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    pub(super) order: OrderId,
    pub(super) voucher: VoucherId,
    /// The user of the order; unknown if only a release is left in the journal.
    pub(super) user: Option<UserId>,
    /// The entry of the order. If only the journal has the order, this is its time of admission in the form of an id,
    /// and [`EntryId::MIN`] if the time is unknown.
    pub(super) entry: EntryId,
    /// Whether the stream holds the entry, or held it when it became a dead letter.
    pub(super) has_entry: bool,
    /// The units of the order; 0 if unknown.
    pub(super) quantity: u16,
    pub(super) row: RowFact,
    pub(super) journal: JournalFact,
    state: EntryFact,
    pub(super) is_dead: bool,
    is_refused: bool,
}

/// A movement that a journal notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Movement {
    Admit {
        user: Option<UserId>,
        quantity: u16,
        at_ms: u64,
    },
    /// A release, with the units that the refusal of a second order released, whether or not its producer had taken
    /// any.
    Release {
        second_order_units: u16,
    },
}

/// The column of the report that counts an order. Later columns are worse: an id with several entries counts in its
/// best column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Column {
    Written,
    Released,
    Dead,
    InFlight,
    Mismatched,
    Lost,
}

impl Admission {
    /// Creates an admission from an entry, which is settled unless [`Admission::is_in`] changes that.
    pub(super) fn by_entry(
        entry: EntryId,
        (voucher, order): (VoucherId, OrderId),
        user: UserId,
        units: i64,
    ) -> Self {
        Self {
            user: Some(user),
            entry,
            has_entry: true,
            quantity: u16::try_from(units).unwrap_or(0),
            state: EntryFact::Settled,
            ..Self::unknown(voucher, order)
        }
    }

    /// Creates an admission from the journal alone.
    pub(super) fn by_journal(voucher: VoucherId, order: OrderId, movement: Movement) -> Self {
        let unknown = Self::unknown(voucher, order);
        match movement {
            Movement::Admit { user, quantity, at_ms } => Self {
                entry: EntryId { ms: at_ms, seq: 0 },
                user,
                quantity,
                journal: JournalFact::Admitted,
                ..unknown
            },
            Movement::Release { .. } => Self { journal: JournalFact::Released, ..unknown },
        }
    }

    fn unknown(voucher: VoucherId, order: OrderId) -> Self {
        Self {
            order,
            voucher,
            user: None,
            entry: EntryId::MIN,
            has_entry: false,
            quantity: 0,
            row: RowFact::None,
            journal: JournalFact::Nothing,
            state: EntryFact::None,
            is_dead: false,
            is_refused: false,
        }
    }

    /// Notes that an entry of the order is still in flight. A dead letter was settled in the same step, so it stays
    /// settled.
    pub(super) fn is_in(&mut self, state: EntryFact) {
        if !self.is_dead {
            self.state = state;
        }
    }

    /// Notes that the entry became a dead letter.
    pub(super) fn bury(&mut self) {
        (self.is_dead, self.state) = (true, EntryFact::Settled);
    }

    /// Adds a movement of the journal. A release stays, whatever an earlier page said.
    pub(super) fn take_movement(&mut self, movement: Movement) {
        self.journal = match movement {
            Movement::Release { .. } => JournalFact::Released,
            Movement::Admit { .. } if self.journal == JournalFact::Released => JournalFact::Released,
            Movement::Admit { user, .. } if user.is_none() || user == self.user => JournalFact::Admitted,
            Movement::Admit { .. } => JournalFact::Other,
        };
    }

    /// Adds the row with the order's id.
    pub(super) fn take_row(&mut self, row: &OrderRow) {
        let is_same = self.voucher.get() == row.voucher
            && self.user.is_none_or(|user| user.get() == row.user)
            // An order that was cancelled before it came has no units, because they were not known then.
            && (self.quantity == 0
                || row.state() == RowState::Cancelled
                || i64::from(self.quantity) == row.quantity);
        self.row = if is_same { RowFact::Own(row.state()) } else { RowFact::Other };
    }

    /// Notes that MySQL refused the order.
    pub(super) fn take_refusal(&mut self, user: i64) {
        self.is_refused |= self.user.is_none_or(|own| own.get() == user);
    }

    /// The facts about the order.
    fn facts(&self) -> OrderFacts {
        let letter = if self.is_dead { LetterFact::Order } else { LetterFact::None };
        let (row, is_refused, journal, entry) = (self.row, self.is_refused, self.journal, self.state);
        OrderFacts { row, is_refused, journal, entry, letter, ..OrderFacts::NOTHING }
    }

    /// The column of the order's status. A released order counts as released, wherever its entry is, unless its row is
    /// live: its units are in Redis' stock again.
    pub(super) fn column(&self) -> Column {
        match self.facts().status() {
            OrderStatus::Written => Column::Written,
            _ if self.journal == JournalFact::Released => Column::Released,
            OrderStatus::Released | OrderStatus::Refused => Column::Released,
            OrderStatus::Cancelled | OrderStatus::Contradictory => Column::Written,
            OrderStatus::Dead => Column::Dead,
            OrderStatus::Pending | OrderStatus::Undelivered => Column::InFlight,
            OrderStatus::Mismatched => Column::Mismatched,
            OrderStatus::Lost | OrderStatus::Unsure | OrderStatus::Unknown => Column::Lost,
        }
    }

    /// The column of this admission, or that of a later entry with the very same order, which was put back from the
    /// dead letters or run again.
    fn column_among(&self, group: &[Self]) -> Column {
        let is_same = |other: &&Self| (other.user, other.quantity) == (self.user, self.quantity);
        let again = group.iter().filter(is_same).map(Self::column).min();
        match self.column() {
            column @ (Column::Mismatched | Column::Lost) => again.unwrap_or(column),
            column => column,
        }
    }

    /// Whether the order is cancelled while Redis keeps its units.
    pub(super) fn is_kept(&self) -> bool {
        self.is_cancelled() && self.journal == JournalFact::Admitted
    }

    /// Whether the order was refused while Redis keeps its units.
    pub(super) fn is_refused_and_kept(&self) -> bool {
        self.is_refused && self.journal == JournalFact::Admitted
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_dead || matches!(self.state, EntryFact::Undelivered | EntryFact::Pending(_))
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.row == RowFact::Own(RowState::Cancelled)
    }

    /// Whether the units were released although the row is live.
    pub(super) fn is_doubled(&self) -> bool {
        self.journal == JournalFact::Released && self.row == RowFact::Own(RowState::Live)
    }
}

/// The column of an order, from all of its admissions. One lost or mismatched entry decides it; otherwise the best
/// column counts.
pub(super) fn column_of(group: &[Admission]) -> Column {
    let columns = group.iter().map(|admission| admission.column_among(group));
    let worst = columns.clone().max().unwrap_or(Column::Lost);
    if worst >= Column::Mismatched { worst } else { columns.min().unwrap_or(worst) }
}

/// Whether the row is cancelled while the dead letter still holds the units.
pub(super) fn is_half_cancelled(group: &[Admission]) -> bool {
    group.iter().any(|admission| admission.is_cancelled() && admission.is_dead)
        && !group.iter().any(|admission| admission.journal == JournalFact::Released)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admission_takes_no_more_memory_than_we_say() {
        assert!(size_of::<Admission>() <= 48);
    }
}
