//! Reads pending entries, page by page.

use anyhow::Context;
use tidegate_compare::{Progress, text::seconds};
use tidegate_orders::{
    RedisStore,
    wire::{FieldNames, Message},
};
use tidegate_stream::{
    Entry, EntryId, PendingEntry, PendingPages, Read, ServerRun, StreamInspector, age_ms, is_claimable,
    server_time_ms,
};

use super::{Payload, PendingContent, PendingFilter, PendingView};
use crate::{consumers::Consumers, entry_source::EntrySource, settings::SystemSettings};

/// The pending entries that are read at once.
const PAGE: u16 = 1_000;
/// The entries whose crash counts are read at once.
const CRASHES: usize = 100;

/// The pending entries that match a [`PendingFilter`].
#[derive(Clone, Debug)]
pub struct PendingSelection {
    /// The matching entries, oldest first.
    pub entries: Vec<PendingView>,
    /// Whether more entries match the filter than its limit allows.
    pub more: bool,
}

/// The reader of pending entries with their content.
#[derive(Clone, Debug)]
pub struct PendingReader {
    inspector: StreamInspector,
    run: ServerRun,
    consumers: Consumers,
    fields: FieldNames,
    /// The clock of Redis in Unix milliseconds.
    now_ms: u64,
}

impl PendingReader {
    /// Reads the consumers and the time of Redis, from which the reader later calculates the ages of entries.
    ///
    /// # Errors
    /// If Redis does not answer, or the key holds no stream.
    pub async fn open(redis: &RedisStore, settings: &SystemSettings) -> anyhow::Result<Self> {
        let source = EntrySource::open(settings, redis).await?;
        Ok(Self {
            consumers: Consumers::read(redis).await?,
            inspector: source.inspector,
            run: source.run,
            fields: settings.keys.fields.clone(),
            now_ms: server_time_ms(redis.pool()).await?,
        })
    }

    /// Returns the consumers of the group.
    #[must_use]
    pub fn consumers(&self) -> &Consumers {
        &self.consumers
    }

    /// Returns the run of the server that is read.
    pub(super) fn run(&self) -> &ServerRun {
        &self.run
    }

    /// Returns the inspector that reads the stream.
    pub(super) fn inspector(&self) -> &StreamInspector {
        &self.inspector
    }

    /// Reads the pending entries that match the filter.
    ///
    /// # Errors
    /// If Redis does not answer, or the key holds no stream.
    pub async fn select(
        &self,
        filter: &PendingFilter,
        progress: &dyn Progress,
    ) -> anyhow::Result<PendingSelection> {
        progress.expect(self.consumers.pending(), "pending entries read");
        let (limit, mut found) = (usize::from(filter.limit), Vec::new());
        let mut pages = self.pages(filter);
        while found.len() <= limit {
            let page = pages.next().await.context("Failed to read the pending entries list")?;
            let Some(page) = page else { break };
            progress.add(page.len() as u64);
            let page: Vec<_> = page.into_iter().filter(|pending| self.is_chosen(filter, pending)).collect();
            found.extend(self.retain_deadly(filter, page).await?);
        }
        let more = found.len() > limit;
        found.truncate(limit);
        Ok(PendingSelection { entries: self.with_payloads(found).await?, more })
    }

    /// Reads one pending entry; None: the entry is not pending.
    ///
    /// # Errors
    /// As for [`PendingReader::select`].
    pub async fn one(&self, id: EntryId) -> anyhow::Result<Option<PendingView>> {
        let pending = self
            .inspector
            .group()
            .pending_entry(id)
            .await
            .context("Failed to read the pending entries list")?;
        Ok(self.with_payloads(pending.into_iter().collect()).await?.pop())
    }

    fn pages(&self, filter: &PendingFilter) -> PendingPages {
        let last = match filter.older_than {
            None => EntryId::MAX,
            Some(span) => {
                let span_ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
                EntryId { ms: self.now_ms.saturating_sub(span_ms), seq: 0 }
            }
        };
        self.inspector.group().pending_pages((EntryId::MIN, last), PAGE, filter.consumer.as_deref())
    }

    fn is_chosen(&self, filter: &PendingFilter, pending: &PendingEntry) -> bool {
        pending.deliveries >= filter.deliveries.unwrap_or(0)
            && !(filter.set_aside && pending.deliveries > 0)
            && !(filter.dead && self.consumers.is_alive(&pending.consumer))
    }

    async fn retain_deadly(
        &self,
        filter: &PendingFilter,
        page: Vec<PendingEntry>,
    ) -> anyhow::Result<Vec<PendingEntry>> {
        let Some(least) = filter.crashes else { return Ok(page) };
        let ids: Vec<EntryId> = page.iter().map(|pending| pending.id).collect();
        let crashes = self.inspector.group().crashes(&ids).await;
        let crashes = crashes.context("Failed to read the crash counts of entries")?;
        let died = page.into_iter().zip(crashes).filter(|(_, crashes)| *crashes >= least);
        Ok(died.map(|(pending, _)| pending).collect())
    }

    async fn with_payloads(&self, found: Vec<PendingEntry>) -> anyhow::Result<Vec<PendingView>> {
        let mut entries = Vec::with_capacity(found.len());
        // A user of Redis without permission to read the notes still gets the other facts.
        let notes = self.inspector.group().set_aside_notes();
        let notes = notes.read_each(self.consumers.processes()).await.unwrap_or_default();
        for some in found.chunks(CRASHES) {
            let ids: Vec<EntryId> = some.iter().map(|pending| pending.id).collect();
            let crashes = self.inspector.group().crashes(&ids).await.ok();
            let mut payloads = self.inspector.entries(&self.inspector.names().stream, &ids, Read::Whole);
            let mut seen = some.iter().enumerate();
            while let Some(page) = payloads.next().await.context("Failed to read the stream")? {
                for (payload, (at, pending)) in page.iter().zip(&mut seen) {
                    let crashes = crashes.as_ref().and_then(|crashes| crashes.get(at)).copied();
                    let view = self.view(pending, payload.as_ref());
                    entries.push(PendingView { crashes, ..view }.with_cause(&notes));
                }
            }
        }
        Ok(entries)
    }

    fn view(&self, pending: &PendingEntry, content: Option<&Entry>) -> PendingView {
        let decoded = content.map(|entry| self.fields.decode_message(entry));
        let gone = PendingContent { payload: Payload::Gone, order: None, event: None, error: None };
        let content = match decoded {
            None => gone,
            Some(Ok(Message::Order(order))) => {
                PendingContent { payload: Payload::Order, order: Some(order), ..gone }
            }
            Some(Ok(Message::Event(event))) => {
                PendingContent { payload: Payload::Event, event: Some(event.into()), ..gone }
            }
            Some(Err(error)) => {
                PendingContent { payload: Payload::NoOrder, error: Some(error.to_string()), ..gone }
            }
        };
        let offered = is_claimable(pending.idle_ms);
        PendingView {
            entry: pending.id.to_string(),
            consumer: pending.consumer.clone(),
            alive: self.consumers.is_alive(&pending.consumer),
            idle_s: (!offered).then(|| seconds(pending.idle_ms)),
            offered,
            deliveries: pending.deliveries,
            set_aside: pending.deliveries == 0,
            waits_for: None,
            crashes: None,
            age_s: seconds(age_ms(self.now_ms, pending.id)),
            content,
        }
    }
}
