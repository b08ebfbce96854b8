//! What operations must know of a system: its stores, its names, and how long its workers take for what.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tidegate_orders::{Published, KeyTemplates, Partition, VoucherId, gate::Confirmation};
use tidegate_stream::{RedisCluster, Sentinels, SlotMaster, StreamNames};

use crate::{change::InvalidInput, redacted::RedactedUrl};

/// All partitions of a system; one, which is the whole, where it has none. What they have in common is the same in each.
#[derive(Clone, Debug)]
pub struct System {
    partitions: Vec<SystemSettings>,
    /// What they were made of: the system with no tag before its names.
    whole: Arc<SystemSettings>,
    cluster: Option<Arc<RedisCluster>>,
}

impl System {
    /// The partitions with these tags of a system, whose names stand in `whole` as they are without partitions. Where Redis is a
    /// cluster, each leads to the master of its slot.
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

    /// The same stores, names and times with other partitions.
    #[must_use]
    pub fn with_tags(&self, tags: &[String]) -> Self {
        Self::new(&self.whole, tags, self.cluster.as_ref())
    }

    /// Whether Redis is a cluster, where names need tags.
    #[must_use]
    pub const fn is_on_cluster(&self) -> bool {
        self.cluster.is_some()
    }

    /// The same with only these of its partitions.
    fn of(&self, partitions: Vec<SystemSettings>) -> Self {
        Self { partitions, ..self.clone() }
    }

    /// With each of these partitions in a MySQL of its own; the others stay where `mysql.url` leads.
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

    /// One partition for each MySQL that they are in.
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

    /// Each of them, in the order of their tags.
    #[must_use]
    pub fn partitions(&self) -> &[SystemSettings] {
        &self.partitions
    }

    /// What is the same in all of them: times and sizes. Its names and its MySQL are those of the first.
    #[must_use]
    pub fn common(&self) -> &SystemSettings {
        &self.partitions[0]
    }

    /// The one that a voucher belongs to.
    ///
    /// # Errors
    /// When that is none of these: only one of all was chosen.
    pub fn of_voucher(&self, voucher: VoucherId) -> Result<&SystemSettings, InvalidInput> {
        let own = self.partitions.iter().find(|system| system.partition().owns(voucher));
        own.ok_or_else(|| {
            let tags = self.common().partition().tags();
            let tag = &tags[Partition::index_of(voucher, tags.len())];
            InvalidInput(format!(
                "voucher {voucher} belongs to the partition {tag}: --partition {tag}, or none"
            ))
        })
    }

    /// Only the one that a voucher belongs to; all of them, where none is meant.
    ///
    /// # Errors
    /// As [`System::of_voucher`].
    pub fn chosen(&self, voucher: Option<VoucherId>) -> Result<Self, InvalidInput> {
        match voucher {
            Some(voucher) => Ok(self.of(vec![self.of_voucher(voucher)?.clone()])),
            None => Ok(self.clone()),
        }
    }

    /// The only one.
    ///
    /// # Errors
    /// When there are more.
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

    /// As if there were no other one than the partition with this tag. Which voucher belongs to it does not change.
    ///
    /// # Errors
    /// When there is none.
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
    /// How to reach Redis.
    pub redis: RedisSettings,
    /// How to reach MySQL.
    pub mysql: MySqlSettings,
    /// Names of the streams and of the group.
    pub stream: StreamSettings,
    /// Names of the Redis keys, and of the fields of an entry.
    pub keys: KeyTemplates,
    /// When `tidegate admit` says that an order is admitted; None: when the master has it.
    pub confirmation: Option<Confirmation>,
    /// In which time orders have to be paid whose voucher says nothing else; zero: they never expire.
    pub pay_within: Duration,
    /// Between two comparisons of both stores by workers; zero: they make none.
    pub reconcile_every: Duration,
    /// They also repair what they find.
    pub reconcile_repairs: bool,
    /// From when a voucher was delisted until its keys may be removed.
    pub remove_delisted_after: Duration,
    /// How old what is final has to be before workers compact it out of the journals; zero: they never do.
    pub compact_after: Duration,
    /// What callers are told.
    pub results: ResultsSettings,
    /// Times and sizes of its workers.
    pub fleet: FleetTiming,
}

/// `[redis]`
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// Where Redis is.
    pub url: RedactedUrl,
    /// Where Redis is a cluster, the master of the names that this is about.
    pub master: Option<SlotMaster>,
    /// Where Redis is behind Sentinels, these.
    pub sentinels: Option<Arc<Sentinels>>,
    /// Connections for commands.
    pub connections: usize,
    /// How long a command may wait for its reply.
    pub command_timeout: Duration,
    /// How long a connection may take to open.
    pub connect_timeout: Duration,
}

impl RedisSettings {
    /// Whether a replica may take the place of the server: behind a Sentinel, and in a cluster.
    #[must_use]
    pub fn may_fail_over(&self) -> bool {
        self.master.is_some() || self.sentinels.is_some()
    }

    /// What the stream crate needs. It holds the password: not for logging.
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

/// `[mysql]`
#[derive(Clone, Debug)]
pub struct MySqlSettings {
    /// Where MySQL is.
    pub url: RedactedUrl,
    /// The partitions that it serves; none, where the system has no shards.
    pub shard_tags: Vec<String>,
    /// Connections of a process; never 0 here.
    pub connections: u32,
    /// Batches that write at the same time.
    pub writers: usize,
    /// How long to wait for a connection.
    pub acquire_timeout: Duration,
    /// How long a statement or a batch's transaction may take.
    pub statement_timeout: Duration,
    /// How long a statement waits for a row lock, in seconds.
    pub lock_wait_timeout_s: u32,
}

/// `[stream]`
#[derive(Clone, Debug)]
pub struct StreamSettings {
    /// The stream of orders.
    pub name: String,
    /// The stream of dead letters.
    pub dead: String,
    /// The stream of results.
    pub results: String,
    /// The consumer group.
    pub group: String,
    /// How long acknowledged entries stay; None for ever.
    pub retention: Option<Duration>,
}

/// `[results]`
#[derive(Clone, Copy, Debug)]
pub struct ResultsSettings {
    /// Which results are published.
    pub published: Published,
    /// How long they stay; None for ever.
    pub keep: Option<Duration>,
    /// How many bytes all of them may take, about; None for any.
    pub keep_bytes: Option<u64>,
}

/// What operations take from `[worker]`: they treat entries as the workers do.
#[derive(Clone, Debug)]
pub struct FleetTiming {
    /// Entries that are handled at once, at most.
    pub batch: usize,
    /// The largest entry that they take, in bytes.
    pub entry_max_bytes: usize,
    /// How long a read waits for new entries.
    pub block: Duration,
    /// Until a dead holder's user lock falls open.
    pub lock_lease: Duration,
    /// Until entries of locked users are tried again.
    pub lock_retry: Duration,
    /// Idle time after which an entry may be claimed.
    pub claim_idle: Duration,
    /// Between two looks for claimable entries.
    pub claim_every: Duration,
    /// The longest delay between retries.
    pub backoff_max: Duration,
}

impl SystemSettings {
    /// Which partition of the system this is.
    #[must_use]
    pub fn partition(&self) -> &Partition {
        &self.keys.partition
    }

    /// Names of the stream, its group and its dead letters.
    #[must_use]
    pub fn stream_names(&self) -> StreamNames {
        let StreamSettings { name, dead, group, .. } = &self.stream;
        StreamNames { stream: name.clone(), dead: dead.clone(), group: group.clone() }
    }
}
