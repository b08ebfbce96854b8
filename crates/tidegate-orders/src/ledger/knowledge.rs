//! The knowledge that a batch is decided from: only assumptions, as long as they hold.
//!
//! A batch that was written on wrong assumptions is rolled back, which costs as much as writing it. So after such a
//! batch, the next batches are looked up first, as deep as recent batches needed.

use std::sync::{Mutex, PoisonError};

use super::{
    Incoming,
    fault::{Fault, Mismatch},
    session::Session,
    sql::{self, Depth, Stocks},
    verdict::{self, Decided, Known, Verdict},
};

/// The knowledge that the verdicts of a batch are decided from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Knowledge {
    /// Assumptions that are mostly true, without any read.
    Assumed,
    /// The rows as they were read without a lock.
    Looked(Depth),
    /// The rows as they were read under the locks of the vouchers.
    Locked,
}

impl Knowledge {
    /// Gathers the knowledge about these orders and the rows that they need. If the vouchers are locked, their
    /// transaction stays open.
    pub(super) async fn gather(self, session: &mut Session, part: &[&Incoming]) -> Result<Known, Fault> {
        match self {
            Self::Assumed => Ok(Known::assumed(part)),
            Self::Looked(depth) => look_up(session, part, depth).await,
            Self::Locked => Ok(sql::look_up(session, part, Stocks::Locked, Depth::Ids).await?),
        }
    }

    /// Ends the transaction in which the vouchers are locked. Returns false if there is none.
    pub(super) async fn unlock(self, session: &mut Session) -> Result<bool, Fault> {
        let is_locked = self == Self::Locked;
        if is_locked {
            sql::run(session, sql::ROLLBACK.to_owned()).await?;
        }
        Ok(is_locked)
    }

    /// Ends a batch for which nothing is written.
    pub(super) async fn end(self, session: &mut Session, decided: &[Decided]) -> Result<(), Fault> {
        if self == Self::Locked {
            sql::run(session, sql::COMMIT.to_owned()).await?;
        }
        if decided.iter().any(Decided::rests_on_a_row) {
            // A row that was only read may be visible before it is durable.
            sql::run(session, sql::BARRIER.to_owned()).await?;
        }
        Ok(())
    }

    /// The knowledge to decide from after this mismatch.
    pub(super) fn after(self, mismatch: Mismatch) -> Self {
        use Depth::{Ids, Users, Vouchers};
        match (self, mismatch) {
            (Self::Assumed, Mismatch::Condition) => Self::Looked(Vouchers),
            (Self::Assumed | Self::Looked(Vouchers), Mismatch::Duplicate)
            | (Self::Looked(Vouchers), Mismatch::Condition) => Self::Looked(Users),
            (Self::Looked(Users), Mismatch::Duplicate) => Self::Looked(Ids),
            _ => Self::Locked,
        }
    }
}

/// Looks up to `depth`. For orders whose voucher has no row, it looks up everything: nothing is written for them, so no
/// write would check what was not looked up.
async fn look_up(session: &mut Session, part: &[&Incoming], depth: Depth) -> Result<Known, Fault> {
    let mut known = sql::look_up(session, part, Stocks::AsTheyAre, depth).await?;
    let is_unknown = |incoming: &&&Incoming| !known.stocks.contains_key(&incoming.order.voucher);
    let unknown: Vec<&Incoming> = part.iter().filter(is_unknown).copied().collect();
    if depth < Depth::Ids && !unknown.is_empty() {
        known.add(sql::look_up(session, &unknown, Stocks::AsTheyAre, Depth::Ids).await?);
    }
    Ok(known)
}

/// The number of consecutive batches that must have needed less before less is looked up.
const BATCHES_BEFORE_LESS: u8 = 8;

/// The depth to which the next batch is looked up: the least that is configured, or more if the last batches needed
/// more. All lanes of a process share it.
#[derive(Debug, Default)]
pub(super) struct RecentDepth {
    /// The least depth. `None` if only what the last batches needed is looked up.
    least: Option<Depth>,
    /// The depth that the last batches needed, and the number of further batches for which it counts.
    recent: Mutex<Option<(Depth, u8)>>,
}

impl RecentDepth {
    /// Looks up every batch at least to `depth`.
    pub(super) fn at_least(depth: Depth) -> Self {
        Self { least: Some(depth), recent: Mutex::default() }
    }

    /// The knowledge to decide the next batch from.
    pub(super) fn knowledge(&self) -> Knowledge {
        let recent = *self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.map(|(depth, _)| depth).max(self.least).map_or(Knowledge::Assumed, Knowledge::Looked)
    }

    /// Notes the depth that a written batch needed. `None` if the batch needed no look-up.
    pub(super) fn note(&self, needed: Option<Depth>) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        *recent = match (*recent, needed) {
            (Some((depth, _)), Some(needed)) if needed >= depth => Some((needed, BATCHES_BEFORE_LESS)),
            (None, Some(needed)) => Some((needed, BATCHES_BEFORE_LESS)),
            (Some((_, 1)), needed) => needed.map(|needed| (needed, BATCHES_BEFORE_LESS)),
            (Some((depth, left)), _) => Some((depth, left - 1)),
            (None, None) => None,
        };
    }
}

/// The depth to which a batch must be looked up to get these verdicts. `None` if assumptions suffice.
pub(super) fn needed(part: &[&Incoming], decided: &[Decided]) -> Option<Depth> {
    let is_plain = |decided: &Decided| decided.verdict == Verdict::Created;
    if decided.iter().all(is_plain) {
        return None;
    }
    let assumed = verdict::decide(part.iter().copied(), &mut Known::assumed(part));
    let differs = decided.iter().zip(&assumed).filter(|(now, assumed)| now != assumed);
    differs.map(|(now, _)| depth_of(now)).max()
}

fn depth_of(decided: &Decided) -> Depth {
    match decided.verdict {
        Verdict::UnknownVoucher => Depth::Vouchers,
        Verdict::Refused(verdict::Refusal::OutOfStock) if decided.is_new => Depth::Vouchers,
        Verdict::IdTaken | Verdict::Cancelled | Verdict::PastLimits(_) => Depth::Ids,
        _ => Depth::Users,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_does_not_fit_ends_under_the_locks_after_four_looks_at_most() {
        for first in [Mismatch::Duplicate, Mismatch::Condition] {
            for then in [Mismatch::Duplicate, Mismatch::Condition] {
                let mut knowledge = Knowledge::Assumed.after(first);
                let mut looks = 1;
                while knowledge != Knowledge::Locked {
                    assert!(knowledge.after(then) > knowledge, "{knowledge:?} {then:?}");
                    knowledge = knowledge.after(then);
                    looks += 1;
                }
                assert!(looks <= 4, "{looks}");
            }
        }
        assert_eq!(Knowledge::Assumed.after(Mismatch::PartialStock), Knowledge::Locked);
    }

    #[test]
    fn what_was_needed_is_looked_up_until_some_batches_did_not_need_it() {
        let recent = RecentDepth::default();
        recent.note(None);
        assert_eq!(recent.knowledge(), Knowledge::Assumed);
        recent.note(Some(Depth::Vouchers));
        recent.note(Some(Depth::Users));
        recent.note(Some(Depth::Vouchers));
        for _ in 2..BATCHES_BEFORE_LESS {
            assert_eq!(recent.knowledge(), Knowledge::Looked(Depth::Users));
            recent.note(None);
        }
        recent.note(Some(Depth::Users));
        for _ in 0..BATCHES_BEFORE_LESS {
            assert_eq!(recent.knowledge(), Knowledge::Looked(Depth::Users));
            recent.note(None);
        }
        assert_eq!(recent.knowledge(), Knowledge::Assumed);
    }
}
