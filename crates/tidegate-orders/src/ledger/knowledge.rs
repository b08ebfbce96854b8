//! How much the ledger looks up before it writes a batch: nothing, as long as that goes well.
//!
//! A batch that was written on wrong assumptions is rolled back, which costs as much as writing it. So as long as batches
//! are not plain, those that come next are looked up first, as deep as was needed lately.

use std::sync::{Mutex, PoisonError};

use super::{
    Incoming,
    sql::Depth,
    verdict::{self, Decided, Known, Verdict},
};

/// What the verdicts of a batch are decided from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Knowledge {
    /// What is most often so, with nothing read.
    Assumed,
    /// What was read without a lock.
    Looked(Depth),
    /// What was read under the locks of the vouchers.
    Locked,
}

/// Why the database did not take what was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// A row was there already.
    Duplicate,
    /// A voucher was not there, or not with the stock that it was taken to have; or an order was refused before.
    Condition,
    /// A stock covers a part of the batch.
    SplitStock,
}

impl Knowledge {
    /// What to decide from after that.
    pub(super) fn after(self, misfit: Misfit) -> Self {
        use Depth::{Ids, Users, Vouchers};
        match (self, misfit) {
            (Self::Assumed, Misfit::Condition) => Self::Looked(Vouchers),
            (Self::Assumed | Self::Looked(Vouchers), Misfit::Duplicate)
            | (Self::Looked(Vouchers), Misfit::Condition) => Self::Looked(Users),
            (Self::Looked(Users), Misfit::Duplicate) => Self::Looked(Ids),
            _ => Self::Locked,
        }
    }
}

/// Batches in a row that would have been written as well with less knowledge, before less is read.
const CALM: u8 = 8;

/// What the last batches needed; shared by all lanes of a process.
#[derive(Debug, Default)]
pub(super) struct Caution(Mutex<Option<(Depth, u8)>>);

impl Caution {
    /// What to decide the next batch from.
    pub(super) fn knowledge(&self) -> Knowledge {
        let caution = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        caution.map_or(Knowledge::Assumed, |(depth, _)| Knowledge::Looked(depth))
    }

    /// A batch was written that needed this to be looked up; None: nothing.
    pub(super) fn needed(&self, needed: Option<Depth>) {
        let mut caution = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *caution = match (*caution, needed) {
            (Some((depth, _)), Some(needed)) if needed >= depth => Some((needed, CALM)),
            (None, Some(needed)) => Some((needed, CALM)),
            (Some((_, 1)), needed) => needed.map(|needed| (needed, CALM)),
            (Some((depth, calm)), _) => Some((depth, calm - 1)),
            (None, None) => None,
        };
    }
}

/// How deep one has to look for what was decided; None: it could have been assumed.
pub(super) fn needed(part: &[&Incoming], decided: &[Decided], known: &Known) -> Option<Depth> {
    let is_plain = |decided: &Decided| decided.verdict == Verdict::Created;
    if decided.iter().all(is_plain) {
        return None;
    }
    let assumed = verdict::decide(part.iter().copied(), &mut Known::assumed(part));
    let differs = part.iter().zip(decided.iter().zip(&assumed)).filter(|(_, (now, assumed))| now != assumed);
    differs.map(|(incoming, (now, _))| depth_of(incoming, now, known)).max()
}

fn depth_of(Incoming { order, .. }: &Incoming, decided: &Decided, known: &Known) -> Depth {
    match decided.verdict {
        Verdict::UnknownVoucher => Depth::Vouchers,
        Verdict::Refused(verdict::Refusal::OutOfStock) if decided.is_new => Depth::Vouchers,
        Verdict::IdTaken => Depth::Ids,
        Verdict::AlreadyThere if known.cancelled.contains(&order.id) => Depth::Ids,
        _ => Depth::Users,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_does_not_fit_ends_under_the_locks_after_four_looks_at_most() {
        for first in [Misfit::Duplicate, Misfit::Condition] {
            for then in [Misfit::Duplicate, Misfit::Condition] {
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
        assert_eq!(Knowledge::Assumed.after(Misfit::SplitStock), Knowledge::Locked);
    }

    #[test]
    fn what_was_needed_is_looked_up_until_some_batches_did_not_need_it() {
        let caution = Caution::default();
        caution.needed(None);
        assert_eq!(caution.knowledge(), Knowledge::Assumed);
        caution.needed(Some(Depth::Vouchers));
        caution.needed(Some(Depth::Users));
        caution.needed(Some(Depth::Vouchers));
        for _ in 2..CALM {
            assert_eq!(caution.knowledge(), Knowledge::Looked(Depth::Users));
            caution.needed(None);
        }
        caution.needed(Some(Depth::Users));
        for _ in 0..CALM {
            assert_eq!(caution.knowledge(), Knowledge::Looked(Depth::Users));
            caution.needed(None);
        }
        assert_eq!(caution.knowledge(), Knowledge::Assumed);
    }
}
