//! The shape of every operation that changes something: a plan of the change, work that can be stopped between two
//! steps, and a report of what was done.

use std::fmt::Debug;

use serde::Serialize;
use serde_json::Value as Json;

/// The plan of an operator's command: the data that the command read, and the changes that the command would make. A
/// dry run prints the plan as JSON.
pub trait Plan: Serialize {
    /// Returns the step that follows the plan.
    fn next(&self) -> Next;
}

/// The step that follows the plan of an operator's command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Everything that was asked for is already done.
    NothingToDo,
    /// The operation cannot or must not be done; the plan holds the reason.
    Refused,
    /// The operation runs without a question, because its name says what it does.
    Go,
    /// The operation destroys data or may surprise, so this question comes first, such as `Delete 12 entries of
    /// stream.orders?`.
    Ask(String),
}

/// The report of an operator's command: the changes that the command has made so far.
pub trait Report: Serialize {
    /// Returns the numbers for the operators' log as a JSON object, such as `{"deleted": 12}`. A thing that exists at
    /// most once is true or false.
    fn counts(&self) -> Json;

    /// Returns how the operation ended, if the work was not stopped.
    fn ending(&self) -> Ending {
        Ending::Done
    }

    /// Describes what may be undone or half done if the work is killed in the middle of a step.
    fn torn(&self) -> &'static str {
        "the interrupted step may or may not be done"
    }
}

/// The result of an operation that ran to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The operation did everything that was asked for.
    Done,
    /// The stores refused the operation, and would refuse it again.
    Refused,
    /// A part is done, and the stores refused the rest.
    Partly,
    /// A part is left, which the same request can complete.
    Left,
}

/// Whether a function has done all its work, or was stopped before the end of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The work reached its end.
    Whole,
    /// The work stopped because of [`Job::is_stopped`](tidegate_compare::Job::is_stopped), and something is left.
    Stopped,
}

/// The error for input that contradicts itself or the stores. The operation changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidInput(pub String);
