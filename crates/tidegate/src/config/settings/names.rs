//! The names of a system in Redis: `[stream]`, `[keys]`, `[fields]` and `redis.prefix`.

use tidegate_operations::StreamSettings;
use tidegate_orders::{
    KeyTemplates, Keys,
    partition::wrong_tags,
    wire::{AmbiguousName, FieldNames},
};

use super::HOUR_MS;
use crate::config::reader::SettingsReader;

const DEFAULT_STREAM: &str = "stream.orders";
const DEFAULT_DEAD: &str = "stream.orders.dead";
const DEFAULT_RESULTS: &str = "stream.orders.results";
const OWN_NAMES: &str = "is the name for workers on stream.orders: workers on another stream need another name. For a second \
                         system, set redis.prefix, which changes all names at once, and do not change stream.name";

/// Reads the names, each with `redis.prefix` before it.
pub(super) fn read(reader: &mut SettingsReader<'_>) -> (StreamSettings, KeyTemplates) {
    let (stream, keys) = (stream(reader), keys(reader));
    // Workers on another stream are a separate fleet.
    let fleet = if stream.name == DEFAULT_STREAM { String::new() } else { format!("{}:", stream.name) };
    let keys = KeyTemplates { fleet, ..keys };
    all_different(reader, &stream, &keys);
    names_of_its_own(reader, &stream);
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

/// Reads the tags of the partitions. An empty list means a system without partitions.
pub(super) fn partitions(reader: &mut SettingsReader<'_>) -> Vec<String> {
    const KEY: &str = "stream.partitions";
    let tags = reader.words(KEY);
    for wrong in wrong_tags(&tags) {
        reader.wrong(KEY, wrong);
    }
    tags
}

fn prefix(reader: &mut SettingsReader<'_>) -> String {
    let prefix = reader.text("redis.prefix");
    if prefix.chars().any(|c| c.is_whitespace() || c.is_control() || matches!(c, '<' | '>')) {
        reader.wrong("redis.prefix", "must not hold spaces, control characters, < or >");
    }
    prefix
}

fn stream(reader: &mut SettingsReader<'_>) -> StreamSettings {
    let retention = reader.millis("stream.retention_ms", 0..=10 * 365 * 24 * HOUR_MS);
    StreamSettings {
        name: reader.word("stream.name"),
        dead: reader.word("stream.dead"),
        results: reader.word("stream.results"),
        group: reader.word("stream.group"),
        retention: Some(retention).filter(|retention| !retention.is_zero()),
    }
}

fn keys(reader: &mut SettingsReader<'_>) -> KeyTemplates {
    KeyTemplates {
        stock: reader.template("keys.stock", "<voucher>"),
        buyers: reader.template("keys.buyers", "<voucher>"),
        voucher: reader.template("keys.voucher", "<voucher>"),
        journal: reader.template("keys.journal", "<voucher>"),
        limited: reader.template("keys.limited", "<voucher>"),
        lock: reader.template("keys.lock", "<user>"),
        order_id: reader.template("keys.order_id", "<day>"),
        fields: fields(reader),
        ..KeyTemplates::default()
    }
}

/// Checks that no two names can be equal, whatever their placeholders are called: a user may have the same number as a
/// voucher.
fn all_different(reader: &mut SettingsReader<'_>, stream: &StreamSettings, keys: &KeyTemplates) {
    let names = [
        ("stream.name", &stream.name),
        ("stream.dead", &stream.dead),
        ("stream.results", &stream.results),
        ("keys.stock", &keys.stock),
        ("keys.buyers", &keys.buyers),
        ("keys.voucher", &keys.voucher),
        ("keys.journal", &keys.journal),
        ("keys.limited", &keys.limited),
        ("keys.lock", &keys.lock),
        ("keys.order_id", &keys.order_id),
    ];
    let of_usual_fleet = Keys::new(KeyTemplates { fleet: String::new(), ..keys.clone() });
    let own = [Keys::new(keys.clone()), of_usual_fleet];
    let form = |name: &str| name.replace("<user>", "<voucher>");
    for (index, (key, name)) in names.into_iter().enumerate() {
        if own.iter().any(|keys| keys.is_own(name)) {
            reader.wrong(key, "is the name of a key that only Tidegate uses; choose another name");
        } else if let Some((earlier, _)) = names[..index].iter().find(|(_, other)| form(other) == form(name))
        {
            let told = format!("names the same keys as {earlier}; choose another name");
            reader.rule(false, key, earlier, told);
        }
    }
}

/// Checks the names of a second fleet on another stream, which has keys of its own (`KeyTemplates::fleet`). If both
/// fleets shared the dead letters, each would put back the other's.
fn names_of_its_own(reader: &mut SettingsReader<'_>, stream: &StreamSettings) {
    if stream.name == DEFAULT_STREAM {
        return;
    }
    reader.rule(stream.dead != DEFAULT_DEAD, "stream.dead", "stream.name", OWN_NAMES);
    reader.rule(stream.results != DEFAULT_RESULTS, "stream.results", "stream.name", OWN_NAMES);
}

fn fields(reader: &mut SettingsReader<'_>) -> FieldNames {
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
