//! The names of a system in Redis: `[stream]`, `[keys]`, `[fields]` and `redis.prefix`.

use tidegate_operations::StreamSettings;
use tidegate_orders::{
    KeyTemplates, Partition,
    partition::wrong_tags,
    wire::{AmbiguousName, FieldNames},
};

use super::HOUR_MS;
use crate::config::reader::Reader;

const DEFAULT_STREAM: &str = "stream.orders";
const DEFAULT_DEAD: &str = "stream.orders.dead";
const DEFAULT_RESULTS: &str = "stream.orders.results";
const OWN_NAMES: &str = "is that of a fleet on stream.orders: a fleet on another stream needs one of its own. For a second \
                         fleet set redis.prefix, which separates all names at once, and leave stream.name as it is";

/// Reads the names, each with `redis.prefix` before it.
pub(super) fn read(reader: &mut Reader<'_>) -> (StreamSettings, KeyTemplates) {
    let (stream, keys) = (stream(reader), keys(reader));
    let streams =
        [(&stream.name, "stream.name"), (&stream.dead, "stream.dead"), (&stream.results, "stream.results")];
    for (name, key) in streams {
        for (own, of) in own_keys(&keys) {
            reader.rule(own != name, of, key, format!("must differ from {key}"));
        }
    }
    different(reader, &own_keys(&keys));
    for (own, of) in own_keys(&keys).into_iter().chain(streams) {
        let (before, after) = keys.heartbeat.split_once("<name>").unwrap_or_default();
        let name = own.strip_prefix(before).and_then(|own| own.strip_suffix(after));
        let told = format!("stands for {of} if a worker has this name: {}", name.unwrap_or_default());
        reader.rule(name.is_none_or(str::is_empty), "keys.heartbeat", of, told);
    }
    names_of_its_own(reader, &stream, &keys);
    let prefix = prefix(reader);
    let keys = keys.prefixed(&prefix);
    let stream = StreamSettings {
        name: format!("{prefix}{}", stream.name),
        dead: format!("{prefix}{}", stream.dead),
        results: format!("{prefix}{}", stream.results),
        ..stream
    };
    (stream, keys)
}

/// The tags of the partitions; none: the system is one whole.
pub(super) fn partitions(reader: &mut Reader<'_>) -> Vec<String> {
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

fn keys(reader: &mut Reader<'_>) -> KeyTemplates {
    let keys = KeyTemplates {
        stock: reader.template("keys.stock", "<voucher>"),
        buyers: reader.template("keys.buyers", "<voucher>"),
        voucher: reader.template("keys.voucher", "<voucher>"),
        journal: reader.template("keys.journal", "<voucher>"),
        limited: reader.template("keys.limited", "<voucher>"),
        limits: reader.template("keys.limits", "<owner>"),
        uses: reader.template("keys.uses", "<owner>"),
        idempotency: reader.template("keys.idempotency", "<voucher>"),
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
    let templates = [
        (&keys.stock, "keys.stock"),
        (&keys.buyers, "keys.buyers"),
        (&keys.voucher, "keys.voucher"),
        (&keys.journal, "keys.journal"),
        (&keys.limited, "keys.limited"),
        (&keys.limits, "keys.limits"),
        (&keys.uses, "keys.uses"),
        (&keys.idempotency, "keys.idempotency"),
        (&keys.lock, "keys.lock"),
        (&keys.order_id, "keys.order_id"),
        (&keys.heartbeat, "keys.heartbeat"),
    ];
    different(reader, &templates);
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

/// No two templates are alike: a user, a worker or an owner of limits may have the same name as a voucher, and a worker that of a day.
fn different(reader: &mut Reader<'_>, keys: &[(&String, &'static str)]) {
    let forms = |template: &str, of_a_worker: bool| {
        let day = if of_a_worker { "<day>" } else { "<user>" };
        let shared = |text: String, name: &&str| text.replace(name, "<>");
        let template = ["<voucher>", "<user>", "<name>", day].iter().fold(template.to_owned(), shared);
        ["voucher:<>", "campaign:<>"].map(|owner| template.replace("<owner>", owner))
    };
    for (index, (name, key)) in keys.iter().enumerate() {
        let is_alike = |earlier: &str| {
            let of_a_worker = name.contains("<name>") || earlier.contains("<name>");
            let own = forms(name, of_a_worker);
            forms(earlier, of_a_worker).iter().any(|form| own.contains(form))
        };
        if let Some((_, earlier)) = keys[..index].iter().find(|(earlier, _)| is_alike(earlier)) {
            let told = format!("stands for the same keys as {earlier}; give it another name");
            reader.rule(false, key, earlier, told);
        }
    }
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
