//! Replays entries of the stream or of a file through the same handler as a lane. Orders that are already written stay
//! as they are.

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
    report::{EntryWarning, ReplayCounts, ReplayOutcomes, ReplayReport, WarningKind},
    source::ReplaySource,
};
use crate::{
    Stores,
    change::{End, Next, Plan},
    entry_source::EntrySource,
    selection::{EntryFilter, EntrySelection, Page, StreamPages},
};

/// The request to replay stream entries: to write their orders to MySQL again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayRequest {
    /// The stream or the file from which entries are read.
    pub source: ReplaySource,
    /// The first entry id of the range to replay; None: the oldest entry.
    pub first: Option<EntryId>,
    /// The last entry id of the range to replay; None: the last entry of the file, or of the stream when the replay is
    /// opened.
    pub last: Option<EntryId>,
    /// The voucher or user that the entries must have.
    pub filter: EntryFilter,
    /// The highest number of orders to replay per second; None: no limit.
    pub rate: Option<NonZeroU32>,
    /// Whether to publish the results of all entries again, or only the results of entries that the replay
    /// acknowledges.
    pub publish: bool,
    /// Whether the plan predicts the outcome of each entry. For this, the plan reads Redis and MySQL for each entry.
    pub predict: bool,
}

/// The plan of a replay, which writes the orders of entries to MySQL again.
#[derive(Debug, Serialize)]
pub struct ReplayPlan {
    /// The name of the stream, or the path of the file.
    pub source: String,
    /// The id of the first entry to replay; None: there is no entry.
    #[serde(rename = "from")]
    pub first: Option<EntryId>,
    /// The id of the last entry to replay; None: there is no entry.
    #[serde(rename = "to")]
    pub last: Option<EntryId>,
    /// The number of entries to replay.
    pub entries: u64,
    /// The number of entries that no consumer of the group has read yet.
    pub unread: u64,
    /// The predicted outcomes of the entries; None: the request does not ask for a prediction.
    #[serde(rename = "foreseen")]
    pub predicted: Option<ReplayOutcomes>,
    /// Whether the predicted outcomes are only approximate, because there are many entries. In this case, repeated
    /// orders may be counted twice.
    #[serde(rename = "about")]
    pub is_estimate: bool,
    /// The first and the last entry id of the requested range.
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

/// The operation that writes the orders of stream entries, or of the entries in a file, to MySQL again.
#[derive(Debug)]
pub struct Replay {
    request: ReplayRequest,
    /// The bounds that were requested, before the end of the stream limits them.
    bounds: (Option<EntryId>, Option<EntryId>),
    selection: EntrySelection,
    inspector: StreamInspector,
    partition: Partition,
    fields: FieldNames,
    batch: usize,
    runner: BatchRunner,
}

impl Replay {
    /// Checks the file or the stream to replay, and connects to MySQL.
    ///
    /// # Errors
    /// If a store does not answer, the file cannot be read, or the last id comes before the first.
    pub async fn open(stores: &Stores, mut request: ReplayRequest) -> anyhow::Result<Self> {
        let settings = stores.settings();
        let source = EntrySource::open(settings, stores.redis().await?).await?;
        let inspector = source.inspector.clone();
        let bounds = (request.first, request.last);
        let range = (request.first.unwrap_or(EntryId::MIN), request.last.unwrap_or(EntryId::MAX));
        let mut selection = EntrySelection::new(range, request.filter)?;
        match &request.source {
            // Entries that are added from now on are not replayed, because the replay would otherwise never end.
            ReplaySource::Stream => {
                let end = inspector.last_id(&inspector.names().stream).await;
                selection.last = selection.last.min(end.context("Failed to read the stream")?);
                request.last = Some(selection.last);
            }
            // The file is checked before MySQL, so that its faults are reported even without MySQL.
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

    /// Reads all entries that would be replayed.
    ///
    /// # Errors
    /// If a store does not answer, or a line of the file is no entry.
    pub async fn plan(&self, progress: &dyn Progress) -> anyhow::Result<ReplayPlan> {
        let mut plan = ReplayPlan::new(self.source_name(), self.bounds, self.request.clone());
        let delivered = match self.request.source {
            ReplaySource::Stream => Some(self.inspector.group().last_delivered().await?.unwrap_or_default()),
            ReplaySource::File(_) => None,
        };
        let (mut reader, mut before) = (self.reader()?, DryRun::default());
        match &reader {
            EntryReader::Stream(_) => {
                progress.expect(self.inspector.length(&plan.source).await?, "entries read, at most");
            }
            EntryReader::File(lines) => progress.expect(lines.length()?, "bytes read"),
        }
        while let Some(Page { entries, looked_at }) = reader.next(self.page()).await? {
            plan.add(entries.iter().map(|entry| entry.id), delivered);
            if let Some(outcomes) = &mut plan.predicted {
                self.runner
                    .predict(&entries, &mut before, outcomes)
                    .await
                    .context("Failed to read the orders")?;
            }
            progress.add(looked_at);
        }
        plan.is_estimate = before.has_forgotten();
        plan.is_sorted = reader.is_sorted();
        Ok(plan)
    }

    /// Replays the entries batch by batch, and adds each batch to `report`.
    ///
    /// # Errors
    /// If a store does not answer, or the file cannot be read any more.
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

    /// Returns the number of entries to read at once.
    fn page(&self) -> u16 {
        u16::try_from(self.batch).unwrap_or(u16::MAX)
    }
}
