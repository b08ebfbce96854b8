//! Replays entries of the stream that another operation has chosen one by one.

use tidegate_stream::Entry;
use tokio_util::sync::CancellationToken;

use super::{ReplayOutcomes, ReplayPlan, ReplayReport, ReplayRequest, ReplaySource, batch::BatchRunner};
use crate::{Stores, entry_source::EntrySource, selection::EntryFilter};

/// The operation that replays the entries that another operation has chosen: writes their orders to MySQL again, and
/// publishes their results.
#[derive(Debug)]
pub struct ChosenEntries {
    runner: BatchRunner,
    request: ReplayRequest,
}

/// The outcome of replaying chosen entries.
#[derive(Debug)]
pub struct ChosenOutcome {
    /// The number of entries with each outcome, and the entries that an operator should check.
    pub outcomes: ReplayOutcomes,
    /// Whether the replay was stopped before all entries were replayed.
    pub is_stopped: bool,
}

impl ChosenEntries {
    /// Creates the replay of entries that another operation has chosen. Their content is read from `source`.
    ///
    /// # Errors
    /// If a store cannot be reached.
    pub async fn open(stores: &Stores, source: &EntrySource) -> anyhow::Result<Self> {
        let request = ReplayRequest {
            source: ReplaySource::Stream,
            first: None,
            last: None,
            filter: EntryFilter::default(),
            rate: None,
            publish: true,
            predict: false,
        };
        Ok(Self { runner: BatchRunner::open(stores, source, &request).await?, request })
    }

    /// Replays a batch of entries in the given sequence, in which the entries of one order must be sorted by id. If
    /// another process locks a user or a voucher, retries the entry for some time.
    ///
    /// # Errors
    /// If a store does not answer; it is harmless to replay the same entries again.
    pub async fn run(&self, batch: &[Entry], stop: &CancellationToken) -> anyhow::Result<ChosenOutcome> {
        let plan = ReplayPlan::new(String::new(), (None, None), self.request.clone());
        let mut report = ReplayReport::new(&plan);
        let stopped_at = self.runner.run(batch, &mut report, stop).await?;
        Ok(ChosenOutcome { outcomes: report.outcomes, is_stopped: stopped_at.is_some() })
    }
}
