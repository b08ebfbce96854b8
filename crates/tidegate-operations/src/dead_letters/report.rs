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

/// The actual outcome of the selected letters.
#[derive(Clone, Debug, Serialize)]
pub struct LetterReport {
    /// The stream that held the letters.
    pub stream: String,
    /// The change that was made to the letters: `requeued`, `cancelled` or `dropped`.
    pub what: &'static str,
    /// The number of letters that were ended.
    pub letters: u64,
    /// The first letters that were ended.
    pub first: Vec<EndedLetter>,
    /// The number of these that are events requeued after their orders.
    pub along: u64,
    /// The letters that did not exist any more: another program was faster.
    pub gone: u64,
    /// The number of these whose orders another program cancelled, and which this command released.
    pub released: u64,
    /// The letters that stay, by reason.
    pub stay: RetainedLetters,
    /// The requested ids that do not exist.
    pub missing: Vec<EntryId>,
    /// The request that continues this one.
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
