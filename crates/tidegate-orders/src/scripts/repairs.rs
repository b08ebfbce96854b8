//! Repairs the state of a sale in Redis, by `lua/repair.lua`: notes of the journal, buyers and stock in one step. It
//! repairs only what has not changed since the comparison read it.
//!
//! A comparison reads [`RepairGuard`] **before** anything else of the voucher, in either store. The script checks the
//! guard. So if another program loads, rebuilds, adjusts or repairs the sale after the comparison, its result is not
//! applied. Admissions and releases may continue meanwhile: they do not change a difference between stock and journal.

mod compact;
mod moving;

use fred::{interfaces::HashesInterface, types::Value};
use tidegate_stream::Script;

pub use self::{
    compact::{CompactReply, MOST_COMPACTED, OrderCompaction},
    moving::{ImportReply, RemoveMovedReply, SaleSize},
};
use super::{Release, ScriptError, UserAfter, access::RedisAccess, understood};
use crate::{
    keys::naming,
    order::{OrderId, Quantity, UserId, VoucherId},
    records::journal::{COMPLETE, JournalNote, UnderLimits, write},
};

/// The maximum number of orders in one repair call. During the call, Redis runs no other command.
pub const MOST_REPAIRED: usize = 500;

const CHANGE: &str = "change";
const REPAIRED: &str = "repaired";
const LOAD: &str = "#load";

/// The values in Redis that a repair compares with earlier values: if they have changed since the stores were compared,
/// the repair does nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairGuard {
    /// The journal's note that it is complete, followed by the note of the load. `None` if the journal is not complete.
    complete: Option<String>,
    /// The note of an operator's last change of the stock.
    change: Option<String>,
    /// The id of the last repair.
    repaired: Option<String>,
}

impl RepairGuard {
    /// Whether the journal in Redis had every change of the stock. If not, [`Repairs::repair`] repairs nothing.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete.is_some()
    }

    /// Whether an operator's change of the stock was unfinished: perhaps only one of the stores has the change.
    #[must_use]
    pub fn is_change_open(&self) -> bool {
        // The same check as in the script.
        self.change.as_ref().is_some_and(|note| note.contains(r#""state":"open""#))
    }

    /// The guard values after the repair with the given id was made. The next part of the same repair expects these
    /// values.
    #[must_use]
    pub fn after(&self, repair: &str) -> Self {
        Self { repaired: Some(repair.to_owned()), ..self.clone() }
    }
}

/// The change that a repair makes to the notes of an order or a user in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairAction {
    /// Notes the admission of the order, takes these units from the stock, and counts its user as a buyer.
    Admit(Quantity),
    /// Turns the admission into a release, so that its units are for sale again.
    Release(UserAfter),
    /// Counts the user as a buyer.
    Bar,
    /// Lets the user order again.
    Unbar,
}

/// The repair of an order in Redis, or of a user without an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderRepair {
    /// The id of the order to repair. `None` if the repair is only about the user.
    pub order: Option<OrderId>,
    /// The bytes of the order's note in the voucher's journal when the stores were compared. `None`: no note.
    pub found: Option<String>,
    /// The user of the order.
    pub user: UserId,
    /// The change that the repair makes to the order or the user.
    pub action: RepairAction,
    /// For an order that the repair restores: its slot (its number among the user's orders), and the limits that it
    /// counts against.
    pub limited: Option<UnderLimits>,
}

/// A repair of one voucher in Redis, made in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoucherRepair {
    /// The id of the repair, which no other repair has: 1 to 57 characters of `A-Z a-z 0-9 _ . -`. A second call with
    /// the same id changes nothing.
    pub id: String,
    /// The voucher that is repaired.
    pub voucher: VoucherId,
    /// The values in Redis, read before the stores were compared, that must not have changed when the repair is made.
    pub guard: RepairGuard,
    /// The number of units that the repair adds to the sale. The number is below 0 if the repair takes units. The
    /// journal notes it in the field `#repair:<id>`.
    pub loaded: i64,
    /// The stock minus the sum of the journal, in units. The number is below 0 if the stock is lower than the sum. The
    /// repair subtracts the number from the stock.
    pub drift: i64,
    /// The orders and users to repair, at most [`MOST_REPAIRED`] in one call.
    pub orders: Vec<OrderRepair>,
}

impl VoucherRepair {
    /// Makes an id that no other repair has. The caller may append a `.` and the number of a part.
    #[must_use]
    pub fn new_id() -> String {
        format!("{:016x}", rand::random::<u64>())
    }
}

/// The reply of a repair about one order: repaired, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairAnswer {
    /// The order is repaired by this call.
    Repaired,
    /// This repair already repaired the order in an earlier call, whose reply was lost.
    RepairedBefore,
    /// The order has changed since the comparison, so nothing was done.
    Moved,
}

/// The reply to a [`VoucherRepair`], the repair of one voucher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairReply {
    /// The repair is made, by this call or an earlier one, with an answer for each order.
    Made(Vec<RepairAnswer>),
    /// Refused: the journal is not complete, or it is another one than at the comparison.
    NotComplete,
    /// Refused: an operator's change of the stock is open, or was made since the comparison.
    StockChanged,
    /// Refused: another repair was made since the comparison.
    Overtaken,
    /// Refused: Redis has no stock of this voucher.
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
    /// The release (return of units) of an order that counts against limits. [`Repairs::repair`] cannot reduce the
    /// counters of limits, so a caller makes this release instead. `by` is the id of the repair. `None` if the order
    /// counts against no limit, or if the repair does not fit the note in the journal.
    #[must_use]
    pub fn limited_release(&self, voucher: VoucherId, by: &str) -> Option<Release> {
        let RepairAction::Release(user_after) = self.action else { return None };
        let entry = JournalNote::parse(self.found.as_ref()?.as_bytes())?;
        let is_its = entry.is_admission() && entry.is_by(self.user) && entry.limited.is_some();
        let (order, user) = (self.order.filter(|_| is_its)?, self.user);
        let units = Quantity::try_from(entry.change?.checked_neg()?).ok();
        Some(Release { order, user, voucher, units, user_after, by: format!("repair:{by}").into() })
    }

    /// The number of units that this repair adds to the sum of the journal, and therefore to the stock. `None` if the
    /// repair does not fit the note in the journal.
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
                    r#"{{"action":"admit","from":@from,"to":@to,"change":-{units},"by":"{}","timestamp":@now,"mended":"repair:{repair}"}}"#,
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
                // The stock before the admission, so that the note stays a link in the chain of movements.
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

/// The new note of an order, with placeholders for the numbers that only the script knows (empty: the note stays), and
/// the change of the journal's sum.
#[derive(Default)]
struct Movement {
    note: String,
    change: i64,
}

/// Access to the calls that repair sales in Redis, remove notes of final orders, and move sales between partitions.
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
            remove_moved_sale: Script::new(
                "remove_moved_sale",
                include_str!("../../../../lua/remove_moved_sale.lua"),
            ),
            compact: Script::new("compact", include_str!("../../../../lua/compact.lua")),
            reopen: Script::new("reopen", include_str!("../../../../lua/reopen.lua")),
            repair: Script::new("repair", include_str!("../../../../lua/repair.lua")),
        }
    }

    /// Reads the values in Redis that must not change before the repair. Call this method before you read any other
    /// data for the comparison, in both stores.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn repair_guard(&self, voucher: VoucherId) -> Result<RepairGuard, ScriptError> {
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

    /// Repairs the orders and users that have not changed since the stores were compared. After the repair, the sum of
    /// a complete journal equals the stock, however many orders have changed since. If units were sold twice, the stock
    /// may be below 0. Redis then admits no order until enough units have returned.
    ///
    /// # Errors
    /// See [`ScriptError`]. A second call with the same id is safe: the repair is made once.
    pub async fn repair(&self, repair: &VoucherRepair) -> Result<RepairReply, ScriptError> {
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
        // An order that does not fit its note has moved, so it is not sent.
        let sent: Vec<bool> = orders.iter().map(|order| order.add_to(&mut args, id)).collect();
        match self.repair.call(&self.access.pool, keys, args).await? {
            Value::Array(replies) => {
                let answers: Option<Vec<_>> = replies.iter().map(RepairAnswer::parse).collect();
                let mut answers = answers.unwrap_or_default().into_iter();
                let all =
                    sent.iter().map(|sent| if *sent { answers.next() } else { Some(RepairAnswer::Moved) });
                let unexpected = || ScriptError::Unexpected {
                    place: "repair.lua".to_owned(),
                    got: format!("{replies:?}"),
                };
                all.collect::<Option<Vec<_>>>().map(RepairReply::Made).ok_or_else(unexpected)
            }
            reply => understood("repair.lua", &reply, RepairReply::from_code),
        }
    }
}

impl OrderRepair {
    /// Adds the arguments of this order. False: the repair does not fit the note in the journal.
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
        let release =
            repair(Some(ADMITTED), RepairAction::Release(UserAfter::Freed)).movement("r.1").unwrap();
        let note = release.note.replace("@from", "3").replace("@to", "5").replace("@now", "9");
        let entry = JournalNote::parse(note.as_bytes()).unwrap();
        assert_eq!((entry.total_change(), entry.change), (0, Some(2)));
        assert_eq!((entry.by.as_deref(), entry.admitted.unwrap().at_ms), (Some("repair:r.1"), Some(7)));
        let admit = repair(None, RepairAction::Admit(Quantity::ONE)).movement("r.1").unwrap();
        assert!(admit.note.ends_with(r#""mended":"repair:r.1"}"#) && admit.note.contains(r#""by":"77""#));
    }
}
