//! A line of the operators' log. Only this module names the fields of its entry.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value as Json;
use tidegate_stream::{Entry, EntryId};

pub(super) const WHO: &str = "who";
pub(super) const COMMAND: &str = "command";
pub(super) const ARGUMENTS: &str = "arguments";
pub(super) const OUTCOME: &str = "outcome";
pub(super) const BEGAN: &str = "began";
pub(super) const COUNTS: &str = "counts";
pub(super) const ERROR: &str = "error";

/// The outcome of a command in the operators' log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandOutcome {
    /// The command has begun its work. If no later line refers to this one, the command still runs, or it was killed.
    Began,
    /// The command did everything that was asked for.
    Done,
    /// A part was done, and the rest was refused or is left.
    Partly,
    /// The stores refused the command.
    Refused,
    /// A signal stopped the command before everything was done.
    Stopped,
    /// The command failed with an error.
    Failed,
}

impl CommandOutcome {
    /// All outcomes of a command.
    const ALL: [Self; 6] =
        [Self::Began, Self::Done, Self::Partly, Self::Refused, Self::Stopped, Self::Failed];

    /// Returns the word that stands for the command's outcome in the operators' log.
    pub fn word(self) -> &'static str {
        match self {
            Self::Began => "began",
            Self::Done => "done",
            Self::Partly => "partly",
            Self::Refused => "refused",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

/// A line of the operators' log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogLine {
    /// The id of the stream entry that holds the log line.
    pub id: EntryId,
    /// The time when the line was written, by the clock of Redis.
    pub at: Option<Timestamp>,
    /// The operator who ran the command.
    pub who: String,
    /// The words of the command, such as `voucher load`.
    pub command: String,
    /// The flags of the command, without the flags that set the configuration.
    pub arguments: String,
    /// The outcome of the command; None: another version of Tidegate wrote an outcome that this version does not know.
    pub outcome: Option<CommandOutcome>,
    /// The id of the log line about the beginning of the same command; None: this line is about the beginning.
    pub began: Option<String>,
    /// The numbers of items that the command changed, such as `{"deleted": 12}`.
    pub counts: Option<Json>,
    /// The error with which the command failed.
    pub error: Option<String>,
}

impl LogLine {
    /// Reads a line that [`super::Record`] has written.
    pub(super) fn parse(Entry { id, mut fields }: Entry) -> Self {
        let mut text = |name: &str| {
            let at = fields.iter().position(|(field, _)| **field == *name.as_bytes())?;
            Some(String::from_utf8_lossy(&fields.swap_remove(at).1).into_owned())
        };
        let outcome = text(OUTCOME);
        Self {
            id,
            at: i64::try_from(id.ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()),
            who: text(WHO).unwrap_or_default(),
            command: text(COMMAND).unwrap_or_default(),
            arguments: text(ARGUMENTS).unwrap_or_default(),
            outcome: CommandOutcome::ALL.into_iter().find(|known| outcome.as_deref() == Some(known.word())),
            began: text(BEGAN),
            counts: text(COUNTS).and_then(|counts| serde_json::from_str(&counts).ok()),
            error: text(ERROR),
        }
    }
}
