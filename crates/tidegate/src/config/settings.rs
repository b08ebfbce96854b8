//! The settings as types, and what each may be.

mod admin;
mod shards;

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use fred::types::config::Config as RedisConfig;
use tidegate_operations::{
    FleetTiming, MySqlSettings, OperatorSettings, RedisSettings, ResultsSettings, StreamSettings, System,
    SystemSettings, connect::mysql_hosts, redacted::RedactedUrl,
};
use tidegate_orders::{
    Announced, KeyTemplates, Partition,
    gate::{Confirmation, ConfirmedIn},
    partition::wrong_tags,
    wire::{AmbiguousName, FieldNames},
};
use tidegate_stream::{RedisCluster, cluster::is_cluster_url};
use tidegate_worker::{AdminSettings, ProcessSettings, WorkerSettings};
use tracing_subscriber::EnvFilter;

use super::{reader::Reader, suggest::did_you_mean, urls};

const REDIS_SCHEMES: [&str; 7] =
    ["redis", "rediss", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster", "redis+unix"];
/// Of many partitions, each lane has so much in hand at least.
const LEAST_BATCH_BYTES: usize = 128 << 10;
const MYSQL_SCHEMES: [&str; 2] = ["mysql", "mariadb"];
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
const URL_HINT: &str =
    "scheme://user:password@host:port/database, with @ : / ? in a password written as %40 %3A %2F %3F";
const HOUR_MS: i64 = 3_600_000;
const DEFAULT_STREAM: &str = "stream.orders";
const DEFAULT_DEAD: &str = "stream.orders.dead";
const DEFAULT_RESULTS: &str = "stream.orders.results";
const OWN_NAMES: &str = "is that of a fleet on stream.orders: a fleet on another stream needs one of its own. For a second \
                         fleet set redis.prefix, which separates all names at once, and leave stream.name as it is";

/// Everything that can be configured; `config/default.toml` describes each field.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The system of stores and names, with all its partitions.
    pub system: System,
    /// The worker.
    pub worker: WorkerSettings,
    /// What a worker shows over HTTP.
    pub admin: AdminSettings,
    /// The log.
    pub log: LogSettings,
}

/// `[log]`
#[derive(Clone, Debug)]
pub struct LogSettings {
    /// `EnvFilter` directives.
    pub level: String,
    /// How lines look.
    pub format: LogFormat,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    /// For eyes.
    Text,
    /// For machines.
    Json,
}

impl Settings {
    /// Reads every setting; the reader keeps what is wrong.
    pub fn read(reader: &mut Reader<'_>) -> Self {
        let worker = worker(reader);
        let (stream, keys) = (stream(reader), keys(reader));
        let streams = [
            (&stream.name, "stream.name"),
            (&stream.dead, "stream.dead"),
            (&stream.results, "stream.results"),
        ];
        for (name, key) in streams {
            for (own, of) in own_keys(&keys) {
                reader.rule(own != name, of, key, format!("must differ from {key}"));
            }
        }
        different(reader, &own_keys(&keys));
        names_of_its_own(reader, &stream, &keys);
        let prefix = prefix(reader);
        let keys = keys.prefixed(&prefix);
        let stream = StreamSettings {
            name: format!("{prefix}{}", stream.name),
            dead: format!("{prefix}{}", stream.dead),
            results: format!("{prefix}{}", stream.results),
            ..stream
        };
        let tags = partitions(reader);
        let mysql = mysql(reader, worker.lanes * tags.len().max(1));
        let shards = shards::read(reader, &tags);
        let (redis, cluster) = redis(reader);
        if is_cluster_url(redis.url.reveal()) && tags.is_empty() {
            let why = "is a cluster, where the names of a system need tags: set stream.partitions";
            reader.wrong("redis.url", why);
        }
        Self {
            admin: admin::read(reader, &mysql, &worker),
            system: System::new(
                &SystemSettings {
                    redis,
                    mysql,
                    stream,
                    keys,
                    confirmation: confirmation(reader),
                    pay_within: Duration::from_secs(reader.number("order.pay_within_s", 0..=365 * 24 * 3600)),
                    reconcile_every: Duration::from_secs(
                        reader.number("reconcile.every_s", 0..=7 * 24 * 3600),
                    ),
                    reconcile_repairs: reader.choice("reconcile.repair", &[("no", false), ("yes", true)]),
                    remove_delisted_after: Duration::from_secs(
                        reader.number("reconcile.remove_delisted_after_s", 0..=365 * 24 * 3600),
                    ),
                    fold_after: Duration::from_secs(
                        reader.number("reconcile.fold_after_s", 0..=10 * 365 * 24 * 3600),
                    ),
                    results: results(reader),
                    fleet: fleet(&worker),
                    operator: OperatorSettings {
                        log_lines: reader.number("operator.log_lines", 100..=10_000_000),
                        requeue_limit: reader.number("operator.requeue_limit", 0..=1_000),
                    },
                },
                &tags,
                cluster.as_ref(),
            )
            .with_shards(&shards),
            worker,
            log: log(reader),
        }
    }

    /// What a worker process is told of them, for each partition. In hand and set aside, all its lanes have together what the
    /// settings allow for those of one partition.
    pub fn processes(&self) -> Vec<ProcessSettings> {
        let Self { system, worker, admin, .. } = self.clone();
        let partitions = system.partitions();
        let share = |of: usize, least: usize| (of / partitions.len()).max(least);
        let worker = WorkerSettings {
            batch_bytes: share(worker.batch_bytes, LEAST_BATCH_BYTES.min(worker.batch_bytes)),
            set_aside_max: share(worker.set_aside_max, 1),
            ..worker
        };
        let process = |system: &SystemSettings| ProcessSettings {
            system: system.clone(),
            worker: worker.clone(),
            admin: admin.clone(),
        };
        partitions.iter().map(process).collect()
    }
}

fn fleet(worker: &WorkerSettings) -> FleetTiming {
    FleetTiming {
        entry_max_bytes: worker.entry_max_bytes,
        batch: worker.batch,
        block: worker.block,
        lock_lease: worker.lock_lease,
        lock_retry: worker.lock_retry,
        claim_idle: worker.claim_idle,
        claim_every: worker.claim_every,
        backoff_max: worker.backoff_max,
    }
}

fn redis(reader: &mut Reader<'_>) -> (RedisSettings, Option<Arc<RedisCluster>>) {
    let text = reader.text("redis.url");
    let (url, cluster) =
        url(
            reader,
            ("redis.url", text),
            &REDIS_SCHEMES,
            urls::wrong_redis_query,
            |url| match is_cluster_url(url) {
                true => RedisCluster::new(url).map(Some).map_err(|error| error.details().to_owned()),
                false => RedisConfig::from_url(url).map(|_| None).map_err(|error| error.details().to_owned()),
            },
        );
    let settings = RedisSettings {
        url,
        master: None,
        connections: reader.number("redis.connections", 1..=64),
        command_timeout: reader.millis("redis.command_timeout_ms", 100..=60_000),
        connect_timeout: reader.millis("redis.connect_timeout_ms", 100..=60_000),
    };
    (settings, cluster.flatten())
}

/// The tags of the partitions; none: the system is one whole.
fn partitions(reader: &mut Reader<'_>) -> Vec<String> {
    const KEY: &str = "stream.partitions";
    let tags = reader.words(KEY);
    for wrong in wrong_tags(&tags) {
        reader.wrong(KEY, wrong);
    }
    tags
}

fn prefix(reader: &mut Reader<'_>) -> String {
    let prefix = reader.text("redis.prefix");
    if prefix.chars().any(|c| c.is_whitespace() || c.is_control() || matches!(c, '<' | '>')) {
        reader.wrong("redis.prefix", "must not hold spaces, control characters, < or >");
    }
    prefix
}

/// A second fleet, on another stream, is separate in everything or in nothing: with dead letters in common each would
/// put back the other's, a pause would stop both, and workers of one name would be taken for one.
fn names_of_its_own(reader: &mut Reader<'_>, stream: &StreamSettings, keys: &KeyTemplates) {
    if stream.name == DEFAULT_STREAM {
        return;
    }
    let default = KeyTemplates::default();
    for (key, is_default) in [
        ("stream.dead", stream.dead == DEFAULT_DEAD),
        ("stream.results", stream.results == DEFAULT_RESULTS),
        ("keys.heartbeat", keys.heartbeat == default.heartbeat),
        ("keys.log", keys.log == default.log),
        ("keys.pause", keys.pause == default.pause),
        ("keys.mark", keys.mark == default.mark),
        ("keys.sweeper", keys.sweeper == default.sweeper),
        ("keys.reconciler", keys.reconciler == default.reconciler),
        ("keys.reconciled", keys.reconciled == default.reconciled),
    ] {
        reader.rule(!is_default, key, "stream.name", OWN_NAMES);
    }
}

fn mysql(reader: &mut Reader<'_>, lanes: usize) -> MySqlSettings {
    let url = reader.text("mysql.url");
    let url = mysql_url(reader, "mysql.url", url);
    let connections: u32 = reader.number("mysql.connections", 0..=1_000);
    let statement_timeout = reader.millis("mysql.statement_timeout_ms", 100..=HOUR_MS);
    let lock_wait_timeout_s = reader.number("mysql.lock_wait_timeout_s", 1..=50);
    reader.rule(
        Duration::from_secs(u64::from(lock_wait_timeout_s)) < statement_timeout,
        "mysql.statement_timeout_ms",
        "mysql.lock_wait_timeout_s",
        "must be longer than mysql.lock_wait_timeout_s, or a lock wait is taken for an outage",
    );
    MySqlSettings {
        url,
        shard_tags: Vec::new(),
        connections: if connections == 0 { u32::try_from(lanes).unwrap_or(64) + 1 } else { connections },
        writers: reader.number("mysql.writers", 1..=64),
        acquire_timeout: reader.millis("mysql.acquire_timeout_ms", 100..=60_000),
        statement_timeout,
        lock_wait_timeout_s,
    }
}

fn mysql_url(reader: &mut Reader<'_>, key: &'static str, text: String) -> RedactedUrl {
    let parse = |url: &str| mysql_hosts(url).map_err(|error| error.to_string());
    let (url, hosts) = url(reader, (key, text), &MYSQL_SCHEMES, urls::wrong_mysql_query, parse);
    if hosts.is_some_and(|hosts| hosts.iter().any(|host| host.get_database().is_none())) {
        reader.wrong(key, "must name the database: mysql://user:password@host:port/DATABASE");
    }
    url
}

fn stream(reader: &mut Reader<'_>) -> StreamSettings {
    let (name, dead) = (reader.word("stream.name"), reader.word("stream.dead"));
    let results = reader.word("stream.results");
    reader.rule(name != dead, "stream.dead", "stream.name", "must differ from stream.name");
    reader.rule(name != results, "stream.results", "stream.name", "must differ from stream.name");
    reader.rule(dead != results, "stream.results", "stream.dead", "must differ from stream.dead");
    let retention = reader.millis("stream.retention_ms", 0..=10 * 365 * 24 * HOUR_MS);
    let retention = Some(retention).filter(|retention| !retention.is_zero());
    StreamSettings { name, dead, results, group: reader.word("stream.group"), retention }
}

/// `[gate]`
fn confirmation(reader: &mut Reader<'_>) -> Option<Confirmation> {
    let within = reader.millis("gate.wait_ms", 1..=60_000);
    let places = [("memory", ConfirmedIn::Memory), ("file", ConfirmedIn::AppendOnlyFile)];
    let place = reader.choice("gate.wait_for", &places);
    let replicas = NonZeroU32::new(reader.number("gate.wait_replicas", 0..=32))?;
    Some(Confirmation { replicas, within, place })
}

fn results(reader: &mut Reader<'_>) -> ResultsSettings {
    let announced =
        [("none", Announced::None), ("exceptions", Announced::Exceptions), ("all", Announced::All)];
    let keep = reader.millis("results.keep_ms", 0..=10 * 365 * 24 * HOUR_MS);
    let keep_bytes: u64 = reader.number("results.keep_bytes", 0..=1 << 40);
    ResultsSettings {
        announced: reader.choice("results.announce", &announced),
        keep: Some(keep).filter(|keep| !keep.is_zero()),
        keep_bytes: Some(keep_bytes).filter(|bytes| *bytes > 0),
    }
}

fn keys(reader: &mut Reader<'_>) -> KeyTemplates {
    let keys = KeyTemplates {
        stock: reader.template("keys.stock", "<voucher>"),
        buyers: reader.template("keys.buyers", "<voucher>"),
        voucher: reader.template("keys.voucher", "<voucher>"),
        journal: reader.template("keys.journal", "<voucher>"),
        lock: reader.template("keys.lock", "<user>"),
        order_id: reader.template("keys.order_id", "<day>"),
        heartbeat: reader.template("keys.heartbeat", "<name>"),
        log: reader.word("keys.log"),
        pause: reader.word("keys.pause"),
        mark: reader.word("keys.mark"),
        sweeper: reader.word("keys.sweeper"),
        reconciler: reader.word("keys.reconciler"),
        reconciled: reader.word("keys.reconciled"),
        partitions: reader.word("keys.partitions"),
        fields: fields(reader),
        partition: Partition::default(),
    };
    let per_voucher = [
        (&keys.stock, "keys.stock"),
        (&keys.buyers, "keys.buyers"),
        (&keys.voucher, "keys.voucher"),
        (&keys.journal, "keys.journal"),
    ];
    different(reader, &per_voucher);
    keys
}

/// Keys of the fleet as a whole, each with the setting that it is from.
fn own_keys(keys: &KeyTemplates) -> [(&String, &'static str); 7] {
    [
        (&keys.log, "keys.log"),
        (&keys.pause, "keys.pause"),
        (&keys.mark, "keys.mark"),
        (&keys.sweeper, "keys.sweeper"),
        (&keys.reconciler, "keys.reconciler"),
        (&keys.reconciled, "keys.reconciled"),
        (&keys.partitions, "keys.partitions"),
    ]
}

fn different(reader: &mut Reader<'_>, keys: &[(&String, &'static str)]) {
    for (index, (name, key)) in keys.iter().enumerate() {
        if let Some((_, earlier)) = keys[..index].iter().find(|(earlier, _)| earlier == name) {
            reader.rule(false, key, earlier, format!("must differ from {earlier}"));
        }
    }
}

fn fields(reader: &mut Reader<'_>) -> FieldNames {
    let fields = FieldNames {
        user: reader.word("fields.user"),
        voucher: reader.word("fields.voucher"),
        id: reader.word("fields.id"),
        quantity: reader.word("fields.quantity"),
        slot: reader.word("fields.slot"),
        traceparent: reader.word("fields.traceparent"),
    };
    for AmbiguousName { setting, why } in fields.ambiguous() {
        reader.wrong(setting, why);
    }
    fields
}

fn worker(reader: &mut Reader<'_>) -> WorkerSettings {
    let worker = WorkerSettings {
        name: worker_name(reader),
        lanes: reader.number("worker.lanes", 1..=64),
        batch: reader.number("worker.batch", 1..=5_000),
        batch_bytes: reader.number("worker.batch_bytes", 65_536..=1 << 30),
        entry_max_bytes: reader.number("worker.entry_max_bytes", 4_096..=512 << 20),
        set_aside_max: reader.number("worker.set_aside_max", 1..=100_000_000),
        block: reader.millis("worker.block_ms", 10..=10_000),
        lock_lease: reader.millis("worker.lock_lease_ms", 100..=HOUR_MS),
        lock_retry: reader.millis("worker.lock_retry_ms", 1..=60_000),
        claim_idle: reader.millis("worker.claim_idle_ms", 100..=24 * HOUR_MS),
        claim_every: reader.millis("worker.claim_every_ms", 10..=HOUR_MS),
        retire_idle: reader.millis("worker.retire_idle_ms", 100..=30 * 24 * HOUR_MS),
        trim_every: reader.millis("worker.trim_every_ms", 100..=24 * HOUR_MS),
        heartbeat_ttl: reader.millis("worker.heartbeat_ttl_ms", 300..=HOUR_MS),
        stop_deadline: reader.millis("worker.stop_deadline_ms", 100..=HOUR_MS),
        backoff_min: reader.millis("worker.backoff_min_ms", 1..=60_000),
        backoff_max: reader.millis("worker.backoff_max_ms", 1..=10 * 60_000),
        report_every: reader.millis("worker.report_every_ms", 100..=HOUR_MS),
    };
    worker_rules(reader, &worker);
    worker
}

fn worker_rules(reader: &mut Reader<'_>, worker: &WorkerSettings) {
    reader.rule(
        worker.claim_idle > worker.lock_lease,
        "worker.claim_idle_ms",
        "worker.lock_lease_ms",
        "must be above worker.lock_lease_ms, or entries are taken over while their users are still locked",
    );
    reader.rule(
        worker.retire_idle > worker.claim_idle,
        "worker.retire_idle_ms",
        "worker.claim_idle_ms",
        "must be above worker.claim_idle_ms: first a dead consumer's entries are rescued, then it is removed",
    );
    reader.rule(
        worker.lock_retry < worker.lock_lease,
        "worker.lock_retry_ms",
        "worker.lock_lease_ms",
        "must be below worker.lock_lease_ms, or a free lock goes unnoticed",
    );
    reader.rule(
        worker.stop_deadline > worker.block,
        "worker.stop_deadline_ms",
        "worker.block_ms",
        "must be above worker.block_ms: a lane may be waiting in a read when the signal comes",
    );
    reader.rule(
        worker.backoff_max >= worker.backoff_min,
        "worker.backoff_max_ms",
        "worker.backoff_min_ms",
        "must not be below worker.backoff_min_ms",
    );
}

fn worker_name(reader: &mut Reader<'_>) -> String {
    let name = match reader.text("worker.name") {
        name if name.is_empty() => gethostname::gethostname().to_string_lossy().into_owned(),
        name => name,
    };
    if name.is_empty() || name.len() > 200 || name.chars().any(|c| c.is_whitespace() || c.is_control()) {
        reader.wrong("worker.name", "must be 1 to 200 bytes without spaces (the host name, if empty, too)");
    }
    name
}

fn log(reader: &mut Reader<'_>) -> LogSettings {
    let level = reader.text("log.level");
    // EnvFilter takes a misspelt level for the name of a target, and logs nothing.
    let words = level.split(',').map(str::trim).filter(|word| !word.contains(['=', '[']));
    if let Some(word) = words.clone().find(|word| !LEVELS.contains(&word.to_ascii_lowercase().as_str())) {
        let hint = did_you_mean(word, LEVELS);
        let levels = LEVELS.join(", ");
        reader.wrong("log.level", format!("must be one of {levels}, or target=level, ...{hint}"));
    } else if let Err(error) = EnvFilter::try_new(&level) {
        reader.wrong("log.level", format!("is no log filter: {error}"));
    }
    let formats = [("auto", LogFormat::Auto), ("text", LogFormat::Text), ("json", LogFormat::Json)];
    LogSettings { level, format: reader.choice("log.format", &formats) }
}

/// A URL that its client library understands. The library's message is passed on only where no secret can be in it.
fn url<T>(
    reader: &mut Reader<'_>,
    (key, text): (&'static str, String),
    schemes: &[&str],
    wrong_query: impl Fn(&str) -> Option<String>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> (RedactedUrl, Option<T>) {
    let url = RedactedUrl::new(text);
    let scheme = url.reveal().split_once("://").map(|(scheme, _)| scheme);
    if !scheme.is_some_and(|scheme| schemes.contains(&scheme)) {
        reader.wrong(key, format!("must begin with {}://", schemes.join("://, ")));
        return (url, None);
    }
    // A `/`, `?` or `#` in a password ends the host for every parser, silently: the rest would be another URL.
    let rest = url.reveal().split_once("://").map_or("", |(_, rest)| rest);
    if rest.find(['/', '?', '#']).is_some_and(|end| rest[end..].contains('@')) {
        reader.wrong(key, format!("holds a password that is not escaped ({URL_HINT})"));
        return (url, None);
    }
    if let Some(wrong) = wrong_query(url.reveal()) {
        reader.wrong(key, wrong);
        return (url, None);
    }
    let parsed = parse(url.reveal()).map_err(|error| {
        let why = if url.holds_no_secret() { format!(": {error}") } else { String::new() };
        reader.wrong(key, format!("is not a URL that can be used{why} ({URL_HINT})"));
    });
    (url, parsed.ok())
}
