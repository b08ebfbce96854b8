//! A line of the operators' log. The fields of its entry are named here and nowhere else.

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

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandOutcome {
    /// It begins. Without a later line that names it, it is at work, or it was killed.
    Began,
    /// All was done.
    Done,
    /// A part was done, and the rest was refused or is left.
    Partly,
    /// The stores refused it.
    Refused,
    /// A signal stopped it before all was done.
    Stopped,
    /// It failed.
    Failed,
}

impl CommandOutcome {
    /// All of them.
    const ALL: [Self; 6] =
        [Self::Began, Self::Done, Self::Partly, Self::Refused, Self::Stopped, Self::Failed];

    /// Its word in the log.
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

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogLine {
    /// Its entry in the stream.
    pub id: EntryId,
    /// When it was written, by the clock of Redis.
    pub at: Option<Timestamp>,
    /// Who typed the command.
    pub who: String,
    /// Its words.
    pub command: String,
    /// Its flags, without those of the configuration.
    pub arguments: String,
    /// None: another version wrote something unknown.
    pub outcome: Option<CommandOutcome>,
    /// The line with which it began; None for that line itself.
    pub began: Option<String>,
    /// What was done, in numbers.
    pub counts: Option<Json>,
    /// Why it failed.
    pub error: Option<String>,
}

impl LogLine {
    /// Reads what [`super::Record`] has written.
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
