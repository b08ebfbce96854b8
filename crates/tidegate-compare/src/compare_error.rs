//! The reasons why a comparison of Redis and MySQL failed.

use tidegate_orders::{CatchUpError, NodeBehind, RecordsError, scripts::ScriptError};
use tidegate_stream::{StreamError, readable};

/// The reason why a comparison of Redis and MySQL failed. The text of each variant includes its cause.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// Redis did not answer, or answered with an error.
    #[error("Failed to read Redis: {}", readable(&.0.to_string()))]
    Redis(StreamError),
    /// Redis answered a script with an error or an unexpected reply.
    #[error("Failed to read Redis: {0}")]
    Script(ScriptError),
    /// MySQL did not answer, or answered with an error.
    #[error("Failed to read MySQL: {0}")]
    Mysql(RecordsError),
    /// The MySQL node lags, so a row that it does not show may exist.
    #[error("the result is unknown: {0}")]
    Behind(NodeBehind),
    /// The caller stopped the comparison.
    #[error("the comparison was stopped before its end, so the result is unknown")]
    Stopped,
}

impl CompareError {
    /// Returns the message of Redis about a key with a wrong type or content. Every other error is returned as an
    /// error.
    pub(crate) fn wrong_key(self) -> Result<String, Self> {
        let said = match &self {
            Self::Redis(StreamError::Redis(error)) => error.details(),
            Self::Script(ScriptError::Refused(error)) => error.details(),
            Self::Script(ScriptError::Unexpected { .. }) => return Ok(self.to_string()),
            _ => return Err(self),
        };
        if is_of_other_type(said) { Ok(readable(said).to_owned()) } else { Err(self) }
    }
}

/// Whether the details of a Redis error say that a key has a wrong type.
pub(crate) fn is_of_other_type(details: &str) -> bool {
    details.contains("WRONGTYPE")
}

impl From<StreamError> for CompareError {
    fn from(error: StreamError) -> Self {
        Self::Redis(error)
    }
}

impl From<ScriptError> for CompareError {
    fn from(error: ScriptError) -> Self {
        Self::Script(error)
    }
}

impl From<RecordsError> for CompareError {
    fn from(error: RecordsError) -> Self {
        Self::Mysql(error)
    }
}

impl From<CatchUpError> for CompareError {
    fn from(error: CatchUpError) -> Self {
        match error {
            CatchUpError::Behind(behind) => Self::Behind(behind),
            CatchUpError::Server(error) => Self::Mysql(error.into()),
        }
    }
}
