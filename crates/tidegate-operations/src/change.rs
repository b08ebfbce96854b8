//! The shape of every operation that changes something: a plan of what it would do, work that can be stopped between two
//! steps, and a report of what it did.

use std::fmt::Debug;

use serde::Serialize;
use serde_json::Value as Json;

/// What an operation has read and would do. As JSON it is what a dry run answers with.
pub trait Plan: Serialize {
    /// What comes next.
    fn next(&self) -> Next;
}

/// What comes after a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// All that was asked for is so already.
    NothingToDo,
    /// It cannot or must not be done; the plan says why.
    Refused,
    /// The operation's name says it all: nobody need be asked.
    Go,
    /// It destroys or surprises: this is asked first, such as `Delete 12 entries of stream.orders?`.
    Ask(String),
}

/// What an operation did, or has done so far.
pub trait Report: Serialize {
    /// The numbers for the operators' log, as a JSON object: `{"deleted": 12}`. What is there once or not at all is true or false.
    fn counts(&self) -> Json;

    /// How it ended, if the work came to its end.
    fn ending(&self) -> Ending {
        Ending::Done
    }

    /// What may be left undone or half done if the work is ended in the middle of a step.
    fn torn(&self) -> &'static str {
        "the step in progress may be done or not"
    }
}

/// How work ended that came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All is done.
    Done,
    /// The stores refused it; the same again would not change that.
    Refused,
    /// A part is done, and the stores refused the rest.
    Partly,
    /// A part is left, which the same again may do.
    Left,
}

/// How far work came that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// To its end.
    Whole,
    /// [`Job::is_stopped`](tidegate_compare::Job::is_stopped) was obeyed, and something is left.
    Stopped,
}

/// The input contradicts itself or what is there; nothing was done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidInput(pub String);
