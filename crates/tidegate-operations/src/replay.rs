//! Runs entries of the stream or of a file again, through the same handler as a lane. What is there already stays as it is.

mod batch;
mod chosen;
mod pace;
mod report;
mod source;

use std::num::NonZeroU32;

use anyhow::Context;
use serde::Serialize;
use tidegate_compare::{Job, Progress, text::counted};
use tidegate_orders::{DryRun, Partition, wire::FieldNames};
use tidegate_stream::{EntryId, StreamInspector};

pub use self::chosen::{ChosenEntries, ChosenOutcome};
use self::{
    batch::BatchRunner,
    pace::Pace,
    source::{EntryReader, FileReader},
};
pub use self::{
    report::{EntryRemark, RemarkKind, ReplayCounts, ReplayOutcomes, ReplayReport},
    source::ReplaySource,
};
use crate::{
    Stores,
    change::{End, Next, Plan},
    entry_source::EntrySource,
    selection::{EntryFilter, EntrySelection, Page, StreamPages},
};

/// Which entries to run again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayRequest {
    /// Where they are read.
    pub source: ReplaySource,
    /// The first that may be one of them; None: from the beginning.
    pub first: Option<EntryId>,
    /// The last that may be; None: to the end. Of a stream, the end is where it ends when the replay is opened.
    pub last: Option<EntryId>,
    /// What else they must be.
    pub filter: EntryFilter,
    /// Orders a second, at most.
    pub rate: Option<NonZeroU32>,
    /// The results of all entries are published again, not only of those that it acknowledges.
    pub publish: bool,
    /// The plan says what would become of them, which asks the stores about each.
    pub predict: bool,
}

/// What a replay would run.
#[derive(Debug, Serialize)]
pub struct ReplayPlan {
    /// The stream, or the file.
    pub source: String,
    /// The first of the entries.
    #[serde(rename = "from")]
    pub first: Option<EntryId>,
    /// The last of them.
    #[serde(rename = "to")]
    pub last: Option<EntryId>,
    /// How many there are.
    pub entries: u64,
    /// How many of them the group has not read yet.
    pub unread: u64,
    /// What would become of them, with [`ReplayRequest::predict`].
    #[serde(rename = "foreseen")]
    pub predicted: Option<ReplayOutcomes>,
    /// There are so many that this is about right, and no more: orders that come twice may count as two.
    #[serde(rename = "about")]
    pub is_estimate: bool,
    /// The bounds that were asked for.
    #[serde(skip)]
    pub bounds: (Option<EntryId>, Option<EntryId>),
    #[serde(skip)]
    is_sorted: bool,
    #[serde(skip)]
    request: ReplayRequest,
}

impl Plan for ReplayPlan {
    fn next(&self) -> Next {
        match self.entries {
            0 => Next::NothingToDo,
            entries => Next::Ask(format!("Run {} of {} again?", counted(entries, "entry"), self.source)),
        }
    }
}

impl ReplayPlan {
    fn new(source: String, bounds: (Option<EntryId>, Option<EntryId>), request: ReplayRequest) -> Self {
        Self {
            source,
            bounds,
            first: None,
            last: None,
            entries: 0,
            unread: 0,
            predicted: request.predict.then(ReplayOutcomes::default),
            is_estimate: false,
            is_sorted: true,
            request,
        }
    }

    /// Counts entries; those after `delivered` are unread.
    fn add(&mut self, ids: impl Iterator<Item = EntryId>, delivered: Option<EntryId>) {
        for id in ids {
            self.first = Some(self.first.map_or(id, |first| first.min(id)));
            self.last = self.last.max(Some(id));
            self.entries += 1;
            self.unread += u64::from(delivered.is_some_and(|delivered| id > delivered));
        }
    }
}

/// Runs entries again.
#[derive(Debug)]
pub struct Replay {
    request: ReplayRequest,
    /// The bounds that were asked for, before the end of the stream cut them.
    bounds: (Option<EntryId>, Option<EntryId>),
    selection: EntrySelection,
    inspector: StreamInspector,
    partition: Partition,
    fields: FieldNames,
    batch: usize,
    runner: BatchRunner,
}

impl Replay {
    /// Looks at the source, then connects to MySQL.
    ///
    /// # Errors
    /// When a store does not answer, the file cannot be read, or the last entry comes before the first.
    pub async fn open(stores: &Stores, mut request: ReplayRequest) -> anyhow::Result<Self> {
        let settings = stores.settings();
        let source = EntrySource::open(settings, stores.redis().await?).await?;
        let inspector = source.inspector.clone();
        let bounds = (request.first, request.last);
        let range = (request.first.unwrap_or(EntryId::MIN), request.last.unwrap_or(EntryId::MAX));
        let mut selection = EntrySelection::new(range, request.filter)?;
        match &request.source {
            // What comes in from now on is not meant: it would never end.
            ReplaySource::Stream => {
                let end = inspector.last_id(&inspector.names().stream).await;
                selection.last = selection.last.min(end.context("Failed to read the stream")?);
                request.last = Some(selection.last);
            }
            // Before MySQL: what is wrong with the file is said even without.
            ReplaySource::File(path) => {
                let of = (settings.partition().clone(), settings.keys.fields.clone());
                FileReader::open(path, of, selection)?;
            }
        }
        let runner = BatchRunner::open(stores, &source, &request).await?;
        let (fields, batch) = (settings.keys.fields.clone(), settings.fleet.batch);
        let partition = settings.partition().clone();
        Ok(Self { request, bounds, selection, inspector, partition, fields, batch, runner })
    }

    /// Reads all entries that would be run.
    ///
    /// # Errors
    /// When a store does not answer, or a line of the file is no entry.
    pub async fn plan(&self, progress: &dyn Progress) -> anyhow::Result<ReplayPlan> {
        let mut plan = ReplayPlan::new(self.source_name(), self.bounds, self.request.clone());
        let delivered = match self.request.source {
            ReplaySource::Stream => Some(self.inspector.group().last_delivered().await?.unwrap_or_default()),
            ReplaySource::File(_) => None,
        };
        let (mut reader, mut before) = (self.reader()?, DryRun::default());
        match &reader {
            EntryReader::Stream(_) => {
                progress.expect(self.inspector.length(&plan.source).await?, "entries looked at, at most");
            }
            EntryReader::File(lines) => progress.expect(lines.length()?, "bytes looked at"),
        }
        while let Some(Page { entries, looked_at }) = reader.next(self.page()).await? {
            plan.add(entries.iter().map(|entry| entry.id), delivered);
            if let Some(outcomes) = &mut plan.predicted {
                self.runner.predict(&entries, &mut before, outcomes).await.context("Failed to look")?;
            }
            progress.add(looked_at);
        }
        plan.is_estimate = before.has_forgotten();
        plan.is_sorted = reader.is_sorted();
        Ok(plan)
    }

    /// Runs them batch by batch, and adds each batch to `report`.
    ///
    /// # Errors
    /// When a store does not answer, or the file cannot be read any more.
    pub async fn run(&self, plan: &ReplayPlan, report: &mut ReplayReport, job: &Job) -> anyhow::Result<End> {
        job.progress.expect(plan.entries, "entries");
        let (mut reader, mut pace) = (self.reader()?, Pace::new(self.request.rate));
        let step = pace.step(self.page().into());
        while let Some(page) = reader.next(self.page()).await? {
            for batch in page.entries.chunks(step) {
                report.is_at(batch[0].id);
                if job.is_stopped() || !pace.wait_for(batch.len(), &job.stop).await {
                    return Ok(End::Stopped);
                }
                if let Some(next) = self.runner.run(batch, report, &job.stop).await? {
                    report.is_at(next);
                    return Ok(End::Stopped);
                }
                job.progress.add(batch.len() as u64);
            }
            match page.entries.last() {
                Some(last) => report.is_at(last.id.next()),
                None if job.is_stopped() => return Ok(End::Stopped),
                None => {}
            }
        }
        Ok(End::Whole)
    }

    fn source_name(&self) -> String {
        match &self.request.source {
            ReplaySource::Stream => self.inspector.names().stream.clone(),
            ReplaySource::File(path) => path.display().to_string(),
        }
    }

    fn reader(&self) -> anyhow::Result<EntryReader> {
        let fields = self.fields.clone();
        Ok(match &self.request.source {
            ReplaySource::Stream => {
                EntryReader::Stream(StreamPages::new(self.inspector.clone(), fields, self.selection))
            }
            ReplaySource::File(path) => {
                let of = (self.partition.clone(), fields);
                EntryReader::File(FileReader::open(path, of, self.selection)?)
            }
        })
    }

    /// Entries to read at once.
    fn page(&self) -> u16 {
        u16::try_from(self.batch).unwrap_or(u16::MAX)
    }
}
