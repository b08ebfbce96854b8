//! The request of a requeue, cancel or drop: the action, and the letters to which it applies.

use super::selection::LetterSelection;

/// The number of requeues after which a letter needs `force`: a letter that was buried again so often will most likely
/// be buried again.
pub(crate) const REQUEUE_LIMIT: u32 = 3;

/// The action on dead letters: requeue, cancel or drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterAction {
    /// Append the entries of the letters to the stream again.
    Requeue {
        /// Whether to requeue letters that were already requeued three times.
        force: bool,
    },
    /// Cancel the orders of the letters, and release them.
    Cancel,
    /// Delete the letters without any other change.
    Drop,
}

/// The request to requeue, cancel or drop the selected dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterRequest {
    /// The action on the selected letters: requeue, cancel or drop.
    pub action: LetterAction,
    /// The selection of the letters.
    pub letters: LetterSelection,
}
