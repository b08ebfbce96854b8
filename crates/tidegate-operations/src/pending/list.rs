//! Which entries were read and are not acknowledged, and who holds them.

use serde::Serialize;
use tidegate_compare::Progress;
use tidegate_orders::RedisStore;

use super::{PendingFilter, PendingReader, PendingView};
use crate::settings::SystemSettings;

/// Pending entries of the group.
#[derive(Clone, Debug, Serialize)]
pub struct PendingList {
    /// Key of the stream.
    pub stream: String,
    /// Name of the group.
    pub group: String,
    /// Pending entries of the whole group.
    pub pending: u64,
    /// Those that the filter chooses, oldest first.
    pub entries: Vec<PendingView>,
    /// The filter chooses more than its limit.
    pub more: bool,
}

impl PendingList {
    /// Reads the entries that `filter` chooses.
    ///
    /// # Errors
    /// When Redis does not answer, or the key holds no stream.
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
