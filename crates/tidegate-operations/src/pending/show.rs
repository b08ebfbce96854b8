//! Shows one entry: its state and, if it is pending, all its content.

use anyhow::Context;
use serde::Serialize;
use tidegate_orders::RedisStore;
use tidegate_stream::EntryId;

use super::{PendingReader, PendingView};
use crate::settings::SystemSettings;

/// The state of a stream entry in the consumer group, such as pending or acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryState {
    /// The entry was read and is not acknowledged.
    Pending,
    /// No consumer has read the entry yet.
    Undelivered,
    /// The entry was acknowledged, or it was added after the group had read past its id.
    Acknowledged,
    /// The entry is not in the stream.
    NotThere,
}

/// A stream entry with all its fields and its state.
#[derive(Clone, Debug, Serialize)]
pub struct ShownEntry {
    /// The state of the entry in the consumer group.
    pub state: EntryState,
    /// The values of the entry in the pending entries list; None: the entry is not pending.
    pub entry: Option<PendingView>,
    /// The unchanged fields of the entry. Only bytes that are not UTF-8 are replaced.
    pub fields: Vec<(String, String)>,
    /// The text that the consumer's process writes as its heartbeat; None: the process has no heartbeat.
    pub process: Option<String>,
    /// Whether any living worker could claim the entry.
    #[serde(skip)]
    pub workers_live: bool,
}

impl ShownEntry {
    /// Reads the entry with this `id` from the stream and the pending entries list.
    ///
    /// # Errors
    /// If Redis does not answer, or the key holds no stream.
    pub async fn read(redis: &RedisStore, settings: &SystemSettings, id: EntryId) -> anyhow::Result<Self> {
        let reader = PendingReader::open(redis, settings).await?;
        let workers_live = reader.consumers().has_life();
        let Some(pending) = reader.one(id).await? else {
            let state = state(&reader, id).await.context("Failed to read the stream")?;
            return Ok(Self { state, entry: None, fields: Vec::new(), process: None, workers_live });
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let inspector = reader.inspector();
        let entry = inspector.entry(&inspector.names().stream, id).await;
        let entry = entry.context("Failed to read the stream")?;
        let fields = entry.iter().flat_map(|entry| &entry.fields);
        Ok(Self {
            state: EntryState::Pending,
            fields: fields.map(|(name, value)| (text(name), text(value))).collect(),
            process: reader.consumers().find(&pending.consumer).and_then(|consumer| consumer.process.clone()),
            workers_live,
            entry: Some(pending),
        })
    }
}

/// Returns the state of an entry that is not pending.
async fn state(reader: &PendingReader, id: EntryId) -> anyhow::Result<EntryState> {
    let (inspector, group) = (reader.inspector(), reader.inspector().group());
    Ok(match inspector.entry(&inspector.names().stream, id).await? {
        None => EntryState::NotThere,
        Some(_) if group.last_delivered().await?.is_none_or(|last| id > last) => EntryState::Undelivered,
        Some(_) => EntryState::Acknowledged,
    })
}
