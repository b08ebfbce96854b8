//! One admission: what both stores say of an order id, entry by entry, and the column of the report that it belongs to. Pure.

use tidegate_orders::{
    OrderFacts, OrderId, OrderStatus, RowState, UserId, VoucherId,
    order_status::{EntryFact, JournalFact, LetterFact, RowFact},
    records::OrderRow,
};
use tidegate_stream::EntryId;

/// What is known of one admission: an entry of the stream, or a note of the journal whose entry is gone.
/// 48 bytes, because there may be millions.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    pub(super) order: OrderId,
    pub(super) voucher: VoucherId,
    /// Unknown where only a release is left in the journal.
    pub(super) user: Option<UserId>,
    /// Where there is only the journal: when it was admitted, in the form of an id, and [`EntryId::MIN`] if not even
    /// that is known.
    pub(super) entry: EntryId,
    /// Its entry is in the stream, or was when it was buried.
    pub(super) has_entry: bool,
    /// 0 where it is unknown.
    pub(super) quantity: u16,
    pub(super) row: RowFact,
    pub(super) journal: JournalFact,
    state: EntryFact,
    pub(super) is_dead: bool,
    is_refused: bool,
}

/// A movement of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Movement {
    Admit {
        user: Option<UserId>,
        quantity: u16,
        at_ms: u64,
    },
    /// With the units that the refusal of a second order released, whether or not its producer had taken any.
    Release {
        second_order_units: u16,
    },
}

/// The column of the report that counts an order. Later ones are worse: an id that came in several entries is in its best
/// column.
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
    /// By an entry, which is settled unless [`Admission::is_in`] says otherwise.
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

    /// By the journal alone.
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

    /// An entry of it is still to be handled. One that is buried was settled in the same step.
    pub(super) fn is_in(&mut self, state: EntryFact) {
        if !self.is_dead {
            self.state = state;
        }
    }

    /// It was buried.
    pub(super) fn bury(&mut self) {
        (self.is_dead, self.state) = (true, EntryFact::Settled);
    }

    /// What the journal says. What was released once stays so, whatever an earlier page said.
    pub(super) fn take_movement(&mut self, movement: Movement) {
        self.journal = match movement {
            Movement::Release { .. } => JournalFact::Released,
            Movement::Admit { .. } if self.journal == JournalFact::Released => JournalFact::Released,
            Movement::Admit { user, .. } if user.is_none() || user == self.user => JournalFact::Admitted,
            Movement::Admit { .. } => JournalFact::Other,
        };
    }

    /// Takes the row that has its id.
    pub(super) fn take_row(&mut self, row: &OrderRow) {
        let is_same = self.voucher.get() == row.voucher
            && self.user.is_none_or(|user| user.get() == row.user)
            // One that was cancelled before it came has no units: nobody knew then how many it would have.
            && (self.quantity == 0
                || row.state() == RowState::Cancelled
                || i64::from(self.quantity) == row.quantity);
        self.row = if is_same { RowFact::Own(row.state()) } else { RowFact::Other };
    }

    /// MySQL refused it.
    pub(super) fn take_refusal(&mut self, user: i64) {
        self.is_refused |= self.user.is_none_or(|own| own.get() == user);
    }

    /// What is known of its order.
    fn facts(&self) -> OrderFacts {
        let letter = if self.is_dead { LetterFact::Order } else { LetterFact::None };
        let (row, is_refused, journal, entry) = (self.row, self.is_refused, self.journal, self.state);
        OrderFacts { row, is_refused, journal, entry, letter, ..OrderFacts::NOTHING }
    }

    /// The column of its status. What was released is counted there, wherever its entry is, unless its row counts: its units
    /// are in Redis' stock again.
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

    /// Its column, or that of a later entry that brings the very same order again: it was put back out of the dead
    /// letters, or run again.
    fn column_among(&self, group: &[Self]) -> Column {
        let is_same = |other: &&Self| (other.user, other.quantity) == (self.user, self.quantity);
        let again = group.iter().filter(is_same).map(Self::column).min();
        match self.column() {
            column @ (Column::Mismatched | Column::Lost) => again.unwrap_or(column),
            column => column,
        }
    }

    /// It is cancelled, and Redis keeps its units.
    pub(super) fn is_kept(&self) -> bool {
        self.is_cancelled() && self.journal == JournalFact::Admitted
    }

    /// It was refused, and Redis keeps its units.
    pub(super) fn is_refused_and_kept(&self) -> bool {
        self.is_refused && self.journal == JournalFact::Admitted
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_dead || matches!(self.state, EntryFact::Undelivered | EntryFact::Pending(_))
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.row == RowFact::Own(RowState::Cancelled)
    }

    /// Its units were released, and its row counts all the same.
    pub(super) fn is_doubled(&self) -> bool {
        self.journal == JournalFact::Released && self.row == RowFact::Own(RowState::Live)
    }
}

/// The column of an order, by all its admissions. One entry that was wronged is enough to say so; otherwise the best counts.
pub(super) fn column_of(group: &[Admission]) -> Column {
    let columns = group.iter().map(|admission| admission.column_among(group));
    let worst = columns.clone().max().unwrap_or(Column::Lost);
    if worst >= Column::Mismatched { worst } else { columns.min().unwrap_or(worst) }
}

/// Its row is cancelled, but its letter is there and holds its units.
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
