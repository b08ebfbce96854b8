//! The three steps of a change of the stock. Each step may have been taken before, by this request or another one. The
//! notes in Redis and the initial stocks in MySQL show this.

use tidegate_orders::{
    VoucherId,
    records::vouchers::RowRefusal,
    scripts::{ChangeReply, ChangeState, ScriptError, StockChange, WholeChange},
    stock_change::{Applied, Started, StockChangeError, apply_to_mysql},
};

use super::{StockOutcome, StockSide, described};
use crate::vouchers::{COLUMN_TOO_SMALL, VoucherStores};

/// The outcome of a change, with a reason or the changes that came later.
type Ended = (StockOutcome, Option<String>);

/// The steps of one change in both stores.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps<'a> {
    pub(super) stores: &'a VoucherStores,
    pub(super) whole: &'a WholeChange,
    /// The vouchers as they were read for the plan.
    pub(super) sides: &'a [StockSide],
}

impl Steps<'_> {
    /// Takes all three steps of the change.
    pub(super) async fn begin_and_complete(self) -> Ended {
        let last: Vec<_> = self.sides.iter().map(|side| side.last.clone()).collect();
        match self.stores.redis.sales().note_change(&last, self.whole).await {
            Ok(ChangeReply::Done) => self.complete(StockOutcome::Changed).await,
            Ok(reply) => refused(self.refusal(reply)),
            Err(error) => self.not_begun(&error).await,
        }
    }

    /// Decides what a failed note means. If Redis clearly refused it, there is no note, unless an earlier call whose
    /// reply was lost had written it.
    async fn not_begun(self, error: &ScriptError) -> Ended {
        let (voucher, change) = &self.whole.sides[0];
        match (error, self.stores.redis.sales().read_change(*voucher).await) {
            (ScriptError::Refused(_), Ok(note)) if note.as_ref().is_none_or(|note| note.id != change.id) => {
                refused(format!("{error}; nothing was changed on either side"))
            }
            _ => unfinished(format!("Redis may have noted it, and MySQL does not have it: {error}")),
        }
    }

    /// Takes the steps after the note. `whole` is the outcome if both stores have the change. Another program may take
    /// the steps at the same time; the note then shows the result.
    pub(super) async fn complete(self, whole: StockOutcome) -> Ended {
        let ended = self.apply_and_close(whole).await;
        if ended.0 != StockOutcome::Unfinished {
            return ended;
        }
        match self.ended_by_others().await {
            Some(Ok(since)) => (whole, since),
            Some(Err(reason)) => refused(reason),
            None => ended,
        }
    }

    /// Returns how another program has ended the change, by the first note that is not lost. None: a note is still
    /// open, or nothing is known.
    async fn ended_by_others(self) -> Option<Result<Option<String>, String>> {
        let mut ended = None;
        for (voucher, change) in self.whole.sides.iter().rev() {
            if let Some(note) = self.stores.redis.sales().read_change(*voucher).await.ok()? {
                ended = Some(ended_by_others(change, &note)?);
            }
        }
        ended
    }

    async fn apply_and_close(self, whole: StockOutcome) -> Ended {
        let VoucherStores { redis, mysql } = self.stores;
        let started = if whole == StockOutcome::Changed { Started::Now } else { Started::Before };
        let lost = match apply_to_mysql(redis.sales(), mysql, self.whole, started).await {
            Ok(Applied::Done { lost }) => lost,
            Ok(applied) => return self.not_applied(applied),
            Err(error) => {
                let mysql = match error {
                    StockChangeError::Commit(_) => "MySQL may have it or not",
                    StockChangeError::MySql(_) | StockChangeError::Redis(_) => {
                        "MySQL was not changed by this try"
                    }
                };
                return unfinished(format!("{}, and {mysql}: {error}", self.in_redis()));
            }
        };
        match redis.sales().end_change(&self.whole.without(lost), ChangeState::Done).await {
            Ok(ChangeReply::Done) => (whole, lost.map(|lost| self.compare(lost))),
            Ok(reply) => unfinished(format!("MySQL has it, and {}", self.refusal(reply))),
            Err(error @ ScriptError::Refused(_)) => {
                unfinished(format!("MySQL has it, and Redis not yet: {error}"))
            }
            Err(error) => unfinished(format!("MySQL has it, and Redis may have it or not: {error}")),
        }
    }

    fn not_applied(self, applied: Applied) -> Ended {
        match applied {
            Applied::Cancelled(RowRefusal::TooFew) => refused("MySQL has fewer units left by now".to_owned()),
            Applied::Cancelled(RowRefusal::TooMany) => refused(COLUMN_TOO_SMALL.to_owned()),
            Applied::Cancelled(RowRefusal::Delisted) => refused(format!(
                "{} was delisted in the meantime; nothing was changed on either side",
                self.it()
            )),
            Applied::Cancelled(RowRefusal::ByMySql(why)) => {
                refused(format!("MySQL refused it: {why}; nothing was changed on either side"))
            }
            Applied::CancelledWithout(lost) => {
                refused(format!("MySQL does not have it, so it is cancelled; {}", self.compare(lost)))
            }
            Applied::RefusedAgain { why, lost: Some(_) } => {
                unfinished(format!("MySQL may have it or not, and refuses writes: {why}"))
            }
            Applied::RefusedAgain { why, lost: None } => {
                unfinished(format!("{}, and MySQL refused it: {why}", self.in_redis()))
            }
            Applied::NotCancelled(reply) => {
                unfinished(format!("MySQL refused it, and {}", self.refusal(reply)))
            }
            Applied::OtherInitialStock(initials) => unfinished(self.repair_initials(&initials)),
            Applied::Done { .. } | Applied::NotOpen => {
                unfinished("Redis has no open note of it any more".to_owned())
            }
        }
    }

    /// Returns the name of the voucher in messages, which may be one of two.
    const fn it(self) -> &'static str {
        if self.sides.len() > 1 { "one of them" } else { "it" }
    }

    /// Describes what Redis has of an open change.
    fn in_redis(self) -> &'static str {
        match self.whole.sides[..] {
            [(_, ref change)] if change.units > 0 => "Redis does not have it",
            [_] => "Redis has it",
            _ => "the units are taken in Redis and not added",
        }
    }

    /// Describes what to do about a voucher whose note was lost.
    fn compare(self, lost: VoucherId) -> String {
        let lost = self.sides.iter().find(|side| side.voucher == Some(lost)).map(|side| side.name.as_str());
        format!(
            "Redis had lost the note of {}, and the stock there is unchanged: compare it with tidegate reconcile",
            lost.unwrap_or_default()
        )
    }

    /// Describes why Redis refused a step.
    fn refusal(self, reply: ChangeReply) -> String {
        let it = self.it();
        match reply {
            ChangeReply::Done => "it was done".to_owned(),
            ChangeReply::OtherNote => {
                format!("another program is changing {it} now: run this again")
            }
            ChangeReply::NoStock => {
                format!("Redis has no stock of {it} any more (see docs/runbook/redis-lost-data.md)")
            }
            ChangeReply::TooFew => "Redis has fewer units left by now".to_owned(),
            ChangeReply::Over => format!("{it} was delisted, or is being moved to another partition"),
        }
    }

    /// Describes what to do if the initial stocks in MySQL are neither those before nor those after the change.
    fn repair_initials(self, initials: &[(VoucherId, Option<i64>)]) -> String {
        let noted = |voucher| self.whole.sides.iter().find(|(its, _)| *its == voucher);
        let noted = initials.iter().filter_map(|(voucher, initial)| Some((noted(*voucher)?, initial)));
        let sides = noted.map(|((voucher, change), initial)| {
            let initial = initial.map_or_else(|| "no number".to_owned(), |initial| initial.to_string());
            format!(
                "that of voucher {voucher} is {initial}, and was {} before this change and is {} after it",
                change.before,
                change.after()
            )
        });
        format!(
            "another program has changed initial_stock in MySQL: {}; set it to the value before this change if stock is \
             without this change, and otherwise to the value after it (an audit shows that)",
            sides.collect::<Vec<_>>().join("; ")
        )
    }
}

fn unfinished(reason: String) -> Ended {
    (StockOutcome::Unfinished, Some(reason))
}

fn refused(reason: String) -> Ended {
    (StockOutcome::Refused, Some(reason))
}

/// Returns how another program has ended the change, according to the current note. None: the change is still open. Ok:
/// both stores have it, with the change that has started since. Err: the reason why it may not be made.
fn ended_by_others(change: &StockChange, note: &StockChange) -> Option<Result<Option<String>, String>> {
    if note.id != change.id {
        let since = format!("since then: {}", described(note));
        // No other change begins while one is open. So a later change that began with the stock which this change
        // leaves shows that this change was made.
        return Some(if note.before == change.after() {
            Ok(Some(since))
        } else {
            Err(format!("another program has ended it, so that both stores have it or neither; {since}"))
        });
    }
    match note.state {
        ChangeState::Open => None,
        ChangeState::Done => Some(Ok(None)),
        ChangeState::Cancelled => {
            Some(Err("neither store has it: another program has cancelled it".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_others_have_ended_is_not_gone_on_with() {
        let change = StockChange::new(50, 150, "alice".to_owned());
        let ended = |note: &StockChange| ended_by_others(&change, note);
        assert_eq!(ended(&change), None, "it is open");
        assert_eq!(ended(&change.with_state(ChangeState::Done)), Some(Ok(None)));
        assert!(ended(&change.with_state(ChangeState::Cancelled)).unwrap().is_err());
        for state in [ChangeState::Open, ChangeState::Done] {
            let next = StockChange::new(-50, 200, "bob".to_owned()).with_state(state);
            let since = ended(&next).unwrap().expect("it began with what the change left");
            assert!(since.unwrap().contains("by bob"));
            let later = StockChange::new(-50, 300, "bob".to_owned()).with_state(state);
            assert!(ended(&later).unwrap().is_err(), "nobody knows");
        }
    }
}
