//! Deleting old entries, so that the stream does not grow for ever.

use std::time::Duration;

use fred::{clients::Pool, types::Value};

use crate::{
    entry::EntryId,
    inspect::server_time_ms,
    script::Script,
    stream::{StreamError, StreamNames},
};

/// Entries that one call deletes at most: some milliseconds of Redis.
const MOST: u64 = 10_000;

/// Deletes entries that are older than the retention and that no group needs any more. What is unread or pending
/// stays, however old. Acknowledged entries of the retention are what a replay can run again.
#[derive(Clone, Debug)]
pub struct Trimmer {
    pool: Pool,
    names: StreamNames,
    script: Script,
    retention: Duration,
}

impl Trimmer {
    /// Keeps the entries of the last `retention`, by the clock of Redis.
    #[must_use]
    pub fn new(pool: Pool, names: StreamNames, retention: Duration) -> Self {
        Self { pool, names, script: Script::new("trim", include_str!("../../../lua/trim.lua")), retention }
    }

    /// Trims once; returns how many entries went.
    ///
    /// # Errors
    /// When Redis does not answer, or the key holds no stream.
    pub async fn run_once(&self) -> Result<u64, StreamError> {
        let retention_ms = u64::try_from(self.retention.as_millis()).unwrap_or(u64::MAX);
        let cutoff_ms = server_time_ms(&self.pool).await?.saturating_sub(retention_ms);
        let cutoff = EntryId { ms: cutoff_ms, seq: 0 }.to_string();
        let mut trimmed = 0;
        loop {
            let keys = vec![self.names.stream.as_str().into()];
            let args: Vec<Value> = vec![cutoff.as_str().into(), MOST.to_string().into()];
            let now: u64 = self.script.call(&self.pool, keys, args).await?.convert()?;
            trimmed += now;
            // Whole nodes go, so a call rarely deletes just as many as it may.
            if now == 0 {
                return Ok(trimmed);
            }
        }
    }
}
