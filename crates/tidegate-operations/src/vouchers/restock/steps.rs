//! The three steps of a change. Each may have been taken before, by this request or another: the note in Redis and the
//! initial stock in MySQL tell.

use tidegate_orders::{
    VoucherId,
    gate::{ChangeState, GateError, RestockReply, StockChange},
    restock::{self, Begun, RestockError, Restocked},
};

use super::{RestockOutcome, ended::ended_by_others};
use crate::vouchers::{COLUMN_TOO_SMALL, VoucherStores};

/// What became of a change, and why, or what came after it.
type Ended = (RestockOutcome, Option<String>);

/// One change, on both sides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps<'a> {
    pub(super) stores: &'a VoucherStores,
    pub(super) voucher: VoucherId,
    pub(super) change: &'a StockChange,
}

impl Steps<'_> {
    /// All three. `last` is the note that Redis had when the change was planned.
    pub(super) async fn begin_and_complete(self, last: Option<&StockChange>) -> Ended {
        let Self { stores, voucher, change } = self;
        match stores.redis.sales().restock(voucher, last, change, change.units.min(0)).await {
            Ok(RestockReply::Done) => self.complete(RestockOutcome::Changed).await,
            Ok(reply) => (RestockOutcome::Refused, Some(refusal(reply).to_owned())),
            Err(error) => self.not_begun(&error).await,
        }
    }

    /// What Redis has refused for certain has left no note, unless it had been noted by a call whose reply was lost.
    async fn not_begun(&self, error: &GateError) -> Ended {
        let Self { stores, voucher, change } = self;
        match (error, stores.redis.sales().read_change(*voucher).await) {
            (GateError::Refused(_), Ok(note)) if note.as_ref().is_none_or(|note| note.id != change.id) => {
                (RestockOutcome::Refused, Some(format!("{error}; nothing was changed on either side")))
            }
            _ => unfinished(format!("Redis may have noted it, and MySQL has not got it: {error}")),
        }
    }

    /// The steps after it was noted. `whole` is what it came to if both sides have it. Somebody else may take them
    /// at the same time: then the note says what became of it.
    pub(super) async fn complete(self, whole: RestockOutcome) -> Ended {
        let ended = self.apply_and_close(whole).await;
        if ended.0 != RestockOutcome::Unfinished {
            return ended;
        }
        match self.stores.redis.sales().read_change(self.voucher).await {
            Ok(Some(note)) => match ended_by_others(self.change, &note) {
                Some(Ok(since)) => (whole, since),
                Some(Err(reason)) => (RestockOutcome::Refused, Some(reason)),
                None => ended,
            },
            _ => ended,
        }
    }

    async fn apply_and_close(self, whole: RestockOutcome) -> Ended {
        let Self { stores: VoucherStores { redis, mysql }, voucher, change } = self;
        let begun = if whole == RestockOutcome::Changed { Begun::Now } else { Begun::Before };
        let in_redis = if change.units > 0 { "Redis has not got it" } else { "Redis has it" };
        match restock::apply_to_mysql(redis.sales(), mysql, voucher, change, begun).await {
            Ok(Restocked::Done) => {}
            Ok(Restocked::TooFew) => {
                return (RestockOutcome::Refused, Some("MySQL has fewer units left by now".to_owned()));
            }
            Ok(Restocked::TooMany) => return (RestockOutcome::Refused, Some(COLUMN_TOO_SMALL.to_owned())),
            Ok(Restocked::Delisted) => {
                let reason = "it was delisted meanwhile; nothing was changed on either side";
                return (RestockOutcome::Refused, Some(reason.to_owned()));
            }
            Ok(Restocked::RefusedByMySql(why)) => {
                return (
                    RestockOutcome::Refused,
                    Some(format!("MySQL refused it: {why}; nothing was changed on either side")),
                );
            }
            Ok(Restocked::RefusedAgain(why)) => {
                return unfinished(format!("{in_redis}, and MySQL refused it: {why}"));
            }
            Ok(Restocked::NotCancelled(reply)) => {
                return unfinished(format!("MySQL refused it, and {}", refusal(reply)));
            }
            Ok(Restocked::OtherInitialStock(initial)) => return unfinished(mend_initial(change, initial)),
            Ok(Restocked::NotOpen) => return unfinished("Redis has no open note of it any more".to_owned()),
            Err(error) => {
                let mysql = match error {
                    RestockError::Commit(_) => "MySQL may have it or not",
                    RestockError::MySql(_) | RestockError::Redis(_) => "MySQL was not changed by this try",
                };
                return unfinished(format!("{in_redis}, and {mysql}: {error}"));
            }
        }
        let done = change.with_state(ChangeState::Done);
        match redis.sales().restock(voucher, Some(change), &done, change.units.max(0)).await {
            Ok(RestockReply::Done) => (whole, None),
            Ok(reply) => unfinished(format!("MySQL has it, and {}", refusal(reply))),
            Err(error @ GateError::Refused(_)) => {
                unfinished(format!("MySQL has it, and Redis not yet: {error}"))
            }
            Err(error) => unfinished(format!("MySQL has it, and Redis may have it or not: {error}")),
        }
    }
}

fn unfinished(reason: String) -> Ended {
    (RestockOutcome::Unfinished, Some(reason))
}

/// Why Redis refused a step.
const fn refusal(reply: RestockReply) -> &'static str {
    match reply {
        RestockReply::Done => "it was done",
        RestockReply::OtherNote => "somebody else is changing it at this very moment: look again",
        RestockReply::NoStock => "Redis has no stock of it any more (see docs/runbook/redis-lost-data.md)",
        RestockReply::TooFew => "Redis has fewer units left by now",
    }
}

/// What to do where the initial stock in MySQL is neither the one before the change nor the one after it.
fn mend_initial(change: &StockChange, initial: Option<i64>) -> String {
    let (before, after) = (change.before, change.after());
    let initial = initial.map_or_else(|| "no number".to_owned(), |initial| initial.to_string());
    format!(
        "somebody else has changed initial_stock in MySQL meanwhile: it is {initial}, and was {before} before this \
         change and is {after} after it; write {before} there if stock is without this change, {after} if stock has \
         it (an audit shows that)"
    )
}
