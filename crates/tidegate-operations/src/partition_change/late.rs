//! The streams of partitions that are no longer in the list. A producer with an old list may append entries there
//! without asking a gate. They are moved to the partition of their voucher, at least once; an order is still written
//! only once, because of its id.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::Context;
use fred::{
    interfaces::{ClientLike, KeysInterface},
    types::{ClusterHash, CustomCommand, Value},
};
use tidegate_orders::{RedisStore, wire::Message};
use tidegate_stream::{Entry, EntryId, Leases, Read, Stream, StreamPruner};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::listed_partitions::{ListedPartition, ListedPartitions};
use crate::settings::{System, SystemSettings};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The lease time: one process of a fleet moves entries at a time.
const LEASE: Duration = Duration::from_secs(10);
/// The number of passes between two prunings of old entries.
const PRUNE_EVERY: u64 = 60;
const CONSUMER: &str = "late";
const PAGE: u16 = 100;

/// Stores which partitions were removed from the list. If the system had no partitions before, the tag is empty.
pub(super) async fn retire(
    partitions: &ListedPartitions,
    from: &[String],
    to: &[String],
) -> anyhow::Result<()> {
    let (before, now) = (partitions.first(), &partitions.new[0]);
    let mut retired = read(before).await?;
    retired.extend(read(now).await?);
    let named = |tags: &[String]| -> BTreeSet<String> {
        if tags.is_empty() { [String::new()].into() } else { tags.iter().cloned().collect() }
    };
    retired.extend(named(from));
    retired.retain(|tag| !named(to).contains(tag));
    let text = serde_json::to_string(&retired)?;
    let noted: Result<(), _> =
        now.redis.pool().set(now.redis.keys().partition_list().retired(), text, None, None, false).await;
    noted.context("Failed to store the list of removed partitions")
}

async fn read(partition: &ListedPartition) -> anyhow::Result<BTreeSet<String>> {
    let text: Option<String> = partition
        .redis
        .pool()
        .get(partition.redis.keys().partition_list().retired())
        .await
        .context("Failed to read the list of removed partitions")?;
    Ok(text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
}

/// Moves entries that arrive in streams of removed partitions to the present partition of each entry's voucher, until
/// `stop` is cancelled. Ends at once if no partition was ever removed.
pub async fn watch(system: System, stop: CancellationToken) {
    let mut late = None;
    for looks in 0_u64.. {
        if stop.is_cancelled() {
            return;
        }
        if late.is_none() {
            late = match LateEntries::find(&system).await {
                Ok(found) if found.retired.is_empty() => return,
                Ok(found) => Some(found),
                Err(error) => {
                    tracing::debug!("failed to read the list of removed partitions: {error:#}");
                    None
                }
            };
        }
        if let Some(late) = &late {
            if looks % PRUNE_EVERY == 0 {
                late.prune().await;
            }
            match late.pass().await {
                Ok(0) => {}
                Ok(entries) => {
                    tracing::warn!(
                        entries,
                        "moved entries that arrived late in streams of removed partitions"
                    );
                }
                Err(error) => tracing::debug!("cannot move late entries: {error:#}"),
            }
        }
        let _stopped = stop.run_until_cancelled(sleep(LOOK_EVERY)).await;
    }
}

/// The removed partitions whose streams are read, and the current partitions.
struct LateEntries {
    retired: Vec<ListedPartition>,
    partitions: Vec<ListedPartition>,
    leases: Leases,
    token: String,
}

impl LateEntries {
    async fn find(system: &System) -> anyhow::Result<Self> {
        let mut pools = BTreeMap::new();
        let first = ListedPartition::connect(&thrifty(system.common()), &mut pools).await?;
        let tags = read(&first).await?;
        let mut retired = Vec::new();
        for tag in &tags {
            let tags: Vec<String> = Some(tag.clone()).filter(|tag| !tag.is_empty()).into_iter().collect();
            retired.push(
                ListedPartition::connect(&thrifty(system.with_tags(&tags).common()), &mut pools).await?,
            );
        }
        let mut partitions = Vec::new();
        if !retired.is_empty() {
            for settings in system.partitions() {
                partitions.push(ListedPartition::connect(&thrifty(settings), &mut pools).await?);
            }
        }
        let leases = Leases::new(&first.redis);
        Ok(Self { retired, partitions, leases, token: tidegate_orders::scripts::rebuild_id() })
    }

    /// Moves all late entries to their partitions, and returns their number.
    async fn pass(&self) -> anyhow::Result<u64> {
        let first = &self.partitions[0].redis.keys();
        let key = format!("{}:late", first.partition_list().retired().as_str_lossy());
        if !self.leases.take(vec![fred::types::Key::from(key)], &self.token, LEASE).await?.is_empty() {
            return Ok(0);
        }
        let mut entries = 0;
        for partition in &self.retired {
            entries += self.take_from(partition).await?;
        }
        Ok(entries)
    }

    /// Prunes old entries, as workers do in their own streams.
    async fn prune(&self) {
        for partition in &self.retired {
            let Some(keep) = partition.settings.stream.retention else { continue };
            let pruner =
                StreamPruner::new(&partition.redis, partition.redis.inspector().names().clone(), keep);
            if let Err(error) = pruner.run_once().await {
                tracing::debug!("failed to prune the stream of a removed partition: {error}");
            }
        }
    }

    async fn take_from(&self, partition: &ListedPartition) -> anyhow::Result<u64> {
        let names = partition.settings.stream_names();
        let inspector = partition.redis.inspector();
        if inspector.length(&names.stream).await? == 0 {
            return Ok(0);
        }
        Stream::new(&partition.redis, names.clone()).ensure_group().await?;
        let idle = i64::try_from(partition.settings.fleet.claim_idle.as_millis()).unwrap_or(i64::MAX);
        let claim = ["0-0", "COUNT", "100", "JUSTID"].map(Value::from);
        let claim = [names.stream.as_str(), &names.group, CONSUMER]
            .map(Value::from)
            .into_iter()
            .chain([idle.into()])
            .chain(claim);
        let _claimed: Value = command(&partition.redis, "XAUTOCLAIM", claim.collect()).await?;
        let read = ["GROUP", &names.group, CONSUMER, "COUNT", "100", "STREAMS", &names.stream, ">"];
        let _read: Value = command(&partition.redis, "XREADGROUP", read.map(Value::from).to_vec()).await?;
        let all = (EntryId::MIN, EntryId::MAX);
        let held = inspector.group().pending_entries(all, PAGE, Some(CONSUMER)).await?;
        let ids: Vec<EntryId> = held.into_iter().map(|held| held.id).collect();
        let (mut taken, mut left) = (0, ids.iter());
        let mut entries = inspector.entries(&names.stream, &ids, Read::Whole);
        while let Some(page) = entries.next().await? {
            for (entry, id) in page.iter().zip(&mut left) {
                if let Some(entry) = entry {
                    self.append(partition, entry).await?;
                    taken += 1;
                }
                let ack = [names.stream.as_str(), &names.group, &id.to_string()].map(Value::from);
                let _one: u64 = command(&partition.redis, "XACK", ack.to_vec()).await?;
            }
        }
        Ok(taken)
    }

    /// Appends the entry to the stream of its voucher. An entry that cannot be read goes to the first partition, where
    /// it becomes a dead letter.
    async fn append(&self, from: &ListedPartition, entry: &Entry) -> anyhow::Result<()> {
        let voucher = match from.redis.keys().fields().decode_message(entry) {
            Ok(Message::Order(order)) => Some(order.voucher),
            Ok(Message::Event(event)) => Some(event.voucher),
            Err(_) => None,
        };
        let own = self
            .partitions
            .iter()
            .find(|partition| voucher.is_some_and(|it| partition.settings.partition().owns(it)));
        let to = own.unwrap_or(&self.partitions[0]);
        let fields = entry.fields.iter().flat_map(|(name, value)| [name.clone(), value.clone()]);
        let args = [to.settings.stream.name.as_str(), "*"].map(Value::from);
        let args = args.into_iter().chain(fields.map(Value::Bytes));
        let _id: Value = command(&to.redis, "XADD", args.collect()).await?;
        Ok(())
    }
}

/// Returns the settings with a single connection, because there is little to do.
fn thrifty(settings: &SystemSettings) -> SystemSettings {
    let mut thrifty = settings.clone();
    thrifty.redis.connections = 1;
    thrifty
}

async fn command<T: fred::types::FromValue>(
    redis: &RedisStore,
    name: &'static str,
    args: Vec<Value>,
) -> anyhow::Result<T> {
    let command = CustomCommand::new_static(name, ClusterHash::FirstKey, false);
    Ok(redis.pool().next().custom(command, args).await?)
}
