//! Repairs what Redis holds of a sale, by `lua/repair.lua`: notes of the journal, buyers and stock in one step, and only what is
//! still as the look found it.
//!
//! Whoever looks reads [`RepairGuard`] **before** anything else of the voucher, in either store. The script compares it, so what
//! was computed from the look is not applied after somebody else loaded, rebuilt, adjusted or repaired the sale. Admissions and
//! releases may go on meanwhile: a difference between stock and journal is the same before and after them.

mod compact;
mod moving;

use fred::{interfaces::HashesInterface, types::Value};
use tidegate_stream::Script;

pub use self::{
    compact::{CompactReply, MOST_COMPACTED, OrderCompaction},
    moving::{ImportReply, RemoveMovedReply, SaleSize},
};
use super::{GateError, Release, UserAfter, access::RedisAccess, understood};
use crate::{
    keys::naming,
    order::{OrderId, Quantity, UserId, VoucherId},
    records::journal::{COMPLETE, JournalNote, UnderLimits, write},
};

/// Orders in one call, at most: Redis does nothing else while it lasts.
pub const MOST_REPAIRED: usize = 500;

const CHANGE: &str = "change";
const REPAIRED: &str = "repaired";
const LOAD: &str = "#load";

/// What must not have moved between a look and the repair that follows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairGuard {
    /// The journal's note that it is complete, with that of the load; None: it is not complete.
    complete: Option<String>,
    /// The note of an operator's last change of the stock.
    change: Option<String>,
    /// The last repair.
    repaired: Option<String>,
}

impl RepairGuard {
    /// The journal held every movement: without that nothing can be repaired by [`Repairs::repair`].
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete.is_some()
    }

    /// An operator's change of the stock was not at its end: one side may have it and the other not.
    #[must_use]
    pub fn is_change_open(&self) -> bool {
        // As the script asks.
        self.change.as_ref().is_some_and(|note| note.contains(r#""state":"open""#))
    }

    /// The same after the repair of that id was made: what the next part of one and the same repair expects.
    #[must_use]
    pub fn after(&self, repair: &str) -> Self {
        Self { repaired: Some(repair.to_owned()), ..self.clone() }
    }
}

/// What a repair does about an order or a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairAction {
    /// Note its admission, take these units from the stock, and count its user as a buyer.
    Admit(Quantity),
    /// Turn its admission into a release: its units are for sale again.
    Release(UserAfter),
    /// Count the user as a buyer.
    Bar,
    /// Let the user order again.
    Unbar,
}

/// An order to be repaired, or a user without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderRepair {
    /// Which order; None: only the user is meant.
    pub order: Option<OrderId>,
    /// What the journal held of the order at the look, byte for byte; None: nothing.
    pub found: Option<String>,
    /// Whose.
    pub user: UserId,
    /// What to do.
    pub action: RepairAction,
    /// Of an admission that is restored: what it has under limits.
    pub limited: Option<UnderLimits>,
}

/// A repair of one voucher that is made in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoucherRepair {
    /// Tells it from every other: 1 to 57 of `A-Z a-z 0-9 _ . -`. The same again changes nothing.
    pub id: String,
    /// What it repairs.
    pub voucher: VoucherId,
    /// As it was before the look.
    pub guard: RepairGuard,
    /// Units that the sale gets, below 0: loses. They are noted as the movement `#repair:<id>`.
    pub loaded: i64,
    /// By how many units the stock was above the sum of its journal, below 0: under it. The stock is moved back by them.
    pub drift: i64,
    /// At most [`MOST_REPAIRED`].
    pub orders: Vec<OrderRepair>,
}

impl VoucherRepair {
    /// An id that no other repair has; `.` and the number of a part may follow it.
    #[must_use]
    pub fn new_id() -> String {
        format!("{:016x}", rand::random::<u64>())
    }
}

/// What became of an order in a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairAnswer {
    /// Repaired now.
    Repaired,
    /// Repaired before, by this very repair: its reply was lost.
    RepairedBefore,
    /// Not as it was at the look: nothing was done about it.
    Moved,
}

/// What became of a [`VoucherRepair`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairReply {
    /// Made, now or before; an answer for each order.
    Made(Vec<RepairAnswer>),
    /// Refused: the journal is not complete, or is another one than at the look.
    NotComplete,
    /// Refused: an operator's change of the stock is open, or came between.
    StockChanged,
    /// Refused: another repair came between.
    Overtaken,
    /// Refused: Redis has no stock of it.
    NoStock,
}

impl RepairReply {
    const fn from_code(code: i64) -> Option<Self> {
        Some(match code {
            1 => Self::NotComplete,
            2 => Self::StockChanged,
            3 => Self::Overtaken,
            4 => Self::NoStock,
            _ => return None,
        })
    }
}

impl RepairAnswer {
    fn parse(answer: &Value) -> Option<Self> {
        Some(match &*answer.as_str()? {
            "repaired" => Self::Repaired,
            "before" => Self::RepairedBefore,
            "moved" => Self::Moved,
            _ => return None,
        })
    }
}

impl OrderRepair {
    /// A release of an order that used limits: that releases what it used, too, and is none for [`Repairs::repair`]. `by`: who releases.
    #[must_use]
    pub fn limited_release(&self, voucher: VoucherId, by: &str) -> Option<Release> {
        let RepairAction::Release(user_after) = self.action else { return None };
        let entry = JournalNote::parse(self.found.as_ref()?.as_bytes())?;
        let is_its = entry.is_admission() && entry.is_by(self.user) && entry.limited.is_some();
        let (order, user) = (self.order.filter(|_| is_its)?, self.user);
        let units = Quantity::try_from(entry.change?.checked_neg()?).ok();
        Some(Release { order, user, voucher, units, user_after, by: format!("repair:{by}").into() })
    }

    /// How it changes what the journal adds up to, and so the stock. None: it does not fit what the journal held.
    #[must_use]
    pub fn change(&self) -> Option<i64> {
        self.movement("").map(|movement| movement.change)
    }

    fn movement(&self, repair: &str) -> Option<Movement> {
        let entry = match &self.found {
            Some(note) => Some(JournalNote::parse(note.as_bytes())?),
            None => None,
        };
        let before = entry.as_ref().map_or(0, JournalNote::total_change);
        match (self.action, self.order, entry) {
            (RepairAction::Bar | RepairAction::Unbar, _, _) => Some(Movement::default()),
            (RepairAction::Admit(quantity), Some(_), entry) => {
                let units = quantity.get();
                let note = format!(
                    r#"{{"action":"admit","from":@from,"to":@to,"change":-{units},"by":"{}","timestamp":@now,"repaired":"repair:{repair}"}}"#,
                    self.user
                );
                let note = write::with_limits(note, self.limited.as_ref());
                let is_new = entry.is_none_or(|entry| !entry.is_admission());
                is_new.then(|| Movement { note, change: -units - before })
            }
            (RepairAction::Release(_), Some(_), Some(entry))
                if entry.is_admission() && entry.is_by(self.user) =>
            {
                let (user, at_ms) = (self.user, entry.at_ms.unwrap_or_default());
                // What the stock was before it: so it stays a link in the chain of movements.
                let from = entry.from.map_or_else(String::new, |from| format!(r#","from":{from}"#));
                let note = format!(
                    r#"{{"action":"release","from":@from,"to":@to,"change":{},"by":"repair:{repair}","timestamp":@now,"admitted":{{"user":"{user}","change":{before},"timestamp":{at_ms}{from}}}}}"#,
                    -before
                );
                Some(Movement { note, change: -before })
            }
            _ => None,
        }
    }

    const fn buyers(&self) -> &'static str {
        match self.action {
            RepairAction::Admit(_) | RepairAction::Bar => "in",
            RepairAction::Release(UserAfter::Freed) | RepairAction::Unbar => "out",
            RepairAction::Release(UserAfter::StaysBuyer | UserAfter::SlotIsTaken) => "same",
        }
    }
}

/// What an order's note becomes, with places for the numbers that only the script knows; empty: it stays. And by how much that
/// changes the journal's sum.
#[derive(Default)]
struct Movement {
    note: String,
    change: i64,
}

/// Repairs, compacts and moves sales in Redis.
#[derive(Clone, Debug)]
pub struct Repairs {
    access: RedisAccess,
    import_sale: Script,
    close: Script,
    remove_moved_sale: Script,
    compact: Script,
    reopen: Script,
    repair: Script,
}

impl Repairs {
    pub(super) fn new(access: &RedisAccess) -> Self {
        Self {
            access: access.clone(),
            import_sale: Script::new("import_sale", include_str!("../../../../lua/import_sale.lua")),
            close: Script::new("close", include_str!("../../../../lua/close.lua")),
            remove_moved_sale: Script::new("remove_moved_sale", include_str!("../../../../lua/remove_moved_sale.lua")),
            compact: Script::new("compact", include_str!("../../../../lua/compact.lua")),
            reopen: Script::new("reopen", include_str!("../../../../lua/reopen.lua")),
            repair: Script::new("repair", include_str!("../../../../lua/repair.lua")),
        }
    }

    /// What a repair compares. To be read before anything else of the look, in either store.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn repair_guard(&self, voucher: VoucherId) -> Result<RepairGuard, GateError> {
        let (sale, journal) = (self.access.keys.voucher(voucher), self.access.keys.journal(voucher));
        let fields: Vec<Option<String>> = self
            .access
            .pool
            .hmget(&sale, vec![CHANGE, REPAIRED])
            .await
            .map_err(|error| naming(&sale, error))?;
        let notes: Vec<Option<String>> = self
            .access
            .pool
            .hmget(&journal, vec![COMPLETE, LOAD])
            .await
            .map_err(|error| naming(&journal, error))?;
        let complete = match notes.as_slice() {
            [Some(complete), load] => Some(format!("{complete}{}", load.as_deref().unwrap_or_default())),
            _ => None,
        };
        let mut fields = fields.into_iter();
        Ok(RepairGuard { complete, change: fields.next().flatten(), repaired: fields.next().flatten() })
    }

    /// Repairs what is still as it was at the look. In a complete journal the sum is the stock afterwards, however many orders had
    /// moved meanwhile. The stock may be below 0 then: units were sold twice, and nobody is admitted until they came back.
    ///
    /// # Errors
    /// See [`GateError`]. May be called again with the same id: it is made once.
    pub async fn repair(&self, repair: &VoucherRepair) -> Result<RepairReply, GateError> {
        let VoucherRepair { id, voucher, guard, loaded, drift, orders } = repair;
        let keys = vec![
            self.access.keys.stock(*voucher),
            self.access.keys.buyers(*voucher),
            self.access.keys.journal(*voucher),
            self.access.keys.voucher(*voucher),
            self.access.keys.limited(*voucher),
        ];
        let mut args: Vec<Value> = Vec::with_capacity(6 + 6 * orders.len());
        args.push(id.as_str().into());
        for note in [&guard.complete, &guard.change, &guard.repaired] {
            args.push(note.as_deref().unwrap_or_default().into());
        }
        args.extend([loaded.to_string().into(), drift.to_string().into()]);
        // What does not fit is not sent: it has moved.
        let sent: Vec<bool> = orders.iter().map(|order| order.add_to(&mut args, id)).collect();
        match self.repair.call(&self.access.pool, keys, args).await? {
            Value::Array(replies) => {
                let answers: Option<Vec<_>> = replies.iter().map(RepairAnswer::parse).collect();
                let mut answers = answers.unwrap_or_default().into_iter();
                let all =
                    sent.iter().map(|sent| if *sent { answers.next() } else { Some(RepairAnswer::Moved) });
                let unexpected =
                    || GateError::Unexpected { place: "repair.lua".to_owned(), got: format!("{replies:?}") };
                all.collect::<Option<Vec<_>>>().map(RepairReply::Made).ok_or_else(unexpected)
            }
            reply => understood("repair.lua", &reply, RepairReply::from_code),
        }
    }
}

impl OrderRepair {
    /// Adds its arguments. False: it does not fit what the journal held.
    fn add_to(&self, args: &mut Vec<Value>, repair: &str) -> bool {
        let Some(Movement { note, change }) = self.movement(repair) else { return false };
        args.push(self.order.map_or_else(String::new, |order| order.to_string()).into());
        args.push(self.found.as_deref().unwrap_or_default().into());
        args.extend([note.into(), change.to_string().into(), self.user.get().to_string().into()]);
        args.push(self.buyers().into());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repair(found: Option<&str>, action: RepairAction) -> OrderRepair {
        let (order, user) = (42.try_into().ok(), 77.try_into().unwrap());
        OrderRepair { order, found: found.map(str::to_owned), user, action, limited: None }
    }

    const ADMITTED: &str = r#"{"action":"admit","from":5,"to":3,"change":-2,"by":"77","timestamp":7}"#;

    #[test]
    fn what_does_not_fit_the_journal_is_not_repaired() {
        let free = RepairAction::Release(UserAfter::Freed);
        let released = r#"{"action":"release","from":3,"to":5,"change":2,"by":"x","timestamp":9,"admitted":{"user":"77","change":-2,"timestamp":7}}"#;
        for (found, action, change) in [
            (None, RepairAction::Admit(Quantity::ONE), Some(-1)),
            (Some(released), RepairAction::Admit(Quantity::ONE), Some(-1)),
            (Some(ADMITTED), RepairAction::Admit(Quantity::ONE), None),
            (Some(ADMITTED), free, Some(2)),
            (Some(released), free, None),
            (None, free, None),
            (Some("{"), free, None),
            (Some(ADMITTED), RepairAction::Bar, Some(0)),
        ] {
            assert_eq!(repair(found, action).change(), change, "{found:?} {action:?}");
        }
        let mut of_another = repair(Some(ADMITTED), free);
        of_another.user = 78.try_into().unwrap();
        assert_eq!(of_another.change(), None);
    }

    #[test]
    fn a_release_keeps_what_it_released_and_both_say_by_whom_they_were_repaired() {
        let release = repair(Some(ADMITTED), RepairAction::Release(UserAfter::Freed)).movement("r.1").unwrap();
        let note = release.note.replace("@from", "3").replace("@to", "5").replace("@now", "9");
        let entry = JournalNote::parse(note.as_bytes()).unwrap();
        assert_eq!((entry.total_change(), entry.change), (0, Some(2)));
        assert_eq!((entry.by.as_deref(), entry.admitted.unwrap().at_ms), (Some("repair:r.1"), Some(7)));
        let admit = repair(None, RepairAction::Admit(Quantity::ONE)).movement("r.1").unwrap();
        assert!(admit.note.ends_with(r#""repaired":"repair:r.1"}"#) && admit.note.contains(r#""by":"77""#));
    }
}
