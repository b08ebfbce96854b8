//! Where an order is, and what can be done about it: the one place that decides this. Pure.
//!
//! Both stores hold a part of an order's life. Whoever has read them fills in [`OrderFacts`] and asks: `tidegate order show`,
//! `order find`, `pending bury` and the audit say the same of the same facts. A state that orders get later (paid, refunded)
//! becomes a row's fact and a status here.

use serde::Serialize;

use crate::row_state::RowState;

/// What is known of one order. Absent is what was looked for and not found; what could not be looked for stands in the last two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderFacts {
    /// The row of MySQL that has its id.
    pub row: RowFact,
    /// MySQL holds a refusal of it.
    pub is_refused: bool,
    /// What the journal of its voucher says.
    pub journal: JournalFact,
    /// Its entry in the stream. Of several, one that is still to be handled.
    pub entry: EntryFact,
    /// Its dead letter. Of several, the latest.
    pub letter: LetterFact,
    /// MySQL has answered.
    pub is_mysql_read: bool,
    /// All of Redis was searched where it could be.
    pub is_redis_searched: bool,
}

/// The row of MySQL that has an order's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFact {
    /// There is none.
    None,
    /// It is the order's.
    Own(RowState),
    /// It belongs to another user or voucher, or is for another quantity.
    Other,
}

/// What the journal of an order's voucher says of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalFact {
    /// Nothing, or there is no journal.
    Nothing,
    /// It was admitted, and not released since.
    Admitted,
    /// It was released.
    Released,
    /// Another user's order was admitted under this id.
    Other,
}

/// The entry of the stream that carries an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryFact {
    /// There is none.
    None,
    /// No worker has read it.
    Undelivered,
    /// A consumer has read it and has not acknowledged it.
    Pending(ConsumerFact),
    /// It is acknowledged, or its payload is gone: nothing can come of it any more.
    Settled,
}

/// The process of the consumer that holds a pending entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsumerFact {
    /// It has a heartbeat.
    Live,
    /// It has none: others take the entry over.
    Gone,
    /// Nobody looked.
    Unread,
}

/// The dead letter that carries an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterFact {
    /// There is none.
    None,
    /// A worker or an operator buried this order.
    Order,
    /// Its entry was buried because another order has its id.
    IdTaken,
    /// It was buried, and is no order.
    NoOrder,
    /// Another program wrote it there.
    Foreign,
}

/// The reason of a letter whose order id belongs to another order.
pub const ID_TAKEN: &str = "id_taken";

impl LetterFact {
    /// The fact of a letter that holds an order, by its reason.
    #[must_use]
    pub fn of_reason(reason: &str) -> Self {
        if reason == ID_TAKEN { Self::IdTaken } else { Self::Order }
    }
}

/// Where an order is. Sorted from the best to the worst: an id that came in several entries is where the best of them is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderStatus {
    /// In MySQL, and it counts.
    Written,
    /// In MySQL, cancelled or refunded: it was written once, or never will be.
    Cancelled,
    /// In MySQL, neither live nor cancelled: its slot and its status contradict each other.
    Contradictory,
    /// MySQL refused it.
    Refused,
    /// Released to Redis, and not written.
    Released,
    /// Among the dead letters.
    Dead,
    /// In the stream: a consumer has it and has not acknowledged it.
    Pending,
    /// In the stream: no worker has read it.
    Undelivered,
    /// Nowhere, and MySQL holds another order under its id.
    Mismatched,
    /// Nowhere, although it was admitted.
    Lost,
    /// It cannot be told from what could be read.
    Unsure,
    /// Nothing was found of it.
    Unknown,
}

/// What can be done about an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing: it is where it belongs, or gets there when its entry is handled.
    None,
    /// Release its units to Redis: MySQL does not count it, and Redis still does.
    Release,
    /// Run it again: the ledger then decides as it decides on every order.
    RunAgain,
    /// Repair what it was buried for and run it again, or release it.
    RunAgainOrRelease,
    /// Delete its letter: nothing can be released by it, or all of it is.
    DeleteLetter,
    /// Audit its voucher: the two stores contradict each other.
    Audit,
    /// Search further, or when the store that is away is back.
    LookFurther,
}

impl OrderFacts {
    /// Everything was read, and nothing was found.
    pub const NOTHING: Self = Self {
        row: RowFact::None,
        is_refused: false,
        journal: JournalFact::Nothing,
        entry: EntryFact::None,
        letter: LetterFact::None,
        is_mysql_read: true,
        is_redis_searched: true,
    };

    /// Where the order is.
    ///
    /// MySQL's word comes first: a row or a refusal stands, whatever the stream still holds. Then what is still to be handled;
    /// then where it came to rest. Only what was looked for everywhere is called lost.
    #[must_use]
    pub fn status(&self) -> OrderStatus {
        match self.row {
            RowFact::Own(state) => return state.into(),
            _ if self.is_refused => return OrderStatus::Refused,
            RowFact::None | RowFact::Other => {}
        }
        match self.entry {
            EntryFact::Undelivered => return OrderStatus::Undelivered,
            EntryFact::Pending(_) => return OrderStatus::Pending,
            EntryFact::Settled | EntryFact::None => {}
        }
        match self.at_rest() {
            // It may be written all the same.
            _ if !self.is_mysql_read => OrderStatus::Unsure,
            // Another entry may carry it.
            OrderStatus::Lost if !self.is_redis_searched => OrderStatus::Unsure,
            status => status,
        }
    }

    /// Where it is if MySQL does not have it and no entry is to be handled.
    fn at_rest(&self) -> OrderStatus {
        match (self.letter, self.journal, self.entry) {
            (LetterFact::Order | LetterFact::IdTaken | LetterFact::NoOrder | LetterFact::Foreign, ..) => {
                OrderStatus::Dead
            }
            (LetterFact::None, JournalFact::Released, _) => OrderStatus::Released,
            _ if self.row == RowFact::Other => OrderStatus::Mismatched,
            (LetterFact::None, JournalFact::Nothing, EntryFact::None) => OrderStatus::Unknown,
            _ => OrderStatus::Lost,
        }
    }

    /// What can be done about the order itself. That a consumer is gone, and others are to take its entry over, is no matter of
    /// one order.
    #[must_use]
    pub fn remedy(&self) -> Remedy {
        match self.status() {
            OrderStatus::Written => self.remedy_of_written(),
            OrderStatus::Cancelled => self.remedy_of_cancelled(),
            OrderStatus::Refused => self.remedy_of_refused(),
            OrderStatus::Dead => self.remedy_of_dead(),
            OrderStatus::Contradictory | OrderStatus::Mismatched => Remedy::Audit,
            OrderStatus::Lost => Remedy::RunAgain,
            OrderStatus::Unsure => Remedy::LookFurther,
            OrderStatus::Unknown if !self.is_redis_searched => Remedy::LookFurther,
            OrderStatus::Unknown
            | OrderStatus::Released
            | OrderStatus::Pending
            | OrderStatus::Undelivered => Remedy::None,
        }
    }

    /// Of a row that counts, with units that are sold twice if Redis got them back.
    fn remedy_of_written(&self) -> Remedy {
        match (self.journal, self.letter) {
            (JournalFact::Released, _) => Remedy::Audit,
            // Its row is what came of it. Run again it would end, too, unless it is too large to be run.
            (_, LetterFact::Order | LetterFact::IdTaken) => Remedy::DeleteLetter,
            _ => Remedy::None,
        }
    }

    fn remedy_of_cancelled(&self) -> Remedy {
        match (self.journal, self.letter) {
            (JournalFact::Released | JournalFact::Other, LetterFact::Order | LetterFact::IdTaken) => {
                Remedy::DeleteLetter
            }
            (JournalFact::Released | JournalFact::Other, _) => Remedy::None,
            (_, LetterFact::Order | LetterFact::IdTaken) | (JournalFact::Admitted, _) => Remedy::Release,
            (JournalFact::Nothing, _) => Remedy::None,
        }
    }

    /// A refused order is released before its entry is acknowledged, unless somebody interfered.
    fn remedy_of_refused(&self) -> Remedy {
        let has_letter = matches!(self.letter, LetterFact::Order | LetterFact::IdTaken);
        match (self.journal, self.entry) {
            (JournalFact::Released, _) if has_letter => Remedy::DeleteLetter,
            (JournalFact::Released, _) => Remedy::None,
            (_, EntryFact::Undelivered | EntryFact::Pending(_)) => Remedy::None,
            _ if has_letter => Remedy::Release,
            (JournalFact::Nothing, _) => Remedy::Audit,
            _ => Remedy::RunAgain,
        }
    }

    fn remedy_of_dead(&self) -> Remedy {
        match (self.letter, self.journal) {
            (LetterFact::Foreign, _) => Remedy::None,
            (LetterFact::NoOrder, _) => Remedy::DeleteLetter,
            (_, JournalFact::Released | JournalFact::Other) => Remedy::DeleteLetter,
            // Nobody says that it took units.
            (LetterFact::IdTaken, JournalFact::Nothing) => Remedy::DeleteLetter,
            _ => Remedy::RunAgainOrRelease,
        }
    }
}

impl From<RowState> for OrderStatus {
    fn from(state: RowState) -> Self {
        match state {
            RowState::Live => Self::Written,
            RowState::Cancelled => Self::Cancelled,
            RowState::Contradictory => Self::Contradictory,
        }
    }
}

impl OrderStatus {
    /// The word for it in JSON, in traces and in tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Cancelled => "cancelled",
            Self::Contradictory => "contradictory",
            Self::Refused => "refused",
            Self::Released => "released",
            Self::Dead => "dead",
            Self::Pending => "pending",
            Self::Undelivered => "undelivered",
            Self::Mismatched => "mismatched",
            Self::Lost => "lost",
            Self::Unsure => "unsure",
            Self::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
mod tests;
