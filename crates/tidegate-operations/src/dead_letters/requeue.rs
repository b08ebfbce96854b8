//! Requeues dead letters: appends their entries to the stream again.

use std::{borrow::Cow, collections::HashSet};

use futures_util::future::join_all;
use tidegate_orders::{
    DeadLetters, DryRun, Incoming, Ledger, Order, OrderId, RedisStore, Verdict, VoucherId,
    dead_letters::{MOST_FIELDS, RequeueReply, with_uses},
    ledger::{Decided, MissingRow, Snapshot},
    scripts::{ReleaseReply, ScriptError},
    wire::Message,
};
use tidegate_stream::{EntryId, Letter, Outage};

use super::{
    buried_events::BuriedEvent,
    cancel::release,
    outcome::{EndedLetter, LetterBlocker, LetterDecision, LetterOutcome, RequeueFailure},
};

/// Requeues dead letters, and the events of their orders.
#[derive(Debug)]
pub(super) struct Requeue {
    pub(super) dead: DeadLetters,
    pub(super) redis: RedisStore,
    pub(super) ledger: Ledger,
    /// The number of requeues after which letters stay; None: there is no limit.
    pub(super) limit: Option<u32>,
    /// The size above which workers bury an entry.
    pub(super) entry_max_bytes: usize,
}

/// The outcome of requeueing the events of an order after it.
#[derive(Debug)]
pub(super) struct BehindOrder {
    pub(super) outcomes: Vec<(BuriedEvent, LetterOutcome)>,
    /// The outage that kept the other events from being requeued.
    pub(super) outage: Option<Outage>,
    /// The events that may still be dead letters.
    pub(super) left: Vec<EntryId>,
}

/// The state of the orders of a page of letters.
struct Known {
    /// The orders that are released according to the journals.
    released: HashSet<(VoucherId, OrderId)>,
    /// The rows of the orders in MySQL.
    snapshot: Snapshot,
}

impl Requeue {
    /// Decides which letters can be requeued. A letter stays because of its own content, or because of what both stores
    /// hold of its order. A worker would acknowledge a cancelled order, and then nothing would be left by which its
    /// units could be released in Redis.
    pub(super) async fn decide(&self, letters: &[Letter]) -> Result<Vec<LetterDecision>, Outage> {
        let orders: Vec<Option<Incoming>> = letters.iter().map(|letter| self.order_of(letter)).collect();
        let known = self.known(&orders.iter().flatten().cloned().collect::<Vec<_>>()).await?;
        let blocker = |(letter, order): (&Letter, &Option<Incoming>)| {
            self.blocker(letter).or_else(|| known.blocker(order.as_ref()?))
        };
        let blockers: Vec<Option<LetterBlocker>> = letters.iter().zip(&orders).map(blocker).collect();
        let others = letters.iter().zip(&orders).zip(&blockers).filter(|(_, blocker)| blocker.is_none());
        let as_put_back = |letter: &Letter, incoming: &Incoming| {
            let uses = known.snapshot.uses_in_new_entry(&incoming.order, first_ms(letter));
            Incoming { order: Order { uses, ..incoming.order.clone() }, ..incoming.clone() }
        };
        let others: Vec<Incoming> =
            others.filter_map(|((letter, order), _)| Some(as_put_back(letter, order.as_ref()?))).collect();
        let mut failures = known.requeue_failures(&others).into_iter();
        let decision = |((blocker, order), letter): ((Option<LetterBlocker>, &Option<Incoming>), &Letter)| {
            if let Some(blocker) = blocker {
                return LetterDecision::Stays(blocker);
            }
            let failure =
                if order.is_some() { failures.next().flatten() } else { self.failure_without_order(letter) };
            // Workers check the size before anything else.
            let is_too_large = letter.carried_bytes() > self.entry_max_bytes;
            let failure = is_too_large.then_some(RequeueFailure::TooLarge).or(failure);
            failure.map_or(LetterDecision::Done, LetterDecision::DiesAgain)
        };
        Ok(blockers.into_iter().zip(&orders).zip(letters).map(decision).collect())
    }

    /// Returns why a letter without an order would be buried again. A worker records any event that it can read.
    fn failure_without_order(&self, letter: &Letter) -> Option<RequeueFailure> {
        let message = self.dead.fields().decode_message(&letter.entry());
        (!matches!(message, Ok(Message::Event(_)))).then_some(RequeueFailure::NoOrder)
    }

    /// Requeues the letters, then checks whether their orders were cancelled in the meantime.
    pub(super) async fn apply(&self, letters: &[&Letter]) -> Vec<Result<LetterOutcome, Outage>> {
        let put_back = match self.as_put_back(letters).await {
            Ok(put_back) => put_back,
            Err(outage) => return letters.iter().map(|_| Err(outage.clone())).collect(),
        };
        // The first letter goes alone. If Redis does not know the script yet, letters that are sent together could
        // overtake each other.
        let mut all = put_back.iter().map(|letter| self.requeue(letter));
        let Some(first) = all.next() else { return Vec::new() };
        let mut outcomes = vec![first.await];
        if outcomes[0].is_ok() {
            outcomes.extend(join_all(all).await);
        }
        self.release_cancelled(letters, &mut outcomes).await;
        outcomes
    }

    /// Returns the letters with the values that their new entries must have in addition to their own fields.
    async fn as_put_back<'a>(&self, letters: &[&'a Letter]) -> Result<Vec<Cow<'a, Letter>>, Outage> {
        let orders: Vec<Option<Incoming>> = letters.iter().map(|letter| self.order_of(letter)).collect();
        let known: Vec<Incoming> = orders.iter().flatten().cloned().collect();
        let snapshot = self.ledger.snapshot(&known, MissingRow::Decides).await?;
        let put_back = |(letter, order): (&&'a Letter, &Option<Incoming>)| {
            let order = order.as_ref().map(|incoming| &incoming.order).filter(|order| order.uses.is_none());
            let uses = order.and_then(|order| snapshot.uses_in_new_entry(order, first_ms(letter)));
            uses.map_or(Cow::Borrowed(*letter), |uses| Cow::Owned(with_uses(letter, &uses)))
        };
        Ok(letters.iter().zip(&orders).map(put_back).collect())
    }

    /// Requeues the events of an order that is already in the stream, one by one, as they were appended. An event that
    /// cannot be requeued stays, and the others continue without it. If Redis does not answer, it is unknown whether
    /// the next event was requeued, and the events after it were not.
    pub(super) async fn apply_behind(&self, events: &[BuriedEvent]) -> BehindOrder {
        let mut behind = BehindOrder { outcomes: Vec::new(), outage: None, left: Vec::new() };
        for (at, event) in events.iter().enumerate() {
            match self.put_behind(event.letter).await {
                Ok(outcome) => behind.outcomes.push((*event, outcome)),
                Err(outage) => {
                    behind.outage = Some(outage);
                    behind.left = events[at..].iter().map(|event| event.letter).collect();
                    break;
                }
            }
        }
        behind
    }

    async fn put_behind(&self, id: EntryId) -> Result<LetterOutcome, Outage> {
        let letter = self.dead.find(id).await.map_err(|error| Outage::new("Redis", error))?;
        let Some(letter) = letter else { return Ok(LetterOutcome::Gone) };
        match self.blocker(&letter) {
            Some(blocker) => Ok(LetterOutcome::Stays(blocker, None)),
            None => self.requeue(&letter).await,
        }
    }

    fn order_of(&self, letter: &Letter) -> Option<Incoming> {
        self.dead.order_of(letter).ok().map(|order| Incoming { order, entry: letter.id })
    }

    async fn known(&self, orders: &[Incoming]) -> Result<Known, Outage> {
        let ids: Vec<_> = orders.iter().map(|Incoming { order, .. }| (order.voucher, order.id)).collect();
        let released =
            self.redis.journals().released(&ids).await.map_err(|error| Outage::new("Redis", error))?;
        Ok(Known { released, snapshot: self.ledger.snapshot(orders, MissingRow::Decides).await? })
    }

    /// Returns why a letter stays because of its own content.
    fn blocker(&self, letter: &Letter) -> Option<LetterBlocker> {
        if letter.burial.is_none() {
            return Some(LetterBlocker::Foreign);
        }
        if letter.fields.len() > MOST_FIELDS {
            return Some(LetterBlocker::TooManyFields);
        }
        let is_too_often = self.limit.is_some_and(|limit| letter.history.requeued >= limit);
        is_too_often.then_some(LetterBlocker::NeedsForce)
    }

    async fn requeue(&self, letter: &Letter) -> Result<LetterOutcome, Outage> {
        Ok(match self.dead.requeue(letter).await {
            Ok(RequeueReply::Requeued(entry)) => LetterOutcome::Done(EndedLetter {
                letter: letter.id,
                outcome: "requeued",
                order: self.dead.fields().peek(&letter.entry()).id.map(|order| order.to_string()),
                entry: Some(entry),
            }),
            Ok(RequeueReply::Gone) => LetterOutcome::Gone,
            Ok(RequeueReply::Released) => LetterOutcome::Stays(LetterBlocker::Released, None),
            Err(error) => LetterOutcome::of_error(error)?,
        })
    }

    /// Releases orders that were cancelled in the meantime, according to MySQL. A command that cancels an order writes
    /// this before it ends the letter. If the letter is requeued in between, workers only acknowledge the order. If the
    /// other command is then killed, no program would release the order.
    async fn release_cancelled(&self, letters: &[&Letter], outcomes: &mut [Result<LetterOutcome, Outage>]) {
        let is_moved = |outcome: &Result<LetterOutcome, Outage>| {
            matches!(outcome, Ok(LetterOutcome::Done(_) | LetterOutcome::Gone))
        };
        let moved = letters.iter().zip(outcomes).filter(|(_, outcome)| is_moved(outcome));
        let moved = moved.filter_map(|(letter, outcome)| Some((self.order_of(letter)?, outcome)));
        let (orders, outcomes): (Vec<Incoming>, Vec<_>) = moved.unzip();
        let snapshot = match self.ledger.snapshot(&orders, MissingRow::Decides).await {
            Ok(snapshot) => snapshot,
            Err(outage) => return outcomes.into_iter().for_each(|outcome| *outcome = Err(outage.clone())),
        };
        let releases = orders.iter().zip(outcomes).map(async |(incoming, outcome)| {
            let Some(user_after) = snapshot.cancelled(&incoming.order) else { return };
            *outcome = match self.redis.releases().release(&release(&incoming.order, user_after)).await {
                Ok(ReleaseReply::ReleasedBefore | ReleaseReply::NotAdmitted | ReleaseReply::NoSale)
                | Err(ScriptError::IdTaken { .. }) => Ok(LetterOutcome::Gone),
                Ok(ReleaseReply::Released | ReleaseReply::ReleasedWithoutStock) => {
                    Ok(LetterOutcome::Released)
                }
                Err(error) => LetterOutcome::of_error(error),
            };
        });
        join_all(releases).await;
    }
}

/// Returns the time at which the letter's order first came into the stream, in Unix milliseconds by the clock of Redis.
fn first_ms(letter: &Letter) -> Option<u64> {
    letter.first_entry().map(|entry| entry.ms)
}

impl Known {
    /// Returns why the letter of an order stays.
    fn blocker(&self, Incoming { order, .. }: &Incoming) -> Option<LetterBlocker> {
        if self.released.contains(&(order.voucher, order.id)) {
            return Some(LetterBlocker::Released);
        }
        self.snapshot.cancelled(order).is_some().then_some(LetterBlocker::Cancelled)
    }

    /// Returns for each order why it would become a dead letter again, if it would.
    fn requeue_failures(self, orders: &[Incoming]) -> Vec<Option<RequeueFailure>> {
        let decided = self.snapshot.predict_record(orders, &mut DryRun::default());
        let failure = |(incoming, decided): (&Incoming, Decided)| match decided.verdict {
            Verdict::UnknownVoucher => Some(RequeueFailure::UnknownVoucher(incoming.order.voucher)),
            Verdict::PastLimits(_) => Some(RequeueFailure::PastLimits(incoming.order.voucher)),
            Verdict::IdTaken => Some(RequeueFailure::IdTaken),
            _ => None,
        };
        orders.iter().zip(decided).map(failure).collect()
    }
}
