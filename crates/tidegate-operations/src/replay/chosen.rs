//! Runs entries of the stream again that another operation has chosen one by one.

use tidegate_stream::Entry;
use tokio_util::sync::CancellationToken;

use super::{ReplayOutcomes, ReplayPlan, ReplayReport, ReplayRequest, ReplaySource, batch::BatchRunner};
use crate::{Stores, entry_source::EntrySource, selection::EntryFilter};

/// Runs chosen entries again. What becomes of them is published, also where it was before.
#[derive(Debug)]
pub struct ChosenEntries {
    runner: BatchRunner,
    request: ReplayRequest,
}

/// What became of chosen entries.
#[derive(Debug)]
pub struct ChosenOutcome {
    /// Counted, with those that need a look.
    pub outcomes: ReplayOutcomes,
    /// A stop came before all of them were run.
    pub is_stopped: bool,
}

impl ChosenEntries {
    /// The entries are read from `source`.
    ///
    /// # Errors
    /// When a store cannot be reached.
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

    /// Runs a batch, in its order: entries of one order as they follow each other. Those whose users or vouchers others hold are
    /// tried again for a while.
    ///
    /// # Errors
    /// When a store does not answer; to run the same again does no harm.
    pub async fn run(&self, batch: &[Entry], stop: &CancellationToken) -> anyhow::Result<ChosenOutcome> {
        let plan = ReplayPlan::new(String::new(), (None, None), self.request.clone());
        let mut report = ReplayReport::new(&plan);
        let stopped_at = self.runner.run(batch, &mut report, stop).await?;
        Ok(ChosenOutcome { outcomes: report.outcomes, is_stopped: stopped_at.is_some() })
    }
}
