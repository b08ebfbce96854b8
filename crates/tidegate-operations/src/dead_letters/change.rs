//! The common part of requeue, cancel and drop: they decide about the selected letters, then end them page by page.
//!
//! Each of the three has two functions. `decide` returns what would happen to letters, and changes nothing. `apply`
//! ends the letters that may be ended. A plan calls `decide` for each page. A run calls both, so that it decides by the
//! same rules as the plan, but from the current state of the stores. If something changes between the two calls, the
//! stores notice it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use tidegate_compare::{Job, Progress, text::counted};
use tidegate_orders::{DeadLetters, RedisStore, VoucherId, sale};
use tidegate_stream::{EntryId, Letter, Outage};

use super::{
    buried_events::{Belongs, BuriedEvents},
    cancel::Cancel,
    drop::Drop,
    letter::reason_of,
    outcome::{LetterBlocker, LetterDecision, LetterOutcome, RetainedLetters},
    plan::{LetterPlan, PlanDraft, ReasonCount},
    report::LetterReport,
    request::{LetterAction, LetterRequest, REQUEUE_LIMIT},
    requeue::{BehindOrder, Requeue},
    selection::LetterSelection,
};
use crate::{
    Stores,
    change::{End, InvalidInput},
    connect,
};

/// The operation that requeues, cancels or drops dead letters (entries that workers could not write).
#[derive(Debug)]
pub struct LetterChange {
    action: LetterAction,
    redis: RedisStore,
    dead: DeadLetters,
    /// The stream to which requeued letters are appended.
    stream: String,
    step: Step,
}

/// The change that is made to a page of letters.
#[derive(Debug)]
enum Step {
    Requeue(Requeue),
    Cancel(Cancel),
    Drop(Drop),
}

/// The result of the change for one page of letters.
#[derive(Debug, Default)]
struct PageEnd {
    /// The letters whose outcome is known.
    settled: BTreeSet<EntryId>,
    /// The selected letters that were requeued after their orders.
    followed: Vec<EntryId>,
    /// The events whose orders were requeued without them.
    left: Vec<EntryId>,
    /// The outage that keeps the other letters from being ended.
    outage: Option<Outage>,
}

impl PageEnd {
    /// Adds the outcomes of the events of an order.
    fn add(&mut self, behind: BehindOrder, report: &mut LetterReport) {
        for (event, outcome) in behind.outcomes {
            let is_done = matches!(outcome, LetterOutcome::Done(_));
            // Another program has requeued an event that was not selected here.
            if is_done || event.is_selected {
                report.along += u64::from(is_done);
                report.add(event.letter, outcome);
                self.settled.insert(event.letter);
                self.followed.extend((is_done && event.is_selected).then_some(event.letter));
            }
        }
        self.left.extend(behind.left);
        self.outage = behind.outage.or(self.outage.take());
    }
}

impl Step {
    /// Predicts the outcome of each of these letters, and changes nothing.
    async fn decide(&self, letters: &[Letter]) -> Result<Vec<LetterDecision>, Outage> {
        match self {
            Self::Requeue(requeue) => requeue.decide(letters).await,
            Self::Cancel(cancel) => cancel.decide(letters).await,
            Self::Drop(drop) => drop.decide(letters).await,
        }
    }

    /// Ends letters that would not stay according to `decide`. If an error concerns one letter only, that letter's
    /// outcome is [`LetterOutcome::Stays`]. If the outcomes contain an outage, letters without an outcome are
    /// unchanged, and it is unknown whether the letter with the outage was ended.
    ///
    /// # Errors
    /// If no letter was ended.
    async fn apply(&self, letters: &[&Letter]) -> Result<Vec<Result<LetterOutcome, Outage>>, Outage> {
        match self {
            Self::Requeue(requeue) => Ok(requeue.apply(letters).await),
            Self::Cancel(cancel) => cancel.apply(letters).await,
            Self::Drop(drop) => drop.apply(letters).await,
        }
    }
}

impl LetterChange {
    /// Connects to the stores that the requeue, the cancellation or the drop needs.
    ///
    /// # Errors
    /// If a store cannot be reached.
    pub async fn open(stores: &Stores, action: LetterAction) -> anyhow::Result<Self> {
        let settings = stores.settings();
        let stream = settings.stream.name.clone();
        let redis = match action {
            // If the stock does not suffice for all orders, the older ones get it.
            LetterAction::Requeue { .. } => connect::redis_in_order(settings).await?,
            LetterAction::Cancel | LetterAction::Drop => stores.redis().await?.clone(),
        };
        let dead = DeadLetters::new(redis.clone());
        let step = {
            let (dead, redis) = (dead.clone(), redis.clone());
            match action {
                LetterAction::Requeue { force } => {
                    let (ledger, limit) = (stores.ledger().await?, (!force).then_some(REQUEUE_LIMIT));
                    let entry_max_bytes = settings.fleet.entry_max_bytes;
                    Step::Requeue(Requeue { dead, redis, ledger, limit, entry_max_bytes })
                }
                LetterAction::Cancel => {
                    let (ledger, publisher) = (stores.ledger().await?, stores.publisher().await?);
                    Step::Cancel(Cancel { dead, redis, ledger, publisher })
                }
                LetterAction::Drop => {
                    // MySQL is asked only about letters with orders; letters without one can be dropped while MySQL is
                    // unavailable.
                    let ledger = match stores.ledger().await {
                        // A MySQL of other partitions would give wrong answers about orders that it never had.
                        Err(error) if error.is::<InvalidInput>() => return Err(error),
                        reached => reached.or_else(|_| stores.ledger_unreached())?,
                    };
                    Step::Drop(Drop { dead, redis, ledger })
                }
            }
        };
        Ok(Self { action, dead, redis, stream, step })
    }

    /// Returns the connections to Redis.
    pub fn redis(&self) -> &RedisStore {
        &self.redis
    }

    /// Predicts the outcome of the requeue, the cancellation or the drop of each selected dead letter, and changes
    /// nothing.
    ///
    /// # Errors
    /// If a store does not answer, or the key holds no stream.
    pub async fn plan(
        &self,
        letters: LetterSelection,
        progress: &dyn Progress,
    ) -> anyhow::Result<LetterPlan> {
        let selection = letters.up_to_now(&self.dead).await?;
        let all = self.dead.count().await.context("Failed to read the dead letters")?;
        progress.expect(selection.length(all), "letters read");
        let (mut draft, mut pages) = (PlanDraft::default(), selection.pages(&self.dead));
        let events = self.buried_events(&selection).await?;
        while let Some(page) = pages.next().await.context("Failed to read the dead letters")? {
            progress.add(page.looked_at);
            for (letter, decision) in page.letters.iter().zip(self.decide(&page.letters, &events).await?) {
                draft.add(self.dead.fields(), letter, decision);
                match decision {
                    LetterDecision::Done => draft.add_following(events.behind(&self.dead, letter)),
                    _ => draft.add_staying(events.behind(&self.dead, letter)),
                }
            }
            draft.missing.extend(page.missing);
        }
        let question = self.question(draft.would, draft.along);
        let mut plan = draft.finish(self.dead.stream_name(), selection, question);
        let vouchers: Vec<VoucherId> = plan.releases.iter().map(|release| release.voucher).collect();
        let stocks = sale::read_stocks(&self.redis, &vouchers).await;
        let stocks = stocks.context("Failed to read the stocks in Redis")?;
        plan.releases.iter_mut().zip(stocks).for_each(|(release, stock)| release.stock = stock);
        if plan.counts.letters == 0 && plan.selection.reason.is_some() {
            plan.other_reasons = self.reasons(&plan.selection).await?;
        }
        Ok(plan)
    }

    /// Counts the reasons of all letters that match the selection except for its reason.
    async fn reasons(&self, selection: &LetterSelection) -> anyhow::Result<Vec<ReasonCount>> {
        let (mut counts, any) = (BTreeMap::new(), LetterSelection { reason: None, ..selection.clone() });
        let mut pages = any.pages(&self.dead);
        while let Some(page) = pages.next().await.context("Failed to read the dead letters")? {
            for letter in &page.letters {
                *counts.entry(reason_of(letter).to_owned()).or_insert(0) += 1;
            }
        }
        Ok(counts.into_iter().map(|(reason, letters)| ReasonCount { reason, letters }).collect())
    }

    /// Reads the events of dead orders, which only a requeue handles together with the orders.
    async fn buried_events(&self, selection: &LetterSelection) -> anyhow::Result<BuriedEvents> {
        match self.action {
            LetterAction::Requeue { .. } => BuriedEvents::read(&self.dead, selection).await,
            LetterAction::Cancel | LetterAction::Drop => Ok(BuriedEvents::default()),
        }
    }

    fn question(&self, letters: u64, along: u64) -> String {
        let letters = counted(letters, "letter");
        let along = match along {
            0 => String::new(),
            along => format!(", and {} of these orders after them", counted(along, "event")),
        };
        match self.action {
            LetterAction::Requeue { .. } => format!("Put {letters} back into {}{along}?", self.stream),
            LetterAction::Cancel => format!("Cancel the orders of {letters} forever?"),
            LetterAction::Drop => format!("Delete {letters} forever?"),
        }
    }

    /// Returns an empty report, which [`LetterChange::run`] fills.
    pub fn report(&self, plan: &LetterPlan) -> LetterReport {
        LetterReport {
            stream: plan.stream.clone(),
            what: match self.action {
                LetterAction::Requeue { .. } => "requeued",
                LetterAction::Cancel => "cancelled",
                LetterAction::Drop => "dropped",
            },
            letters: 0,
            first: Vec::new(),
            along: 0,
            gone: 0,
            released: 0,
            stay: RetainedLetters::default(),
            missing: plan.missing.clone(),
            rest: self.request(plan.selection.clone()),
        }
    }

    /// Requeues, cancels or drops the dead letters of the plan, page by page.
    ///
    /// # Errors
    /// If a store does not answer; the report holds what was done and what is left.
    pub async fn run(&self, plan: &LetterPlan, report: &mut LetterReport, job: &Job) -> anyhow::Result<End> {
        job.progress.expect(plan.counts.letters, "letters");
        let events = self.buried_events(&plan.selection).await?;
        let (mut pages, mut seen) = (plan.selection.pages(&self.dead), 0);
        loop {
            report.rest = self.request(pages.rest());
            let Some(page) = pages.next().await.context("Failed to read the dead letters")? else { break };
            if job.is_stopped() {
                return Ok(End::Stopped);
            }
            let PageEnd { settled, followed, left: events_left, outage } =
                self.run_page(&page.letters, &events, report).await?;
            if let Some(outage) = outage {
                let left = page.letters.iter().find(|letter| !settled.contains(&letter.id));
                let after = left.map(|letter| letter.id.previous());
                let mut rest = plan.selection.after(after, &settled);
                // The orders of these events are in the stream, so the events are ordinary letters from now on.
                rest.ids.iter_mut().for_each(|ids| ids.extend(&events_left));
                report.rest = self.request(rest);
                return Err(outage.into());
            }
            seen += page.letters.len() as u64;
            // These letters belong to later pages, where they will not be found any more.
            let last = page.letters.last().map(|letter| letter.id);
            seen += followed.iter().filter(|letter| Some(**letter) > last).count() as u64;
            job.progress.add(page.letters.len() as u64);
        }
        // Letters that the plan has counted and the run has not found.
        report.gone += plan.counts.letters.saturating_sub(seen);
        Ok(End::Whole)
    }

    async fn run_page(
        &self,
        letters: &[Letter],
        events: &BuriedEvents,
        report: &mut LetterReport,
    ) -> anyhow::Result<PageEnd> {
        let decisions = self.decide(letters, events).await?;
        let (mut going, mut staying, mut leading) = (Vec::new(), Vec::new(), Vec::new());
        for (letter, decision) in letters.iter().zip(decisions) {
            match decision {
                LetterDecision::Stays(blocker) => staying.push((letter, blocker)),
                LetterDecision::FollowsItsOrder => {}
                LetterDecision::Done | LetterDecision::Releases(_) | LetterDecision::DiesAgain(_) => {
                    going.push(letter);
                    leading.extend((decision == LetterDecision::Done).then_some(letter.id));
                }
            }
        }
        let outcomes = self.step.apply(&going).await?;
        let staying =
            staying.into_iter().map(|(letter, blocker)| (letter, Ok(LetterOutcome::Stays(blocker, None))));
        let mut end = PageEnd::default();
        for (letter, outcome) in going.into_iter().zip(outcomes).chain(staying) {
            let behind = events.behind(&self.dead, letter);
            match outcome {
                Ok(outcome) => {
                    let leads = matches!(outcome, LetterOutcome::Done(_)) && leading.contains(&letter.id);
                    report.add(letter.id, outcome);
                    end.settled.insert(letter.id);
                    match &self.step {
                        Step::Requeue(requeue) if leads => {
                            end.add(requeue.apply_behind(behind).await, report);
                        }
                        _ => report.add_staying(behind),
                    }
                }
                Err(error) => end.outage = Some(error),
            }
        }
        Ok(end)
    }

    /// Predicts the outcome of letters, with the events of dead orders at their places.
    async fn decide(&self, letters: &[Letter], events: &BuriedEvents) -> anyhow::Result<Vec<LetterDecision>> {
        let decisions = self.step.decide(letters).await.context("Failed to read the orders")?;
        let belonging =
            |(letter, decision): (&Letter, LetterDecision)| match events.belongs(&self.dead, letter) {
                _ if matches!(decision, LetterDecision::Stays(_)) => decision,
                Belongs::Nowhere => decision,
                Belongs::BehindSelected => LetterDecision::FollowsItsOrder,
                Belongs::BehindOther => LetterDecision::Stays(LetterBlocker::OrderIsDead),
            };
        Ok(letters.iter().zip(decisions).map(belonging).collect())
    }

    fn request(&self, letters: LetterSelection) -> LetterRequest {
        LetterRequest { action: self.action, letters }
    }
}
