//! What became of the events, counted.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};
use tidegate_orders::{VoucherId, event::EventRejection};

use super::{ReleasePlan, is_settled};
use crate::{
    change::{Ending, Report},
    order_event::{EventFate, SentEvent},
};

/// Orders that are named one by one, at most.
const MOST_NAMED: usize = 20;

/// What became of the events of unpaid orders.
#[derive(Clone, Debug)]
pub struct ReleaseReport {
    /// The voucher.
    pub voucher: VoucherId,
    /// What became of those that nobody waits for any more.
    settled: ReleaseCounts,
    /// Of these, the first that did not end their orders.
    first: Vec<SentEvent>,
    /// Events that may be in the stream and of which nobody knows yet what comes.
    pub(super) in_progress: Vec<SentEvent>,
    /// Some orders got no event, because workers record nothing, or because it was stopped.
    pub(super) is_cut_short: bool,
    /// A living worker reads the stream. None: nobody looked, because nothing had to be waited for in vain.
    pub workers_live: Option<bool>,
}

/// Events, counted by what became of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReleaseCounts {
    /// The order is cancelled now.
    pub applied: u64,
    /// It was cancelled already.
    pub unchanged: u64,
    /// The order could not be ended, by reason.
    pub rejected: BTreeMap<&'static str, u64>,
    /// In the stream, and not recorded yet.
    pub not_recorded: u64,
    /// In the stream or not: Redis did not say.
    pub unknown: u64,
    /// Redis refused to take it.
    pub not_appended: u64,
    /// Units that went back.
    pub units: i64,
}

impl ReleaseCounts {
    fn add(&mut self, sent: &SentEvent) {
        self.units += sent.moved.released;
        match (sent.fate, sent.rejection) {
            (EventFate::Applied, _) => self.applied += 1,
            // No expiry is a payment.
            (EventFate::Unchanged | EventFate::RefundDue, _) => self.unchanged += 1,
            (EventFate::Rejected, why) => {
                *self.rejected.entry(why.map_or("", EventRejection::word)).or_default() += 1;
            }
            (EventFate::NotRecorded, _) => self.not_recorded += 1,
            (EventFate::Unknown, _) => self.unknown += 1,
            (EventFate::NotAppended, _) => self.not_appended += 1,
        }
    }
}

impl ReleaseReport {
    /// Nothing is appended yet.
    #[must_use]
    pub fn new(plan: &ReleasePlan) -> Self {
        Self {
            voucher: plan.voucher,
            settled: ReleaseCounts::default(),
            first: Vec::new(),
            in_progress: Vec::new(),
            is_cut_short: false,
            workers_live: None,
        }
    }

    /// What became of all of them.
    #[must_use]
    pub fn counts(&self) -> ReleaseCounts {
        let mut counts = self.settled.clone();
        self.in_progress.iter().for_each(|sent| counts.add(sent));
        counts
    }

    /// The first that did not end their orders.
    pub fn first(&self) -> impl Iterator<Item = &SentEvent> {
        let in_progress = self.in_progress.iter().filter(|sent| !is_plain(sent));
        self.first.iter().chain(in_progress).take(MOST_NAMED)
    }

    /// Some orders got no event.
    #[must_use]
    pub fn is_cut_short(&self) -> bool {
        self.is_cut_short
    }

    /// Counts those of which it is known what became of them, and forgets them.
    pub(super) fn settle(&mut self) {
        for sent in self.in_progress.extract_if(.., |sent| is_settled(sent)) {
            self.settled.add(&sent);
            if !is_plain(&sent) && self.first.len() < MOST_NAMED {
                self.first.push(sent);
            }
        }
    }

    /// Rejected, and not because the order went on by itself meanwhile.
    fn is_contradicted(&self) -> bool {
        let moved = [
            EventRejection::Paid,
            EventRejection::Used,
            EventRejection::Cancelled,
            EventRejection::Refunding,
            EventRejection::Refunded,
        ];
        self.counts().rejected.keys().any(|word| !moved.iter().any(|moved| moved.word() == *word))
    }
}

fn is_plain(sent: &SentEvent) -> bool {
    matches!(sent.fate, EventFate::Applied | EventFate::Unchanged)
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Told<'a> {
    voucher: VoucherId,
    event: &'static str,
    outcomes: ReleaseCounts,
    first: Vec<&'a SentEvent>,
    cut_short: bool,
    workers_live: Option<bool>,
}

impl Serialize for ReleaseReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { voucher, workers_live, is_cut_short: cut_short, .. } = *self;
        let (outcomes, first) = (self.counts(), self.first().collect());
        Told { voucher, event: "expired", outcomes, first, cut_short, workers_live }.serialize(serializer)
    }
}

impl Report for ReleaseReport {
    fn counts(&self) -> Json {
        let ReleaseCounts { applied, unchanged, rejected, not_recorded, unknown, not_appended, units } =
            self.counts();
        let rejected: u64 = rejected.values().sum();
        json!({
            "applied": applied, "unchanged": unchanged, "rejected": rejected, "not_recorded": not_recorded,
            "unknown": unknown, "not_appended": not_appended, "units": units,
        })
    }

    fn ending(&self) -> Ending {
        let counts = self.counts();
        if counts.not_recorded + counts.unknown + counts.not_appended > 0 || self.is_cut_short {
            return Ending::Left;
        }
        match (self.is_contradicted(), counts.applied) {
            (false, _) => Ending::Done,
            (true, 0) => Ending::Refused,
            (true, _) => Ending::Partly,
        }
    }

    fn torn(&self) -> &'static str {
        "events that are called unknown may be in the stream or not; to append them again is harmless"
    }
}
