//! Why the two stores could not be compared.

use tidegate_orders::{CatchUpError, NodeBehind, RecordsError, gate::GateError};
use tidegate_stream::{StreamError, readable};

/// Why the two stores could not be compared. Each text is complete. No variant has a source, because the text contains it.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// Redis did not answer as it should.
    #[error("Failed to read Redis: {}", readable(&.0.to_string()))]
    Redis(StreamError),
    /// Redis did not answer as it should.
    #[error("Failed to read Redis: {0}")]
    Gate(GateError),
    /// MySQL did not answer as it should.
    #[error("Failed to read MySQL: {0}")]
    Mysql(RecordsError),
    /// The node of MySQL lags, so what it does not show may be there.
    #[error("nothing is known: {0}")]
    Behind(NodeBehind),
    /// The caller stopped the comparison.
    #[error("stopped before the end: nothing is known")]
    Stopped,
}

impl CompareError {
    /// What Redis says of a key that holds something else than it should; every other error is one.
    pub(crate) fn wrong_key(self) -> Result<String, Self> {
        let said = match &self {
            Self::Redis(StreamError::Redis(error)) => error.details(),
            Self::Gate(GateError::Refused(error)) => error.details(),
            Self::Gate(GateError::Unexpected { .. }) => return Ok(self.to_string()),
            _ => return Err(self),
        };
        if is_of_other_type(said) { Ok(readable(said).to_owned()) } else { Err(self) }
    }
}

/// By the details of an error of Redis: a key holds something of another type than it should.
pub(crate) fn is_of_other_type(details: &str) -> bool {
    details.contains("WRONGTYPE")
}

impl From<StreamError> for CompareError {
    fn from(error: StreamError) -> Self {
        Self::Redis(error)
    }
}

impl From<GateError> for CompareError {
    fn from(error: GateError) -> Self {
        Self::Gate(error)
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
