//! The outcomes of the events of unpaid orders, counted.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};
use tidegate_orders::{VoucherId, event::EventRejection};

use super::{ReleasePlan, is_settled};
use crate::{
    change::{Ending, Report},
    order_event::{SentEvent, SentEventOutcome},
};

/// The orders that are named one by one, at most.
const MOST_NAMED: usize = 20;

/// The report of cancelling the unpaid orders of a voucher.
#[derive(Clone, Debug)]
pub struct ReleaseReport {
    /// The voucher whose unpaid orders were cancelled.
    pub voucher: VoucherId,
    /// The counts of the events for which the command no longer waits.
    settled: ReleaseCounts,
    /// The first of these events that did not end their orders.
    first: Vec<SentEvent>,
    /// The events that may be in the stream and whose outcome is not known yet.
    pub(super) in_progress: Vec<SentEvent>,
    /// Whether some orders got no event, because workers record nothing, or because the command was stopped.
    pub(super) is_cut_short: bool,
    /// Whether a living worker reads the stream. None: this was not checked, because all events are recorded.
    pub workers_live: Option<bool>,
}

/// The numbers of cancellation events that were appended, by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReleaseCounts {
    /// The number of events that cancelled their orders.
    pub applied: u64,
    /// The number of events whose orders were cancelled already.
    pub unchanged: u64,
    /// The number of events that could not cancel their orders, for each reason.
    pub rejected: BTreeMap<&'static str, u64>,
    /// The number of events that are in the stream, but that no worker has recorded yet.
    pub not_recorded: u64,
    /// The number of events that may or may not be in the stream, because Redis did not confirm them.
    pub unknown: u64,
    /// The number of events that Redis refused to append.
    pub not_appended: u64,
    /// The number of units that the cancellations returned to the stock.
    pub units: i64,
}

impl ReleaseCounts {
    fn add(&mut self, sent: &SentEvent) {
        self.units += sent.moved.released;
        match (sent.fate, sent.rejection) {
            (SentEventOutcome::Applied, _) => self.applied += 1,
            // An `expired` event never makes a refund due, because it is no payment.
            (SentEventOutcome::Unchanged | SentEventOutcome::RefundDue, _) => self.unchanged += 1,
            (SentEventOutcome::Rejected, why) => {
                *self.rejected.entry(why.map_or("", EventRejection::word)).or_default() += 1;
            }
            (SentEventOutcome::NotRecorded, _) => self.not_recorded += 1,
            (SentEventOutcome::Unknown, _) => self.unknown += 1,
            (SentEventOutcome::NotAppended, _) => self.not_appended += 1,
        }
    }
}

impl ReleaseReport {
    /// Creates a report in which no event is appended yet.
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

    /// Returns the numbers of cancellation events by outcome.
    #[must_use]
    pub fn counts(&self) -> ReleaseCounts {
        let mut counts = self.settled.clone();
        self.in_progress.iter().for_each(|sent| counts.add(sent));
        counts
    }

    /// Returns the first events that did not cancel their orders.
    pub fn first(&self) -> impl Iterator<Item = &SentEvent> {
        let in_progress = self.in_progress.iter().filter(|sent| !is_plain(sent));
        self.first.iter().chain(in_progress).take(MOST_NAMED)
    }

    /// Returns whether the operation stopped before it had appended an event for each order.
    #[must_use]
    pub fn is_cut_short(&self) -> bool {
        self.is_cut_short
    }

    /// Counts the events whose outcome is known, and forgets them.
    pub(super) fn settle(&mut self) {
        for sent in self.in_progress.extract_if(.., |sent| is_settled(sent)) {
            self.settled.add(&sent);
            if !is_plain(&sent) && self.first.len() < MOST_NAMED {
                self.first.push(sent);
            }
        }
    }

    /// Returns whether an event was rejected for another reason than that the order had changed in the meantime.
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
    matches!(sent.fate, SentEventOutcome::Applied | SentEventOutcome::Unchanged)
}

/// The form of the report in JSON.
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
        "events whose outcome is unknown may or may not be in the stream; it is harmless to append them again"
    }
}
