//! Putting letters back into the stream.

use std::{borrow::Cow, collections::HashSet};

use futures_util::future::join_all;
use tidegate_orders::{
    DeadLetters, DryRun, Incoming, Ledger, Order, OrderId, RedisStore, Verdict, VoucherId,
    dead_letters::{MOST_FIELDS, RequeueReply, with_uses},
    gate::{GateError, ReleaseReply},
    ledger::{Absence, Decided, Snapshot},
    wire::Message,
};
use tidegate_stream::{EntryId, Letter, Outage};

use super::{
    buried_events::BuriedEvent,
    cancel::release,
    outcome::{EndedLetter, LetterDecision, LetterOutcome, RequeueFailure, Obstacle},
};

/// Puts letters back.
#[derive(Debug)]
pub(super) struct Requeue {
    pub(super) dead: DeadLetters,
    pub(super) redis: RedisStore,
    pub(super) ledger: Ledger,
    /// Letters that were put back so often stay; None: however often.
    pub(super) limit: Option<u32>,
    /// Workers bury what is larger.
    pub(super) entry_max_bytes: usize,
}

/// What became of the events of an order that was put back.
#[derive(Debug)]
pub(super) struct BehindOrder {
    pub(super) outcomes: Vec<(BuriedEvent, LetterOutcome)>,
    /// What kept the others from it.
    pub(super) outage: Option<Outage>,
    /// Those that may still be letters.
    pub(super) left: Vec<EntryId>,
}

/// What is known of a page of letters.
struct Known {
    /// By the journals.
    released: HashSet<(VoucherId, OrderId)>,
    /// By MySQL.
    snapshot: Snapshot,
}

impl Requeue {
    /// A letter stays by what it is, and by what both stores say of its order. A worker that was given a cancelled order
    /// would acknowledge it, and nothing would be left by which what Redis holds for it could be released.
    pub(super) async fn decide(&self, letters: &[Letter]) -> Result<Vec<LetterDecision>, Outage> {
        let orders: Vec<Option<Incoming>> = letters.iter().map(|letter| self.order_of(letter)).collect();
        let known = self.known(&orders.iter().flatten().cloned().collect::<Vec<_>>()).await?;
        let obstacle = |(letter, order): (&Letter, &Option<Incoming>)| {
            self.obstacle(letter).or_else(|| known.obstacle(order.as_ref()?))
        };
        let obstacles: Vec<Option<Obstacle>> = letters.iter().zip(&orders).map(obstacle).collect();
        let others = letters.iter().zip(&orders).zip(&obstacles).filter(|(_, obstacle)| obstacle.is_none());
        let as_put_back = |letter: &Letter, incoming: &Incoming| {
            let uses = known.snapshot.uses_in_new_entry(&incoming.order, first_ms(letter));
            Incoming { order: Order { uses, ..incoming.order.clone() }, ..incoming.clone() }
        };
        let others: Vec<Incoming> =
            others.filter_map(|((letter, order), _)| Some(as_put_back(letter, order.as_ref()?))).collect();
        let mut failures = known.requeue_failures(&others).into_iter();
        let decision = |((obstacle, order), letter): ((Option<Obstacle>, &Option<Incoming>), &Letter)| {
            if let Some(obstacle) = obstacle {
                return LetterDecision::Stays(obstacle);
            }
            let failure =
                if order.is_some() { failures.next().flatten() } else { self.failure_without_order(letter) };
            // Workers look at the size before anything else.
            let is_too_large = letter.carried_bytes() > self.entry_max_bytes;
            let failure = is_too_large.then_some(RequeueFailure::TooLarge).or(failure);
            failure.map_or(LetterDecision::Done, LetterDecision::DiesAgain)
        };
        Ok(obstacles.into_iter().zip(&orders).zip(letters).map(decision).collect())
    }

    /// A worker records any event that it can read.
    fn failure_without_order(&self, letter: &Letter) -> Option<RequeueFailure> {
        let message = self.dead.fields().decode_message(&letter.entry());
        (!matches!(message, Ok(Message::Event(_)))).then_some(RequeueFailure::NoOrder)
    }

    /// Puts them back, then looks once more whether their orders were cancelled meanwhile.
    pub(super) async fn apply(&self, letters: &[&Letter]) -> Vec<Result<LetterOutcome, Outage>> {
        let put_back = match self.as_put_back(letters).await {
            Ok(put_back) => put_back,
            Err(outage) => return letters.iter().map(|_| Err(outage.clone())).collect(),
        };
        // The first alone: where Redis does not know the script yet, the others would overtake each other.
        let mut all = put_back.iter().map(|letter| self.requeue(letter));
        let Some(first) = all.next() else { return Vec::new() };
        let mut outcomes = vec![first.await];
        if outcomes[0].is_ok() {
            outcomes.extend(join_all(all).await);
        }
        self.release_cancelled(letters, &mut outcomes).await;
        outcomes
    }

    /// The letters with what their entries have to say beyond their own fields.
    async fn as_put_back<'a>(&self, letters: &[&'a Letter]) -> Result<Vec<Cow<'a, Letter>>, Outage> {
        let orders: Vec<Option<Incoming>> = letters.iter().map(|letter| self.order_of(letter)).collect();
        let known: Vec<Incoming> = orders.iter().flatten().cloned().collect();
        let snapshot = self.ledger.snapshot(&known, Absence::Decides).await?;
        let put_back = |(letter, order): (&&'a Letter, &Option<Incoming>)| {
            let order = order.as_ref().map(|incoming| &incoming.order).filter(|order| order.uses.is_none());
            let uses = order.and_then(|order| snapshot.uses_in_new_entry(order, first_ms(letter)));
            uses.map_or(Cow::Borrowed(*letter), |uses| Cow::Owned(with_uses(letter, &uses)))
        };
        Ok(letters.iter().zip(&orders).map(put_back).collect())
    }

    /// Puts the events of an order back, which stands in the stream by now: one after the other, as they were appended. What
    /// stays by what it is stays, and the others go on without it.
    /// Where Redis does not answer, nobody knows whether the next event was put back, and those after it were not.
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
        match self.obstacle(&letter) {
            Some(obstacle) => Ok(LetterOutcome::Stays(obstacle, None)),
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
        Ok(Known { released, snapshot: self.ledger.snapshot(orders, Absence::Decides).await? })
    }

    /// Why a letter stays by what it is.
    fn obstacle(&self, letter: &Letter) -> Option<Obstacle> {
        if letter.burial.is_none() {
            return Some(Obstacle::Foreign);
        }
        if letter.fields.len() > MOST_FIELDS {
            return Some(Obstacle::TooManyFields);
        }
        let is_too_often = self.limit.is_some_and(|limit| letter.history.requeued >= limit);
        is_too_often.then_some(Obstacle::NeedsForce)
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
            Ok(RequeueReply::Released) => LetterOutcome::Stays(Obstacle::Released, None),
            Err(error) => LetterOutcome::of_error(error)?,
        })
    }

    /// Asks MySQL once more. Whoever cancels an order writes that down before its letter is ended: if the letter is put
    /// back in between, workers only acknowledge the order, and should the other die now, nobody would release it.
    async fn release_cancelled(&self, letters: &[&Letter], outcomes: &mut [Result<LetterOutcome, Outage>]) {
        let is_moved = |outcome: &Result<LetterOutcome, Outage>| {
            matches!(outcome, Ok(LetterOutcome::Done(_) | LetterOutcome::Gone))
        };
        let moved = letters.iter().zip(outcomes).filter(|(_, outcome)| is_moved(outcome));
        let moved = moved.filter_map(|(letter, outcome)| Some((self.order_of(letter)?, outcome)));
        let (orders, outcomes): (Vec<Incoming>, Vec<_>) = moved.unzip();
        let snapshot = match self.ledger.snapshot(&orders, Absence::Decides).await {
            Ok(snapshot) => snapshot,
            Err(outage) => return outcomes.into_iter().for_each(|outcome| *outcome = Err(outage.clone())),
        };
        let releases = orders.iter().zip(outcomes).map(async |(incoming, outcome)| {
            let Some(user_after) = snapshot.cancelled(&incoming.order) else { return };
            *outcome = match self.redis.releases().release(&release(&incoming.order, user_after)).await {
                Ok(ReleaseReply::ReleasedBefore | ReleaseReply::NotAdmitted | ReleaseReply::NoSale)
                | Err(GateError::IdTaken { .. }) => Ok(LetterOutcome::Gone),
                Ok(ReleaseReply::Released | ReleaseReply::ReleasedWithoutStock) => {
                    Ok(LetterOutcome::Released)
                }
                Err(error) => LetterOutcome::of_error(error),
            };
        });
        join_all(releases).await;
    }
}

/// When the order of a letter came into the stream first, in Unix milliseconds by the clock of Redis.
fn first_ms(letter: &Letter) -> Option<u64> {
    letter.first_entry().map(|entry| entry.ms)
}

impl Known {
    /// Why the letter of an order stays.
    fn obstacle(&self, Incoming { order, .. }: &Incoming) -> Option<Obstacle> {
        if self.released.contains(&(order.voucher, order.id)) {
            return Some(Obstacle::Released);
        }
        self.snapshot.cancelled(order).is_some().then_some(Obstacle::Cancelled)
    }

    /// Why each of these orders would die again, if it would.
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
