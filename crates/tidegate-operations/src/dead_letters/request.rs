//! What is asked for: an action, and the letters that it is done to.

use super::selection::LetterSelection;

/// What is done to letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterAction {
    /// Put them back into the stream.
    Requeue {
        /// Also those that were put back `operator.requeue_limit` times.
        force: bool,
    },
    /// Give their orders back.
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
