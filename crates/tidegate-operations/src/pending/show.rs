//! One entry: where it stands, and all that is in it if it is pending.

use anyhow::Context;
use serde::Serialize;
use tidegate_orders::RedisStore;
use tidegate_stream::EntryId;

use super::{PendingReader, PendingView};
use crate::settings::SystemSettings;

/// Where an entry of the stream stands in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryState {
    /// It was read and is not acknowledged.
    Pending,
    /// No consumer has read it yet.
    Undelivered,
    /// It was acknowledged, or added when the group had read past its id.
    Acknowledged,
    /// It is not in the stream.
    NotThere,
}

/// An entry, whole.
#[derive(Clone, Debug, Serialize)]
pub struct ShownEntry {
    /// Where it stands.
    pub state: EntryState,
    /// None where it is not pending.
    pub entry: Option<PendingView>,
    /// Fields as they stand in the entry; bytes that are no UTF-8 are replaced.
    pub fields: Vec<(String, String)>,
    /// What the heartbeat says of the consumer's process.
    pub process: Option<String>,
    /// A process lives that could take it.
    #[serde(skip)]
    pub workers_live: bool,
}

impl ShownEntry {
    /// Reads the entry `id`.
    ///
    /// # Errors
    /// When Redis does not answer, or the key holds no stream.
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

/// The state of an entry that is not pending.
async fn state(reader: &PendingReader, id: EntryId) -> anyhow::Result<EntryState> {
    let (inspector, group) = (reader.inspector(), reader.inspector().group());
    Ok(match inspector.entry(&inspector.names().stream, id).await? {
        None => EntryState::NotThere,
        Some(_) if group.last_delivered().await?.is_none_or(|last| id > last) => EntryState::Undelivered,
        Some(_) => EntryState::Acknowledged,
    })
}
