//! The place of an order, and what can be done about it: the one place that decides this. Pure.
//!
//! Both stores hold a part of an order's life. A caller that has read them fills in [`OrderFacts`] and gets the status
//! and the advice. So `tidegate order show`, `order find`, `pending bury` and the audit say the same about the same
//! facts. A state that orders get later (paid, refunded) becomes a row's fact and a status here.

use serde::Serialize;

use crate::row_state::RowState;

/// The facts that MySQL and Redis hold about one order. If a fact is absent, it was searched and not found. The last
/// two fields say whether both stores could be searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderFacts {
    /// The row in MySQL that has the id of the order.
    pub row: RowFact,
    /// Whether MySQL holds a row which says that the order was refused.
    pub is_refused: bool,
    /// The note about the order in the voucher's journal, a Redis hash with a note for each order.
    pub journal: JournalFact,
    /// The order's entry in the stream. If there are several entries, this is an entry that workers must still handle.
    pub entry: EntryFact,
    /// The order's dead letter. If there are several dead letters, this is the newest letter.
    pub letter: LetterFact,
    /// Whether MySQL answered, so that its facts are known.
    pub is_mysql_read: bool,
    /// Whether every key in Redis was searched that could contain the order.
    pub is_redis_searched: bool,
}

/// Whether MySQL has a row with the order's id, and whether the row is the order's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFact {
    /// No row has the order's id.
    None,
    /// The row is the order's own.
    Own(RowState),
    /// The row belongs to another user or voucher, or is for another quantity.
    Other,
}

/// The note about an order in the voucher's journal, a Redis hash with a note for each order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalFact {
    /// The journal holds nothing about the id, or does not exist.
    Nothing,
    /// The order was admitted, and not released since.
    Admitted,
    /// The order was released again.
    Released,
    /// Another user's order was admitted under this id.
    Other,
}

/// The entry of the stream that carries an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryFact {
    /// No entry with the order was found.
    None,
    /// No worker has read the entry.
    Undelivered,
    /// A consumer has read the entry and has not acknowledged it.
    Pending(ConsumerFact),
    /// The entry is acknowledged, or its payload is gone: no worker handles it again.
    Settled,
}

/// Whether the process of the consumer that holds a pending entry is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsumerFact {
    /// The process has a heartbeat.
    Live,
    /// The process has no heartbeat: another worker takes the entry over.
    Gone,
    /// The heartbeat was not read.
    Unread,
}

/// The fact about an order that a dead letter with the order's id shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterFact {
    /// No dead letter carries the order.
    None,
    /// A worker or an operator buried this order.
    Order,
    /// The entry of the order was buried because another order has the same id.
    IdTaken,
    /// The letter was buried and holds no order.
    NoOrder,
    /// Another program wrote the letter.
    Foreign,
}

/// The reason of a dead letter whose order has an id that already belongs to another order.
pub const ID_TAKEN: &str = "id_taken";

impl LetterFact {
    /// Derives from the reason of a dead letter what it says about its order.
    #[must_use]
    pub fn of_reason(reason: &str) -> Self {
        if reason == ID_TAKEN { Self::IdTaken } else { Self::Order }
    }
}

/// Where an order is: in MySQL, in the stream, among the dead letters or nowhere. The values are sorted from the best
/// to the worst, and if an order came in several entries, the best counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderStatus {
    /// MySQL has the order, and it counts.
    Written,
    /// MySQL has a cancelled or refunded row: the order was written once, or never will be.
    Cancelled,
    /// MySQL has a row that is neither live nor cancelled: its slot and its status contradict each other.
    Contradictory,
    /// MySQL refused the order.
    Refused,
    /// The order was released in Redis, and not written.
    Released,
    /// The order is among the dead letters.
    Dead,
    /// The entry is pending: a consumer has read it and has not acknowledged it.
    Pending,
    /// The entry is in the stream, and no worker has read it.
    Undelivered,
    /// The order is nowhere, and MySQL holds another order under its id.
    Mismatched,
    /// The order is nowhere, although it was admitted.
    Lost,
    /// The place cannot be determined from what could be read.
    Unsure,
    /// No trace of the order was found.
    Unknown,
}

/// The action that an operator can take about an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Do nothing: the order is where it belongs, or gets there when its entry is handled.
    None,
    /// Release the order's units to Redis: MySQL does not count the order, and Redis still does.
    Release,
    /// Run the order again: the ledger then decides as it decides on every order.
    RunAgain,
    /// Remove the cause for which the order was buried and run it again, or release it.
    RunAgainOrRelease,
    /// Delete the dead letter: it can release nothing, or everything is released already.
    DeleteLetter,
    /// Audit the order's voucher: the two stores contradict each other.
    Audit,
    /// Search further, or again when the missing store is back.
    LookFurther,
}

impl OrderFacts {
    /// The facts about an order if both stores were searched and nothing was found.
    pub const NOTHING: Self = Self {
        row: RowFact::None,
        is_refused: false,
        journal: JournalFact::Nothing,
        entry: EntryFact::None,
        letter: LetterFact::None,
        is_mysql_read: true,
        is_redis_searched: true,
    };

    /// Decides from the facts where the order is.
    ///
    /// MySQL comes first: a row or a refusal counts, whatever the stream still holds. Next comes an entry that is still
    /// to be handled, and then the place where the order came to rest. An order is lost only if it was searched
    /// everywhere.
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
            // The order may still be written in MySQL.
            _ if !self.is_mysql_read => OrderStatus::Unsure,
            // Another entry may carry the order.
            OrderStatus::Lost if !self.is_redis_searched => OrderStatus::Unsure,
            status => status,
        }
    }

    /// The place of the order if MySQL does not have it and no entry must be handled.
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

    /// Decides which action an operator can take about the order. If the consumer of the order's entry is dead, the
    /// operator needs another action too. That action is not part of this advice.
    #[must_use]
    pub fn advice(&self) -> Advice {
        match self.status() {
            OrderStatus::Written => self.advice_of_written(),
            OrderStatus::Cancelled => self.advice_of_cancelled(),
            OrderStatus::Refused => self.advice_of_refused(),
            OrderStatus::Dead => self.advice_of_dead(),
            OrderStatus::Contradictory | OrderStatus::Mismatched => Advice::Audit,
            OrderStatus::Lost => Advice::RunAgain,
            OrderStatus::Unsure => Advice::LookFurther,
            OrderStatus::Unknown if !self.is_redis_searched => Advice::LookFurther,
            OrderStatus::Unknown
            | OrderStatus::Released
            | OrderStatus::Pending
            | OrderStatus::Undelivered => Advice::None,
        }
    }

    /// The advice for a row that counts. If Redis got its units back, they are sold twice.
    fn advice_of_written(&self) -> Advice {
        match (self.journal, self.letter) {
            (JournalFact::Released, _) => Advice::Audit,
            // The order has its row already. A repeated run would also remove the letter, unless the order is too large
            // to be run.
            (_, LetterFact::Order | LetterFact::IdTaken) => Advice::DeleteLetter,
            _ => Advice::None,
        }
    }

    fn advice_of_cancelled(&self) -> Advice {
        match (self.journal, self.letter) {
            (JournalFact::Released | JournalFact::Other, LetterFact::Order | LetterFact::IdTaken) => {
                Advice::DeleteLetter
            }
            (JournalFact::Released | JournalFact::Other, _) => Advice::None,
            (_, LetterFact::Order | LetterFact::IdTaken) | (JournalFact::Admitted, _) => Advice::Release,
            (JournalFact::Nothing, _) => Advice::None,
        }
    }

    /// The advice for a refused order. It is released before its entry is acknowledged, unless another program or an
    /// operator interfered.
    fn advice_of_refused(&self) -> Advice {
        let has_letter = matches!(self.letter, LetterFact::Order | LetterFact::IdTaken);
        match (self.journal, self.entry) {
            (JournalFact::Released, _) if has_letter => Advice::DeleteLetter,
            (JournalFact::Released, _) => Advice::None,
            (_, EntryFact::Undelivered | EntryFact::Pending(_)) => Advice::None,
            _ if has_letter => Advice::Release,
            (JournalFact::Nothing, _) => Advice::Audit,
            _ => Advice::RunAgain,
        }
    }

    fn advice_of_dead(&self) -> Advice {
        match (self.letter, self.journal) {
            (LetterFact::Foreign, _) => Advice::None,
            (LetterFact::NoOrder, _) => Advice::DeleteLetter,
            (_, JournalFact::Released | JournalFact::Other) => Advice::DeleteLetter,
            // No store says that the order took units.
            (LetterFact::IdTaken, JournalFact::Nothing) => Advice::DeleteLetter,
            _ => Advice::RunAgainOrRelease,
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
    /// The word for where an order is, as JSON, traces and tables contain it.
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
