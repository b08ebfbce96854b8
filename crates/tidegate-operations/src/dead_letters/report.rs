//! What became of the selected letters.

use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_stream::EntryId;

use super::{
    buried_events::BuriedEvent,
    outcome::{EndedLetter, LetterOutcome, MOST_NAMED, Obstacle, StayingLetters},
    request::LetterRequest,
};
use crate::change::{Ending, Report};

/// What became of the selected letters.
#[derive(Clone, Debug, Serialize)]
pub struct LetterReport {
    /// The stream in which they stood.
    pub stream: String,
    /// What was done to them: `requeued`, `cancelled` or `dropped`.
    pub what: &'static str,
    /// How many it was done to.
    pub letters: u64,
    /// The first of them.
    pub first: Vec<EndedLetter>,
    /// Of these, the events that went back behind their orders.
    pub along: u64,
    /// Letters that were not there any more: somebody else was faster.
    pub gone: u64,
    /// Of these, the ones whose orders somebody else cancelled, and which were released here.
    pub released: u64,
    /// The ones that stay.
    pub stay: StayingLetters,
    /// Ids that were asked for and are not there.
    pub missing: Vec<EntryId>,
    /// What to ask for to go on.
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
    /// Events that stay because their order does, where they were asked for.
    pub(super) fn add_staying(&mut self, events: &[BuriedEvent]) {
        for event in events.iter().filter(|event| event.is_selected) {
            self.stay.add(Obstacle::OrderIsDead, event.letter, None);
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
            LetterOutcome::Stays(obstacle, error) => self.stay.add(obstacle, letter, error),
        }
    }
}
