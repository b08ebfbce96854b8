//! What there is to see of a partition: the list that it keeps, its master, what is on its way in it.

use anyhow::Context;
use serde::Serialize;
use tidegate_orders::{RedisStore, gate_notes, sale, work_in_progress};
use tidegate_stream::inspect;

use crate::{
    partition_list::{ChangeStep, KeptList, ListChange},
    settings::SystemSettings,
};

/// A partition at a glance.
#[derive(Clone, Debug, Serialize)]
pub struct PartitionView {
    /// Its tag; None in a system without partitions.
    pub tag: Option<String>,
    /// Its number in the list.
    pub number: usize,
    /// The list that it keeps; None: it keeps none.
    pub list: Option<Vec<String>>,
    /// The list that it is being given.
    pub changing_to: Option<Vec<String>>,
    /// How far that is.
    pub step: Option<ChangeStep>,
    /// The list that it keeps is that of the settings, and is not being changed.
    pub agrees: bool,
    /// Where Redis is a cluster, its master.
    pub master: Option<String>,
    /// Vouchers that have keys there.
    pub vouchers: u64,
    /// Entries that workers have not settled.
    pub entries: u64,
    /// Its dead letters.
    pub dead_letters: u64,
    /// Worker processes that live.
    pub workers: u64,
    /// Gates over HTTP that live and work with a list.
    pub gates: u64,
}

impl PartitionView {
    /// Reads it, also where the system has another list. Looks at all keys.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn read(redis: &RedisStore, settings: &SystemSettings) -> anyhow::Result<Self> {
        let partition = settings.partition();
        let kept = KeptList::read(redis).await?;
        let agrees = match &kept {
            KeptList::Nothing => true,
            KeptList::Settled(tags) => tags == partition.tags(),
            KeptList::Changing(_) => false,
        };
        let (list, changing) = match kept {
            KeptList::Nothing => (None, None),
            KeptList::Settled(tags) => (Some(tags), None),
            KeptList::Changing(ListChange { from, to, step }) => (Some(from), Some((to, step))),
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
