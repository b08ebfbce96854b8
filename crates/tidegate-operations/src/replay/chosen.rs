//! Replays entries of the stream that another operation has chosen one by one.

use tidegate_stream::Entry;
use tokio_util::sync::CancellationToken;

use super::{ReplayOutcomes, ReplayPlan, ReplayReport, ReplayRequest, ReplaySource, batch::BatchRunner};
use crate::{Stores, entry_source::EntrySource, selection::EntryFilter};

/// Replays entries that another operation chose. It publishes their results even if they were published before.
#[derive(Debug)]
pub struct ChosenEntries {
    runner: BatchRunner,
    request: ReplayRequest,
}

/// The outcome of chosen entries.
#[derive(Debug)]
pub struct ChosenOutcome {
    /// The counts of the outcomes, with the entries that an operator should check.
    pub outcomes: ReplayOutcomes,
    /// Whether the run was stopped before all entries were replayed.
    pub is_stopped: bool,
}

impl ChosenEntries {
    /// Creates a replay of chosen entries. The entries are read from `source`.
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

    /// Replays a batch in its order; entries of one order must be in the order of their ids. Entries whose users or
    /// vouchers are held by other processes are retried for a while.
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
