//! The settings of a system that operations need: its stores, its names, and the times and sizes of its workers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tidegate_orders::{KeyTemplates, Partition, Published, VoucherId, scripts::Confirmation};
use tidegate_stream::{RedisCluster, Sentinels, SlotMaster, StreamNames};

use crate::{change::InvalidInput, redacted::RedactedUrl};

/// All partitions of a system, or a single one if the system has no partitions. Their common settings are the same in
/// each.
#[derive(Clone, Debug)]
pub struct System {
    partitions: Vec<SystemSettings>,
    /// The settings without partitions, from which the partitions were made.
    whole: Arc<SystemSettings>,
    cluster: Option<Arc<RedisCluster>>,
}

impl System {
    /// Creates the partitions with these tags. The names in `whole` are those without partitions. If Redis is a
    /// cluster, each partition connects to the master of its slot.
    #[must_use]
    pub fn new(whole: &SystemSettings, tags: &[String], cluster: Option<&Arc<RedisCluster>>) -> Self {
        let partition = |partition: Partition| {
            let prefix = partition.prefix();
            let mut system = whole.clone();
            let StreamSettings { name, dead, results, .. } = &mut system.stream;
            for name in [name, dead, results] {
                name.insert_str(0, &prefix);
            }
            system.keys = system.keys.of_partition(&partition);
            system.redis.master = cluster.map(|cluster| cluster.master_of(&system.stream.name));
            system
        };
        Self {
            partitions: Partition::all(tags).into_iter().map(partition).collect(),
            whole: Arc::new(whole.clone()),
            cluster: cluster.cloned(),
        }
    }

    /// Returns the same system with other partitions.
    #[must_use]
    pub fn with_tags(&self, tags: &[String]) -> Self {
        Self::new(&self.whole, tags, self.cluster.as_ref())
    }

    /// Returns whether Redis is a cluster, where names need tags.
    #[must_use]
    pub const fn is_on_cluster(&self) -> bool {
        self.cluster.is_some()
    }

    /// Returns the system with only these of its partitions.
    fn of(&self, partitions: Vec<SystemSettings>) -> Self {
        Self { partitions, ..self.clone() }
    }

    /// Sets the MySQL of each of these partitions; the others keep `mysql.url`.
    #[must_use]
    pub fn with_shards(mut self, urls: &BTreeMap<String, RedactedUrl>) -> Self {
        if urls.is_empty() {
            return self;
        }
        for system in &mut self.partitions {
            if let Some(url) = system.partition().tag().and_then(|tag| urls.get(tag)) {
                system.mysql.url = url.clone();
            }
        }
        let served: Vec<_> =
            self.partitions.iter().map(|it| (it.mysql.url.clone(), it.partition().tag())).collect();
        let tags_at = |url: &RedactedUrl| {
            let here = served.iter().filter(|(own, _)| own == url);
            here.filter_map(|(_, tag)| tag.map(str::to_owned)).collect::<Vec<_>>()
        };
        let tags: Vec<_> = served.iter().map(|(url, _)| tags_at(url)).collect();
        for (system, tags) in self.partitions.iter_mut().zip(tags) {
            system.mysql.shard_tags = tags;
        }
        self
    }

    /// Returns one partition of each MySQL shard.
    #[must_use]
    pub fn shards(&self) -> Vec<&SystemSettings> {
        let mut shards: Vec<&SystemSettings> = Vec::new();
        for system in &self.partitions {
            if shards.iter().all(|known| known.mysql.url != system.mysql.url) {
                shards.push(system);
            }
        }
        shards
    }

    /// Returns all partitions, in the order of their tags.
    #[must_use]
    pub fn partitions(&self) -> &[SystemSettings] {
        &self.partitions
    }

    /// Returns the settings that are the same in all partitions: times and sizes. Its names and its MySQL are those of
    /// the first partition.
    #[must_use]
    pub fn common(&self) -> &SystemSettings {
        &self.partitions[0]
    }

    /// Returns the partition of a voucher.
    ///
    /// # Errors
    /// If the voucher's partition is not among these, because only one was chosen.
    pub fn of_voucher(&self, voucher: VoucherId) -> Result<&SystemSettings, InvalidInput> {
        let own = self.partitions.iter().find(|system| system.partition().owns(voucher));
        own.ok_or_else(|| {
            let tags = self.common().partition().tags();
            let tag = &tags[Partition::index_of(voucher, tags.len())];
            InvalidInput(format!(
                "voucher {voucher} belongs to the partition {tag}: use --partition {tag}, or omit --partition"
            ))
        })
    }

    /// Returns the system with only the voucher's partition; without a voucher, all partitions.
    ///
    /// # Errors
    /// As for [`System::of_voucher`].
    pub fn chosen(&self, voucher: Option<VoucherId>) -> Result<Self, InvalidInput> {
        match voucher {
            Some(voucher) => Ok(self.of(vec![self.of_voucher(voucher)?.clone()])),
            None => Ok(self.clone()),
        }
    }

    /// Returns the only partition of the system.
    ///
    /// # Errors
    /// If there are several.
    pub fn only(&self) -> Result<&SystemSettings, InvalidInput> {
        match &self.partitions[..] {
            [only] => Ok(only),
            several => Err(InvalidInput(format!(
                "this command works on one partition, and there are {}: choose one with --partition TAG ({})",
                several.len(),
                self.common().partition().tags().join(", ")
            ))),
        }
    }

    /// Returns the system with only the partition with this tag. The vouchers of the partition stay the same.
    ///
    /// # Errors
    /// If no partition has this tag.
    pub fn narrowed(&self, tag: &str) -> Result<Self, InvalidInput> {
        let found = self.partitions.iter().find(|system| system.partition().tag() == Some(tag));
        let found = found.ok_or_else(|| {
            InvalidInput(match self.common().partition().tags() {
                [] => "there are no partitions: stream.partitions is empty".to_owned(),
                tags => format!("no partition has the tag {tag:?}; there are: {}", tags.join(", ")),
            })
        })?;
        Ok(self.of(vec![found.clone()]))
    }
}

/// A system of producers, stores and workers, or one partition of such a system.
#[derive(Clone, Debug)]
pub struct SystemSettings {
    /// The settings of the connection to Redis.
    pub redis: RedisSettings,
    /// The settings of the connection to MySQL.
    pub mysql: MySqlSettings,
    /// The names of the streams and of the consumer group.
    pub stream: StreamSettings,
    /// The names of the Redis keys, and of the fields of an entry.
    pub keys: KeyTemplates,
    /// The confirmation that `tidegate admit` waits for before it reports an order as admitted; None: the master's
    /// reply is enough.
    pub confirmation: Option<Confirmation>,
    /// The time in which an order has to be paid if its voucher sets no other; zero: orders never expire.
    pub pay_within: Duration,
    /// The time between two comparisons of both stores by workers; zero: workers make none.
    pub reconcile_every: Duration,
    /// Whether these comparisons also repair the differences.
    pub reconcile_repairs: bool,
    /// The time after the delisting of a voucher after which its keys may be removed.
    pub remove_delisted_after: Duration,
    /// The age after which workers compact final orders out of the journals; zero: never.
    pub compact_after: Duration,
    /// The settings of the results for callers.
    pub results: ResultsSettings,
    /// The times and sizes of the workers.
    pub fleet: FleetTiming,
}

/// The settings of the section `[redis]`.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// The URL of the Redis server.
    pub url: RedactedUrl,
    /// The master that serves these names, if Redis is a cluster.
    pub master: Option<SlotMaster>,
    /// The Sentinels, if Redis is behind Sentinels.
    pub sentinels: Option<Arc<Sentinels>>,
    /// The number of connections for commands.
    pub connections: usize,
    /// The time that a command may wait for its reply.
    pub command_timeout: Duration,
    /// The time that opening a connection may take.
    pub connect_timeout: Duration,
}

impl RedisSettings {
    /// Returns whether a replica can replace the server: behind a Sentinel, and in a cluster.
    #[must_use]
    pub fn may_fail_over(&self) -> bool {
        self.master.is_some() || self.sentinels.is_some()
    }

    /// Returns the settings for the stream crate. They hold the password, so they must not be logged.
    #[must_use]
    pub fn connection(&self) -> tidegate_stream::RedisConnectionSettings {
        tidegate_stream::RedisConnectionSettings {
            url: self.url.reveal().to_owned(),
            master: self.master.clone(),
            sentinels: self.sentinels.clone(),
            connections: self.connections,
            command_timeout: self.command_timeout,
            connect_timeout: self.connect_timeout,
        }
    }
}

/// The settings of the section `[mysql]`.
#[derive(Clone, Debug)]
pub struct MySqlSettings {
    /// The URL of the MySQL server.
    pub url: RedactedUrl,
    /// The tags of the partitions that this MySQL serves; empty if the system has no shards.
    pub shard_tags: Vec<String>,
    /// The number of connections of a process; never 0 here.
    pub connections: u32,
    /// The number of batches that write at the same time.
    pub writers: usize,
    /// The time to wait for a connection.
    pub acquire_timeout: Duration,
    /// The time that a statement or the transaction of a batch may take.
    pub statement_timeout: Duration,
    /// The time that a statement waits for a row lock, in seconds.
    pub lock_wait_timeout_s: u32,
}

/// The settings of the section `[stream]`.
#[derive(Clone, Debug)]
pub struct StreamSettings {
    /// The key of the stream of orders.
    pub name: String,
    /// The key of the stream of dead letters.
    pub dead: String,
    /// The key of the stream of results.
    pub results: String,
    /// The name of the consumer group.
    pub group: String,
    /// The time for which acknowledged entries stay in the stream; None: for ever.
    pub retention: Option<Duration>,
}

/// The settings of the section `[results]`.
#[derive(Clone, Copy, Debug)]
pub struct ResultsSettings {
    /// The results that are published.
    pub published: Published,
    /// The time for which results stay in their stream; None: for ever.
    pub keep: Option<Duration>,
    /// The approximate bytes that all results together may take; None: no limit.
    pub keep_bytes: Option<u64>,
}

/// The settings of the section `[worker]` that operations need, because they treat entries as workers do.
#[derive(Clone, Debug)]
pub struct FleetTiming {
    /// The number of entries that are handled at once, at most.
    pub batch: usize,
    /// The size of the largest entry that workers process, in bytes.
    pub entry_max_bytes: usize,
    /// The time that a read waits for new entries.
    pub block: Duration,
    /// The time after which the user lock of a dead holder expires.
    pub lock_lease: Duration,
    /// The time after which entries of locked users are retried.
    pub lock_retry: Duration,
    /// The idle time after which an entry may be claimed.
    pub claim_idle: Duration,
    /// The time between two checks for claimable entries.
    pub claim_every: Duration,
    /// The longest delay between retries.
    pub backoff_max: Duration,
}

impl SystemSettings {
    /// Returns the partition of the system that these settings are about.
    #[must_use]
    pub fn partition(&self) -> &Partition {
        &self.keys.partition
    }

    /// Returns the names of the stream, its group and its dead letters.
    #[must_use]
    pub fn stream_names(&self) -> StreamNames {
        let StreamSettings { name, dead, group, .. } = &self.stream;
        StreamNames { stream: name.clone(), dead: dead.clone(), group: group.clone() }
    }
}
