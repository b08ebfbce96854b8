//! The report of a requeue, cancel or drop of the selected letters.

use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_stream::EntryId;

use super::{
    buried_events::BuriedEvent,
    outcome::{EndedLetter, LetterBlocker, LetterOutcome, MOST_NAMED, RetainedLetters},
    request::LetterRequest,
};
use crate::change::{Ending, Report};

/// The report of a requeue, a cancellation or a drop of dead letters.
#[derive(Clone, Debug, Serialize)]
pub struct LetterReport {
    /// The key of the stream that held the dead letters.
    pub stream: String,
    /// The change that was made to the letters: `requeued`, `cancelled` or `dropped`.
    pub what: &'static str,
    /// The number of letters that were requeued, cancelled or dropped.
    pub letters: u64,
    /// The first letters that were requeued, cancelled or dropped.
    pub first: Vec<EndedLetter>,
    /// The number of requeued letters that hold events, which were requeued after the orders of these events.
    pub along: u64,
    /// The number of selected dead letters that another program removed before this command reached them.
    pub gone: u64,
    /// The number of letters whose orders another program had cancelled in MySQL, and whose units this command returned
    /// to the stock.
    pub released: u64,
    /// The selected dead letters that the command did not change, grouped by reason.
    pub stay: RetainedLetters,
    /// The ids in the request for which no dead letter exists.
    pub missing: Vec<EntryId>,
    /// The request that continues this change with the dead letters that the command has not reached.
    #[serde(skip)]
    pub rest: LetterRequest,
}

impl Report for LetterReport {
    fn counts(&self) -> Json {
        let stay = self.stay.count() + self.missing.len() as u64;
        json!({ self.what: self.letters, "gone": self.gone, "stay": stay })
    }

    fn ending(&self) -> Ending {
        let is_all_done = self.stay.count() == 0 && self.missing.is_empty();
        match (is_all_done, self.letters) {
            (true, _) => Ending::Done,
            (false, 0) => Ending::Refused,
            (false, _) => Ending::Partly,
        }
    }
}

impl LetterReport {
    /// Adds the selected events that stay because their order stays.
    pub(super) fn add_staying(&mut self, events: &[BuriedEvent]) {
        for event in events.iter().filter(|event| event.is_selected) {
            self.stay.add(LetterBlocker::OrderIsDead, event.letter, None);
        }
    }

    pub(super) fn add(&mut self, letter: EntryId, outcome: LetterOutcome) {
        match outcome {
            LetterOutcome::Done(ended) => {
                self.letters += 1;
                self.first.extend((self.first.len() < MOST_NAMED).then_some(ended));
            }
            LetterOutcome::Gone => self.gone += 1,
            LetterOutcome::Released => {
                self.gone += 1;
                self.released += 1;
            }
            LetterOutcome::Stays(blocker, error) => self.stay.add(blocker, letter, error),
        }
    }
}
