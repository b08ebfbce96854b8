//! The three steps of a move. Each may have been taken before, by this request or another: the notes in Redis and the initial stocks
//! in MySQL tell.

use tidegate_orders::{
    VoucherId,
    gate::{ChangeState, GateError, StockChange, Transfer, TransferReply},
    restock::{Begun, RestockError},
    transfer::{EndedByOne, Kept, Transferred, apply_to_mysql, end_by_one_note},
};

use super::TransferOutcome;
use crate::vouchers::{COLUMN_TOO_SMALL, VoucherStores, restock::ended_by_others};

/// What became of a move, and why.
type Ended = (TransferOutcome, Option<String>);

/// One move, on both sides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps<'a> {
    pub(super) stores: &'a VoucherStores,
    pub(super) transfer: &'a Transfer,
}

impl Steps<'_> {
    /// All three. `last` are the notes that Redis had when the move was planned.
    pub(super) async fn begin_and_complete(self, last: [Option<&StockChange>; 2]) -> Ended {
        let Self { stores, transfer } = self;
        match stores.redis.sales().transfer(last, transfer, [-transfer.units(), 0]).await {
            Ok(TransferReply::Done) => self.complete(TransferOutcome::Moved).await,
            Ok(reply) => refused(refusal(reply)),
            Err(error) => self.not_begun(&error).await,
        }
    }

    /// What Redis has refused for certain has left no note, unless it had been noted by a call whose reply was lost.
    async fn not_begun(self, error: &GateError) -> Ended {
        let (voucher, change) = &self.transfer.giver;
        match (error, self.stores.redis.sales().read_change(*voucher).await) {
            (GateError::Refused(_), Ok(note)) if note.as_ref().is_none_or(|note| note.id != change.id) => {
                refused(&format!("{error}; nothing was changed on either side"))
            }
            _ => unfinished(format!("Redis may have noted it, and MySQL has not got it: {error}")),
        }
    }

    /// The steps after it was noted. `whole` is what it came to if both sides have it. Somebody else may take them at the same time:
    /// then the note of the giver says what became of it.
    pub(super) async fn complete(self, whole: TransferOutcome) -> Ended {
        let ended = self.apply_and_close(whole).await;
        if ended.0 != TransferOutcome::Unfinished {
            return ended;
        }
        let (voucher, change) = &self.transfer.giver;
        match self.stores.redis.sales().read_change(*voucher).await {
            Ok(Some(note)) => match ended_by_others(change, &note) {
                Some(Ok(since)) => (whole, since),
                Some(Err(reason)) => refused(&reason),
                None => ended,
            },
            _ => ended,
        }
    }

    /// Ends a move of which Redis has one note. `lost` is the region whose note is gone.
    pub(super) async fn end_by_one_note(self, kept: Kept, lost: &str) -> Ended {
        let Self { stores: VoucherStores { redis, mysql }, transfer } = self;
        let compare = format!(
            "Redis had lost the note of {lost}, and the stock there is as it was: compare it, tidegate reconcile"
        );
        match end_by_one_note(redis.sales(), mysql, transfer, kept).await {
            Ok(EndedByOne::Done) => (TransferOutcome::Completed, Some(compare)),
            Ok(EndedByOne::Cancelled) => {
                refused(&format!("MySQL does not have it, so it is cancelled; {compare}"))
            }
            Ok(EndedByOne::OtherInitialStock(initial)) => {
                let (voucher, change) = kept.side(transfer);
                unfinished(mend_initials(vec![(*voucher, change, initial)]))
            }
            Ok(EndedByOne::RefusedAgain(why)) => {
                unfinished(format!("MySQL may have it or not, and lets nobody write: {why}"))
            }
            Ok(EndedByOne::NotEnded(reply)) => {
                unfinished(format!("Redis did not note its end (it says {reply:?}): look again"))
            }
            // The other note is there, or others have ended it: one of the two was read before that, and one after it.
            Ok(EndedByOne::Moved) => self.complete(TransferOutcome::Completed).await,
            Err(error) => unfinished(format!("one side may have it and the other not: {error}")),
        }
    }

    async fn apply_and_close(self, whole: TransferOutcome) -> Ended {
        let Self { stores: VoucherStores { redis, mysql }, transfer } = self;
        let begun = if whole == TransferOutcome::Moved { Begun::Now } else { Begun::Before };
        let in_redis = "the units are taken in Redis and not added";
        match apply_to_mysql(redis.sales(), mysql, transfer, begun).await {
            Ok(Transferred::Done) => {}
            Ok(Transferred::TooFew) => return refused("MySQL has fewer units left by now"),
            Ok(Transferred::TooMany) => return refused(COLUMN_TOO_SMALL),
            Ok(Transferred::Delisted) => {
                return refused("one of them was delisted meanwhile; nothing was changed on either side");
            }
            Ok(Transferred::RefusedByMySql(why)) => {
                return refused(&format!("MySQL refused it: {why}; nothing was changed on either side"));
            }
            Ok(Transferred::RefusedAgain(why)) => {
                return unfinished(format!("{in_redis}, and MySQL refused it: {why}"));
            }
            Ok(Transferred::NotCancelled(reply)) => {
                return unfinished(format!("MySQL refused it, and {}", refusal(reply)));
            }
            Ok(Transferred::OtherInitialStocks(initials)) => {
                let sides = [&transfer.giver, &transfer.taker].into_iter().zip(initials);
                return unfinished(mend_initials(
                    sides.map(|((voucher, change), it)| (*voucher, change, it)).collect(),
                ));
            }
            Ok(Transferred::NotOpen) => {
                return unfinished("Redis does not have both open notes of it any more".to_owned());
            }
            Err(error) => {
                let mysql = match error {
                    RestockError::Commit(_) => "MySQL may have it or not",
                    RestockError::MySql(_) | RestockError::Redis(_) => "MySQL was not changed by this try",
                };
                return unfinished(format!("{in_redis}, and {mysql}: {error}"));
            }
        }
        let done = transfer.with_state(ChangeState::Done);
        let open = [Some(&transfer.giver.1), Some(&transfer.taker.1)];
        match redis.sales().transfer(open, &done, [0, transfer.units()]).await {
            Ok(TransferReply::Done) => (whole, None),
            Ok(reply) => unfinished(format!("MySQL has it, and {}", refusal(reply))),
            Err(error @ GateError::Refused(_)) => {
                unfinished(format!("MySQL has it, and Redis not yet: {error}"))
            }
            Err(error) => unfinished(format!("MySQL has it, and Redis may have it or not: {error}")),
        }
    }
}

fn unfinished(reason: String) -> Ended {
    (TransferOutcome::Unfinished, Some(reason))
}

fn refused(reason: &str) -> Ended {
    (TransferOutcome::Refused, Some(reason.to_owned()))
}

/// Why Redis refused a step.
const fn refusal(reply: TransferReply) -> &'static str {
    match reply {
        TransferReply::Done => "it was done",
        TransferReply::OtherNote => "somebody else is changing one of them at this very moment: look again",
        TransferReply::NoStock => {
            "Redis has no stock of one of them any more (see docs/runbook/redis-lost-data.md)"
        }
        TransferReply::TooFew => "Redis has fewer units left by now",
        TransferReply::Over => "one of them was delisted, or is on its way to another partition",
    }
}

/// What to do where the initial stocks in MySQL are neither those before the move nor those after it.
fn mend_initials(sides: Vec<(VoucherId, &StockChange, Option<i64>)>) -> String {
    let sides = sides.into_iter().map(|(voucher, change, it)| {
        let it = it.map_or_else(|| "no number".to_owned(), |it| it.to_string());
        format!(
            "that of voucher {voucher} is {it}, and was {} before this move and is {} after it",
            change.before,
            change.after()
        )
    });
    format!(
        "somebody else has changed initial_stock in MySQL meanwhile: {}; write there what stood before it if the stocks are \
         without this move, and otherwise what stands after it (an audit shows that)",
        sides.collect::<Vec<_>>().join("; ")
    )
}
