//! The settings of a system that operations need: its stores, its names, and the times and sizes of its workers.

mod webhook;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tidegate_orders::{KeyTemplates, LockLayout, Partition, Published, VoucherId, scripts::Confirmation};
use tidegate_stream::{RedisCluster, Sentinels, SlotMaster, StreamNames};

pub use self::webhook::{WebhookSettings, WebhookUrl};
use crate::{change::InvalidInput, redacted::RedactedUrl};

/// The settings of all partitions of a system, or of the whole system if it has no partitions. Settings other than
/// names and stores are the same in all partitions.
#[derive(Clone, Debug)]
pub struct System {
    partitions: Vec<SystemSettings>,
    /// The settings without partitions, from which the partitions were made.
    whole: Arc<SystemSettings>,
    cluster: Option<Arc<RedisCluster>>,
}

impl System {
    /// Creates a system with one partition for each of these tags. `whole` has the key names without tags. If Redis is
    /// a cluster, each partition connects to the master that has its keys.
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

    /// Returns this system with partitions for the given tags instead.
    #[must_use]
    pub fn with_tags(&self, tags: &[String]) -> Self {
        Self::new(&self.whole, tags, self.cluster.as_ref())
    }

    /// Returns whether Redis is a cluster, where key names need the tag of a partition.
    #[must_use]
    pub const fn is_on_cluster(&self) -> bool {
        self.cluster.is_some()
    }

    /// Returns the system with only these of its partitions.
    fn of(&self, partitions: Vec<SystemSettings>) -> Self {
        Self { partitions, ..self.clone() }
    }

    /// Sets the MySQL database of each given partition. The other partitions keep the database of the setting
    /// `mysql.url`.
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

    /// Returns one partition for each MySQL shard (database) of the system.
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

    /// Returns all partitions, sorted in the sequence of their tags.
    #[must_use]
    pub fn partitions(&self) -> &[SystemSettings] {
        &self.partitions
    }

    /// Returns the settings that are the same in all partitions, such as times and sizes. Names and the MySQL database
    /// in the result belong to the first partition.
    #[must_use]
    pub fn common(&self) -> &SystemSettings {
        &self.partitions[0]
    }

    /// Returns the settings of the partition that holds the voucher.
    ///
    /// # Errors
    /// If this system does not include the voucher's partition, because another partition was chosen.
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

    /// Returns the system with only the partition of the voucher; without a voucher, the system with all partitions.
    ///
    /// # Errors
    /// As for [`System::of_voucher`].
    pub fn chosen(&self, voucher: Option<VoucherId>) -> Result<Self, InvalidInput> {
        match voucher {
            Some(voucher) => Ok(self.of(vec![self.of_voucher(voucher)?.clone()])),
            None => Ok(self.clone()),
        }
    }

    /// Returns the single partition of the system.
    ///
    /// # Errors
    /// If there are several.
    pub fn only(&self) -> Result<&SystemSettings, InvalidInput> {
        match &self.partitions[..] {
            [only] => Ok(only),
            several => Err(InvalidInput(format!(
                "this command works on one partition, but there are {} partitions: choose one with --partition TAG ({})",
                several.len(),
                self.common().partition().tags().join(", ")
            ))),
        }
    }

    /// Returns the system with only the partition of this tag. The partition keeps its vouchers.
    ///
    /// # Errors
    /// If no partition has this tag.
    pub fn narrowed(&self, tag: &str) -> Result<Self, InvalidInput> {
        let found = self.partitions.iter().find(|system| system.partition().tag() == Some(tag));
        let found = found.ok_or_else(|| {
            InvalidInput(match self.common().partition().tags() {
                [] => "there are no partitions: stream.partitions is empty".to_owned(),
                tags => format!("no partition has the tag {tag:?}; the tags are: {}", tags.join(", ")),
            })
        })?;
        Ok(self.of(vec![found.clone()]))
    }
}

/// The settings of one partition, or of a whole system without partitions: stores, names, times and sizes.
#[derive(Clone, Debug)]
pub struct SystemSettings {
    /// The settings of the connection to Redis.
    pub redis: RedisSettings,
    /// The settings of the connection to MySQL.
    pub mysql: MySqlSettings,
    /// The names of the streams and of the consumer group.
    pub stream: StreamSettings,
    /// The names of the Redis keys, and the names of the fields in a stream entry.
    pub keys: KeyTemplates,
    /// The confirmation by Redis replicas that `tidegate admit` waits for; None: the reply of the Redis master is
    /// enough.
    pub confirmation: Option<Confirmation>,
    /// The time limit for the payment of an order, if its voucher has no other limit; zero: orders never expire.
    pub pay_within: Duration,
    /// The settings of the section `[reconcile]`.
    pub reconcile: ReconcileSettings,
    /// The settings of the section `[calendar]`.
    pub calendar: CalendarSettings,
    /// The settings of the results that are published for callers.
    pub results: ResultsSettings,
    /// The times and sizes for handling entries, which all workers share.
    pub fleet: FleetTiming,
}

/// The settings of the section `[redis]`.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// The URL of the Redis server.
    pub url: RedactedUrl,
    /// The address of the cluster master that has the keys of this partition; None: Redis is not a cluster.
    pub master: Option<SlotMaster>,
    /// The Sentinels that monitor Redis; None: Redis is used without Sentinels.
    pub sentinels: Option<Arc<Sentinels>>,
    /// The number of connections to Redis for commands.
    pub connections: usize,
    /// The longest time that a command waits for its reply.
    pub command_timeout: Duration,
    /// The longest time that opening a connection takes.
    pub connect_timeout: Duration,
}

impl RedisSettings {
    /// Returns whether a replica can replace the Redis server. This is possible with Sentinels and in a cluster.
    #[must_use]
    pub fn may_fail_over(&self) -> bool {
        self.master.is_some() || self.sentinels.is_some()
    }

    /// Returns the connection settings for the crate tidegate-stream. They contain the password, so never log them.
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
    /// The tags of the partitions that this MySQL shard serves; empty: the system has no shards.
    pub shard_tags: Vec<String>,
    /// The number of MySQL connections of a process, which is never 0.
    pub connections: u32,
    /// The highest number of batches of orders that are written at the same time.
    pub writers: usize,
    /// The time zone of DATETIME columns, as the server knows it.
    pub time_zone: String,
    /// The longest time to wait for a MySQL connection.
    pub acquire_timeout: Duration,
    /// The longest time that a statement, or the transaction of a batch, takes.
    pub statement_timeout: Duration,
    /// The longest time in seconds that a statement waits for a row lock.
    pub lock_wait_timeout_s: u32,
}

/// The settings of the section `[reconcile]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReconcileSettings {
    /// The interval at which workers compare Redis with MySQL; zero: workers do not compare.
    pub every: Duration,
    /// Whether workers also repair the differences that their comparisons find.
    pub repairs: bool,
    /// The time between the permanent end of a sale and the removal of the voucher's keys by workers.
    pub remove_delisted_after: Duration,
    /// The age of finished orders after which workers remove their notes from the journals (Redis hashes of orders);
    /// zero: never.
    pub compact_after: Duration,
}

/// The settings of the section `[calendar]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct CalendarSettings {
    /// Whether workers carry windows that changed in MySQL to Redis.
    pub carries_windows: bool,
    /// The time before its begin at which workers load a voucher into Redis. None: they load no voucher.
    pub warm_up: Option<Duration>,
}

/// The settings of the section `[stream]`.
#[derive(Clone, Debug)]
pub struct StreamSettings {
    /// The key of the stream of orders.
    pub name: String,
    /// The key of the stream of dead letters.
    pub dead: String,
    /// The key of the stream of order results.
    pub results: String,
    /// The name of the consumer group.
    pub group: String,
    /// The time for which acknowledged entries stay in the stream; None: entries stay forever.
    pub retention: Option<Duration>,
}

/// The settings of the section `[results]`.
#[derive(Clone, Debug)]
pub struct ResultsSettings {
    /// The kinds of order results that workers publish.
    pub published: Published,
    /// The time for which results stay in the stream of results; None: results stay forever.
    pub keep: Option<Duration>,
    /// The approximate size of all published results together, in bytes, above which old results are deleted; None: no
    /// limit.
    pub keep_bytes: Option<u64>,
    /// The webhooks to which workers send results.
    pub webhooks: Arc<[WebhookSettings]>,
}

/// The settings of the section `[worker]` that operations also use, because they handle entries like workers.
#[derive(Clone, Debug)]
pub struct FleetTiming {
    /// The highest number of entries in a batch.
    pub batch: usize,
    /// The size of the largest entry that workers process, in bytes.
    pub entry_max_bytes: usize,
    /// The time for which a read of the stream waits for new entries.
    pub block: Duration,
    /// The time after which the lock of a user expires if its holder has died.
    pub lock_lease: Duration,
    /// The layout of the locks of users in Redis.
    pub lock_layout: LockLayout,
    /// The time after which a worker retries an entry whose user was locked.
    pub lock_retry: Duration,
    /// The idle time of a pending entry after which another consumer may claim it.
    pub claim_idle: Duration,
    /// The interval at which a worker looks for claimable pending entries of other consumers.
    pub claim_every: Duration,
    /// The longest delay between two retries of a failed step.
    pub backoff_max: Duration,
}

impl SystemSettings {
    /// Returns the partition that these settings describe.
    #[must_use]
    pub fn partition(&self) -> &Partition {
        &self.keys.partition
    }

    /// Returns the names of the stream, its consumer group and its stream of dead letters.
    #[must_use]
    pub fn stream_names(&self) -> StreamNames {
        let StreamSettings { name, dead, group, .. } = &self.stream;
        StreamNames { stream: name.clone(), dead: dead.clone(), group: group.clone() }
    }
}
