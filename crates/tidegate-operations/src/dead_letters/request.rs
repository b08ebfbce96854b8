//! What is asked for: an action, and the letters that it is done to.

use super::selection::LetterSelection;

/// How often a letter may be put back before somebody has to insist: what died so often most likely dies again.
pub(crate) const REQUEUE_LIMIT: u32 = 3;

/// What is done to letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterAction {
    /// Put them back into the stream.
    Requeue {
        /// Also those that were put back three times.
        force: bool,
    },
    /// Release their orders.
    Cancel,
    /// Delete them.
    Drop,
}

/// What is done, and to which letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterRequest {
    /// What is done.
    pub action: LetterAction,
    /// To these.
    pub letters: LetterSelection,
}
