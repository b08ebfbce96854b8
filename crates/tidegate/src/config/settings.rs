//! The settings as typed values, with their permitted ranges.

mod admin;
mod gate;
mod names;
mod shards;
mod stores;
mod tokens;
mod webhooks;
mod worker;

use std::time::Duration;

use tidegate_http::{AdminSettings, GateSettings, TokenSettings};
use tidegate_operations::{
    CalendarSettings, ReconcileSettings, ResultsSettings, System, SystemSettings,
    busy_marker::BusyMarkerSettings,
};
use tidegate_orders::Published;
use tidegate_stream::{Failover, LaneSettings, cluster::is_cluster_url};
use tidegate_worker::{ProcessSettings, WorkerSettings};
use tracing_subscriber::EnvFilter;

use super::{reader::SettingsReader, suggest::did_you_mean};
use crate::spans::parse_span;

/// The least byte limit for the entries that a lane has in progress, even if there are many partitions.
const LEAST_BATCH_BYTES: usize = 128 << 10;
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
const HOUR_MS: i64 = 3_600_000;
/// The longest time before its begin at which workers load a voucher: 7 days.
const LONGEST_WARM_UP: Duration = Duration::from_secs(7 * 24 * 3600);

/// All settings of the program; `config/default.toml` describes each setting.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The settings of the stores and of the names in Redis, for each partition.
    pub system: System,
    /// The settings of the worker.
    pub worker: WorkerSettings,
    /// The settings of the admin pages of a worker.
    pub admin: AdminSettings,
    /// The settings of the gate, which admits orders over HTTP.
    pub gate: GateSettings,
    /// The tokens of the clients of the gate and of the admin pages.
    pub tokens: TokenSettings,
    /// The settings which say when workers mark sales as busy, so that the sales refuse orders.
    pub busy_marker: BusyMarkerSettings,
    /// The settings of the log.
    pub log: LogSettings,
}

/// The settings of the section `[log]`: the level and the format.
#[derive(Clone, Debug)]
pub struct LogSettings {
    /// The log level, as directives of `EnvFilter`.
    pub level: String,
    /// The format of log lines.
    pub format: LogFormat,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    /// Text lines, for people.
    Text,
    /// JSON lines, for programs.
    Json,
}

impl Settings {
    /// Reads every setting. The reader collects the mistakes.
    pub fn read(reader: &mut SettingsReader<'_>) -> Self {
        let worker = worker::read(reader);
        let (stream, keys) = names::read(reader);
        let tags = names::partitions(reader);
        let mysql = stores::mysql(reader, worker.lanes * tags.len().max(1));
        worker::stuck_rules(reader, &worker, &mysql);
        let shards = shards::read(reader, &tags);
        let tokens = tokens::read(reader);
        let gate = gate::read(reader, &worker, &tokens);
        let (redis, cluster) = stores::redis(reader);
        if is_cluster_url(redis.url.reveal()) && tags.is_empty() {
            let why = "is a cluster, where key names need the tags of partitions: set stream.partitions";
            reader.wrong("redis.url", why);
        }
        Self {
            admin: admin::read(reader, &tokens),
            system: System::new(
                &SystemSettings {
                    redis,
                    mysql,
                    stream,
                    keys,
                    confirmation: gate::confirmation(reader),
                    pay_within: Duration::from_secs(reader.number("order.pay_within_s", 0..=365 * 24 * 3600)),
                    reconcile: reconcile(reader),
                    calendar: CalendarSettings {
                        carries_windows: reader
                            .choice("calendar.carry_windows", &[("no", false), ("yes", true)]),
                        warm_up: warm_up(reader),
                    },
                    results: results(reader),
                    fleet: worker::fleet(reader, &worker),
                },
                &tags,
                cluster.as_ref(),
            )
            .with_shards(&shards),
            worker,
            gate,
            tokens,
            busy_marker: gate::busy_marker(reader),
            log: log(reader),
        }
    }

    /// The settings of a worker process for each partition. Limits on entries in progress, and on entries put off to a
    /// later try, are divided among the partitions.
    pub fn processes(&self) -> Vec<ProcessSettings> {
        let Self { system, worker, busy_marker, .. } = self.clone();
        let partitions = system.partitions();
        let share = |of: usize, least: usize| (of / partitions.len()).max(least);
        let process = |system: &SystemSettings| {
            let may_fail_over = system.redis.may_fail_over();
            let lane = LaneSettings {
                batch_bytes: share(worker.lane.batch_bytes, LEAST_BATCH_BYTES),
                set_aside_max: share(worker.lane.set_aside_max, 1),
                failover: if may_fail_over { Failover::Possible } else { Failover::Never },
                replicas: system.confirmation,
                ..worker.lane.clone()
            };
            ProcessSettings {
                system: system.clone(),
                worker: WorkerSettings { lane, ..worker.clone() },
                busy_marker,
            }
        };
        partitions.iter().map(process).collect()
    }
}

fn results(reader: &mut SettingsReader<'_>) -> ResultsSettings {
    let published = Published::ALL.map(|published| (published.word(), published));
    let keep = reader.millis("results.keep_ms", 0..=10 * 365 * 24 * HOUR_MS);
    let keep_bytes: u64 = reader.number("results.keep_bytes", 0..=1 << 40);
    let published = reader.choice("results.publish", &published);
    ResultsSettings {
        published,
        keep: Some(keep).filter(|keep| !keep.is_zero()),
        keep_bytes: Some(keep_bytes).filter(|bytes| *bytes > 0),
        webhooks: webhooks::read(reader, published).into(),
    }
}

fn reconcile(reader: &mut SettingsReader<'_>) -> ReconcileSettings {
    let mut seconds = |key, most| Duration::from_secs(reader.number(key, 0..=most));
    ReconcileSettings {
        every: seconds("reconcile.every_s", 7 * 24 * 3600),
        remove_delisted_after: seconds("reconcile.remove_delisted_after_s", 365 * 24 * 3600),
        compact_after: seconds("reconcile.compact_after_s", 10 * 365 * 24 * 3600),
        repairs: reader.choice("reconcile.repair", &[("no", false), ("yes", true)]),
    }
}

/// Reads the time before their begin at which workers load vouchers: a duration, or `off`.
fn warm_up(reader: &mut SettingsReader<'_>) -> Option<Duration> {
    let text = reader.text("calendar.warm_up");
    if text == "off" {
        return None;
    }
    let span = parse_span(&text).ok().filter(|span| LONGEST_WARM_UP >= *span && span.as_secs() > 0);
    if span.is_none() {
        reader.wrong("calendar.warm_up", "must be off, or a duration from 1s to 7d, such as 10m");
    }
    span
}

fn log(reader: &mut SettingsReader<'_>) -> LogSettings {
    let level = reader.text("log.level");
    // EnvFilter would take a misspelt level for the name of a target, and log nothing.
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
