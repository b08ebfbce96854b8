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
                refused(format!("{error}; neither Redis nor MySQL was changed"))
            }
            _ => unfinished(format!(
                "MySQL does not have the change, but Redis may have a note of it: {error}"
            )),
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
                    StockChangeError::Commit(_) => "MySQL may or may not have the change",
                    StockChangeError::MySql(_) | StockChangeError::Redis(_) => {
                        "this attempt did not change MySQL"
                    }
                };
                return unfinished(format!("{}, and {mysql}: {error}", self.in_redis()));
            }
        };
        match redis.sales().end_change(&self.whole.without(lost), ChangeState::Done).await {
            Ok(ChangeReply::Done) => (whole, lost.map(|lost| self.compare(lost))),
            Ok(reply) => unfinished(format!("MySQL has the change, but {}", self.refusal(reply))),
            Err(error @ ScriptError::Refused(_)) => {
                unfinished(format!("MySQL has the change, but Redis does not have it yet: {error}"))
            }
            Err(error) => unfinished(format!("MySQL has the change, Redis may or may not have it: {error}")),
        }
    }

    fn not_applied(self, applied: Applied) -> Ended {
        match applied {
            Applied::Cancelled(RowRefusal::TooFew) => refused("MySQL now has fewer units left".to_owned()),
            Applied::Cancelled(RowRefusal::TooMany) => refused(COLUMN_TOO_SMALL.to_owned()),
            Applied::Cancelled(RowRefusal::Delisted) => refused(format!(
                "{} was delisted in the meantime; neither Redis nor MySQL was changed",
                self.it()
            )),
            Applied::Cancelled(RowRefusal::ByMySql(why)) => {
                refused(format!("MySQL refused the change: {why}; neither Redis nor MySQL was changed"))
            }
            Applied::CancelledWithout(lost) => {
                refused(format!("MySQL does not have the change, so it is cancelled; {}", self.compare(lost)))
            }
            Applied::RefusedAgain { why, lost: Some(_) } => {
                unfinished(format!("MySQL may or may not have the change, and refuses writes: {why}"))
            }
            Applied::RefusedAgain { why, lost: None } => {
                unfinished(format!("{}, but MySQL refused it: {why}", self.in_redis()))
            }
            Applied::NotCancelled(reply) => {
                unfinished(format!("MySQL refused the change, and {}", self.refusal(reply)))
            }
            Applied::OtherInitialStock(initials) => unfinished(self.repair_initials(&initials)),
            Applied::Done { .. } | Applied::NotOpen => {
                unfinished("Redis no longer has a note that the change is unfinished".to_owned())
            }
        }
    }

    /// Returns the name of the voucher in messages, which may be one of two.
    const fn it(self) -> &'static str {
        if self.sides.len() > 1 { "one of the vouchers" } else { "the voucher" }
    }

    /// Describes what Redis has of an open change.
    fn in_redis(self) -> &'static str {
        match self.whole.sides[..] {
            [(_, ref change)] if change.units > 0 => "Redis does not have the change",
            [_] => "Redis has the change",
            _ => "Redis took the units from one region and has not added them to the other region",
        }
    }

    /// Describes what to do about a voucher whose note was lost.
    fn compare(self, lost: VoucherId) -> String {
        let lost = self.sides.iter().find(|side| side.voucher == Some(lost)).map(|side| side.name.as_str());
        format!(
            "Redis had lost its note of {} and did not change that stock: compare the stocks with tidegate reconcile",
            lost.unwrap_or_default()
        )
    }

    /// Describes why Redis refused a step.
    fn refusal(self, reply: ChangeReply) -> String {
        let it = self.it();
        match reply {
            ChangeReply::Done => "Redis accepted the step".to_owned(),
            ChangeReply::OtherNote => {
                format!("another program is changing {it} now: run this command again")
            }
            ChangeReply::NoStock => {
                format!("Redis no longer has a stock of {it} (see docs/runbook/redis-lost-data.md)")
            }
            ChangeReply::TooFew => "Redis now has fewer units left".to_owned(),
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
                "voucher {voucher} has {initial} units, but had {} before this change and must have {} after it",
                change.before,
                change.after()
            )
        });
        format!(
            "another program has changed initial_stock in MySQL: {}. Run tidegate audit: if `stock` does not have this change, \
             set initial_stock to the value before the change, otherwise to the value after it",
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
            Err(format!(
                "another program has ended this change, so both stores have the change or neither has it; {since}"
            ))
        });
    }
    match note.state {
        ChangeState::Open => None,
        ChangeState::Done => Some(Ok(None)),
        ChangeState::Cancelled => {
            Some(Err("neither store has this change: another program has cancelled it".to_owned()))
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
