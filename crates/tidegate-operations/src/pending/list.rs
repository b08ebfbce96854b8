//! The list of entries that were read and are not acknowledged, with the consumers that hold them.

use serde::Serialize;
use tidegate_compare::Progress;
use tidegate_orders::RedisStore;

use super::{PendingFilter, PendingReader, PendingView};
use crate::settings::SystemSettings;

/// The selected pending entries of the consumer group.
#[derive(Clone, Debug, Serialize)]
pub struct PendingList {
    /// The key of the stream.
    pub stream: String,
    /// The name of the consumer group.
    pub group: String,
    /// The total number of pending entries in the group.
    pub pending: u64,
    /// The entries that match the filter, oldest first.
    pub entries: Vec<PendingView>,
    /// Whether more entries match the filter than its limit allows.
    pub more: bool,
}

impl PendingList {
    /// Reads the pending entries that match `filter`.
    ///
    /// # Errors
    /// If Redis does not answer, or the key holds no stream.
    pub async fn read(
        redis: &RedisStore,
        settings: &SystemSettings,
        filter: &PendingFilter,
        progress: &dyn Progress,
    ) -> anyhow::Result<Self> {
        let reader = PendingReader::open(redis, settings).await?;
        let selection = reader.select(filter, progress).await?;
        let names = settings.stream_names();
        Ok(Self {
            stream: names.stream,
            group: names.group,
            pending: reader.consumers().pending(),
            entries: selection.entries,
            more: selection.more,
        })
    }
}
