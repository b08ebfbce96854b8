//! The visible state of a partition: the list that it stores, its master, and the orders in progress.

use anyhow::Context;
use serde::Serialize;
use tidegate_orders::{RedisStore, gate_notes, sale, work_in_progress};
use tidegate_stream::inspect;

use crate::{
    partition_list::{ChangeStep, ListChange, StoredList},
    settings::SystemSettings,
};

/// A summary of one partition: its list, master, vouchers, entries and processes.
#[derive(Clone, Debug, Serialize)]
pub struct PartitionView {
    /// The tag of the partition; None: the system has no partitions.
    pub tag: Option<String>,
    /// The position of the partition in the partition list.
    pub number: usize,
    /// The partition list that is stored in the Redis of the partition; None: no list is stored.
    pub list: Option<Vec<String>>,
    /// The new partition list; None: the list is not being changed.
    pub changing_to: Option<Vec<String>>,
    /// The current step of the change of the partition list; None: the list is not being changed.
    pub step: Option<ChangeStep>,
    /// Whether the partition list in Redis is the list of the settings, and is not being changed.
    pub agrees: bool,
    /// The Redis master of the partition; None: Redis is not a cluster.
    pub master: Option<String>,
    /// The number of vouchers that have keys in the partition.
    pub vouchers: u64,
    /// The number of entries in the partition's stream that are not acknowledged.
    pub entries: u64,
    /// The number of dead letters in the partition.
    pub dead_letters: u64,
    /// The number of worker processes of the partition that are alive.
    pub workers: u64,
    /// The number of HTTP gates that are alive and have noted which partition list they use.
    pub gates: u64,
}

impl PartitionView {
    /// Reads the summary of a partition, even if Redis stores another partition list than the settings. Scans all keys
    /// of the partition.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn read(redis: &RedisStore, settings: &SystemSettings) -> anyhow::Result<Self> {
        let partition = settings.partition();
        let kept = StoredList::read(redis).await?;
        let agrees = match &kept {
            StoredList::Nothing => true,
            StoredList::Settled(tags) => tags == partition.tags(),
            StoredList::Changing(_) => false,
        };
        let (list, changing) = match kept {
            StoredList::Nothing => (None, None),
            StoredList::Settled(tags) => (Some(tags), None),
            StoredList::Changing(ListChange { from, to, step }) => (Some(from), Some((to, step))),
        };
        let (changing_to, step) = changing.unzip();
        let status = inspect(redis, &settings.stream_names()).await.context("Failed to read the stream")?;
        let known = sale::find_known(redis, |_| {}).await?;
        let loaded = sale::find_loaded(redis, |_| {}).await?;
        let only_known = known.iter().filter(|voucher| !loaded.contains(voucher)).count();
        let master = settings.redis.master.as_ref().and_then(tidegate_stream::SlotMaster::address);
        Ok(Self {
            tag: partition.tag().map(str::to_owned),
            number: partition.index(),
            list,
            changing_to,
            step,
            agrees,
            master: master.map(|node| node.to_string()),
            vouchers: (loaded.len() + only_known) as u64,
            entries: status.group.map_or(status.length, |group| group.pending + group.undelivered.number()),
            dead_letters: status.dead,
            workers: work_in_progress::read_all(redis).await?.len() as u64,
            gates: gate_notes::read_all(redis).await?.len() as u64,
        })
    }
}
