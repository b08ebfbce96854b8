//! All Redis keys: those of sales and users, by the templates of the configuration; those of limits, of a fleet, and of
//! the list of partitions.

mod fleet;
mod limits;
mod partition_list;
mod pattern;

use std::fmt::Display;

use bytes::Bytes;
use fred::{error::Error, types::Key};

pub(crate) use self::{fleet::IN_PROGRESS, pattern::Pattern};
pub use self::{
    fleet::{FleetKeys, process_of},
    limits::LimitKeys,
    partition_list::PartitionListKeys,
};
use crate::{
    limits::LimitOwner,
    order::{UserId, VoucherId},
    partition::Partition,
    wire::FieldNames,
};

/// The text between a key and the id of the rebuild that fills a new key for it.
const STAGED: &str = ":rebuild:";
/// The text between [`KeyTemplates::prefix`] and the voucher, in the keys of orders with an idempotency key.
const IDEMPOTENCY: &str = "seckill:idempotency";

/// The names in Redis that the configuration sets: templates of the keys that other programs also use, and names of
/// entry fields. Tidegate replaces `<voucher>`, `<user>` and `<day>` in a template. If a template contains a literal
/// `{tag}`, all keys of the template are in one hash slot of a Redis Cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTemplates {
    /// The template for the key of a voucher's stock: a string with the number of units left. Contains `<voucher>`.
    pub stock: String,
    /// The template for the key of a voucher's buyers: a set of the users who got an order. Contains `<voucher>`.
    pub buyers: String,
    /// The template for the key of a voucher's sale: a hash with its times (`begin_ms`, `end_ms`) and its `state`.
    /// Contains `<voucher>`.
    pub voucher: String,
    /// The template for the key of a voucher's journal: a hash in which a JSON note for each order id says how the
    /// order changed the stock. Contains `<voucher>`.
    pub journal: String,
    /// The template for the key of the stock of a voucher with limits: a string with the number of units left. A
    /// voucher with limits has this key instead of `stock`. Contains `<voucher>`.
    pub limited: String,
    /// The template for the key of a user's lock, which a worker holds while it writes the user's orders. Contains
    /// `<user>`.
    pub lock: String,
    /// The template for the key of the counter from which the order ids of one day are made. Contains `<day>`, which
    /// has the form `yyyy:MM:dd`.
    pub order_id: String,
    /// The prefix of each key that has no template of its own.
    pub prefix: String,
    /// The text after `prefix` in the keys that all workers of one stream share. The text is empty for the usual
    /// stream, and otherwise the name of the stream and a colon.
    pub fleet: String,
    /// The names of the fields in the entries of the stream.
    pub fields: FieldNames,
    /// The partition that owns the keys. [`KeyTemplates::of_partition`] puts the tag (name) of the partition into the
    /// templates.
    pub partition: Partition,
}

impl Default for KeyTemplates {
    /// The key names that the tutorial uses.
    fn default() -> Self {
        Self {
            stock: "seckill:stock:<voucher>".into(),
            buyers: "seckill:order:<voucher>".into(),
            voucher: "seckill:voucher:<voucher>".into(),
            journal: "seckill:journal:<voucher>".into(),
            limited: "seckill:limited:<voucher>".into(),
            lock: "lock:order:<user>".into(),
            order_id: "icr:order:<day>".into(),
            prefix: String::new(),
            fleet: String::new(),
            fields: FieldNames::default(),
            partition: Partition::default(),
        }
    }
}

impl KeyTemplates {
    /// Returns a copy of the templates, with `prefix` before every key.
    #[must_use]
    pub fn prefixed(self, prefix: &str) -> Self {
        let prefixed = |template: String| format!("{prefix}{template}");
        Self {
            stock: prefixed(self.stock),
            buyers: prefixed(self.buyers),
            voucher: prefixed(self.voucher),
            journal: prefixed(self.journal),
            limited: prefixed(self.limited),
            lock: prefixed(self.lock),
            order_id: prefixed(self.order_id),
            prefix: prefixed(self.prefix),
            ..self
        }
    }

    /// Returns a copy of the templates for a partition, with the tag (name) of the partition before every key.
    #[must_use]
    pub fn of_partition(self, partition: &Partition) -> Self {
        Self { partition: partition.clone(), ..self.prefixed(&partition.prefix()) }
    }
}

/// The maker of the Redis keys of a partition, from templates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    templates: KeyTemplates,
    fleet: FleetKeys,
}

impl Keys {
    /// Creates a maker of keys from the given templates. The configuration has already checked that each template
    /// contains its placeholder.
    #[must_use]
    pub fn new(templates: KeyTemplates) -> Self {
        let fleet = FleetKeys::new(&templates.prefix, &templates.fleet);
        Self { templates, fleet }
    }

    /// A key that has no template.
    fn own(&self, name: impl Display) -> Key {
        format!("{}{name}", self.templates.prefix).into()
    }

    /// Whether a text is the name of a key without a template, or begins with the name of such a key.
    #[must_use]
    pub fn is_own(&self, name: &str) -> bool {
        let of_fleet = fleet::NAMES.map(|name| self.fleet.key(name));
        let of_all = [partition_list::NAME, limits::RULES, limits::USES, IDEMPOTENCY];
        let mut own = of_fleet.into_iter().chain(of_all.map(|name| self.own(name)));
        own.any(|own| {
            let rest = name.strip_prefix(&*own.as_str_lossy());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        })
    }

    /// The key for the number of units that a voucher without limits has left.
    #[must_use]
    pub fn stock(&self, voucher: VoucherId) -> Key {
        fill(&self.templates.stock, "<voucher>", voucher)
    }

    /// The key for the set of users who got an order for a voucher in Redis.
    #[must_use]
    pub fn buyers(&self, voucher: VoucherId) -> Key {
        fill(&self.templates.buyers, "<voucher>", voucher)
    }

    /// The key for the hash with the sale times and the state of a voucher.
    #[must_use]
    pub fn voucher(&self, voucher: VoucherId) -> Key {
        fill(&self.templates.voucher, "<voucher>", voucher)
    }

    /// The key for the journal of a voucher: a hash that notes for each order how it changed the stock.
    #[must_use]
    pub fn journal(&self, voucher: VoucherId) -> Key {
        fill(&self.templates.journal, "<voucher>", voucher)
    }

    /// The keys of every sale: stock, buyers, window with state, and journal.
    pub(crate) fn of_sale(&self, voucher: VoucherId) -> Vec<Key> {
        vec![self.stock(voucher), self.buyers(voucher), self.voucher(voucher), self.journal(voucher)]
    }

    /// The key for the number of units that a voucher with limits has left.
    #[must_use]
    pub fn limited(&self, voucher: VoucherId) -> Key {
        fill(&self.templates.limited, "<voucher>", voucher)
    }

    /// The maker of the keys for the limits of a voucher or a campaign.
    #[must_use]
    pub fn limits(&self, owner: LimitOwner) -> LimitKeys<'_> {
        LimitKeys { prefix: &self.templates.prefix, owner }
    }

    /// The key for the id of the order that a user requested under an idempotency key. The key contains the digest of
    /// the idempotency key.
    #[must_use]
    pub fn idempotency(&self, voucher: VoucherId, user: UserId, digest: &str) -> Key {
        self.own(format_args!("{IDEMPOTENCY}:{voucher}:{user}:{digest}"))
    }

    /// Whether [`Keys::idempotency`] makes keys like this one.
    #[must_use]
    pub(crate) fn is_idempotency(&self, key: &str) -> bool {
        let key = key.strip_prefix(&self.templates.prefix).and_then(|key| key.strip_prefix(IDEMPOTENCY));
        key.is_some_and(|rest| rest.starts_with(':'))
    }

    /// The keys of the locks of users, in the order of `users`. All keys share one memory allocation.
    #[must_use]
    pub fn locks(&self, users: &[UserId]) -> Vec<Key> {
        let (before, after) = halves(&self.templates.lock, "<user>");
        let mut text = Vec::with_capacity(users.len() * (before.len() + after.len() + 19));
        let mut ends = Vec::with_capacity(users.len());
        for user in users {
            text.extend_from_slice(before.as_bytes());
            text.extend_from_slice(itoa::Buffer::new().format(user.get()).as_bytes());
            text.extend_from_slice(after.as_bytes());
            ends.push(text.len());
        }
        let mut rest = Bytes::from(text);
        let mut begin = 0;
        let lengths = ends.into_iter().map(|end| end - std::mem::replace(&mut begin, end));
        lengths.map(|length| rest.split_to(length).into()).collect()
    }

    /// The key for the order-id counter of a day. `day` has the form `yyyy:MM:dd`.
    #[must_use]
    pub fn order_id(&self, day: &str) -> Key {
        fill(&self.templates.order_id, "<day>", day)
    }

    /// The maker of the keys that all workers of one stream and their operators share.
    #[must_use]
    pub fn fleet(&self) -> &FleetKeys {
        &self.fleet
    }

    /// The maker of the keys for the list of partitions.
    #[must_use]
    pub fn partition_list(&self) -> PartitionListKeys<'_> {
        PartitionListKeys { prefix: &self.templates.prefix }
    }

    /// The partition to which the keys belong.
    #[must_use]
    pub fn partition(&self) -> &Partition {
        &self.templates.partition
    }

    /// The names of the fields in the entries of the stream.
    #[must_use]
    pub fn fields(&self) -> &FieldNames {
        &self.templates.fields
    }

    /// The pattern for the stocks of all vouchers with limits, for SCAN.
    #[must_use]
    pub(crate) fn limited_stocks(&self) -> Pattern<'_> {
        Pattern::new(&self.templates.limited, "<voucher>")
    }

    /// The pattern for the stocks of all vouchers without limits, for SCAN.
    #[must_use]
    pub(crate) fn stocks(&self) -> Pattern<'_> {
        Pattern::new(&self.templates.stock, "<voucher>")
    }

    /// The pattern for all sets of buyers, for SCAN.
    #[must_use]
    pub(crate) fn all_buyers(&self) -> Pattern<'_> {
        Pattern::new(&self.templates.buyers, "<voucher>")
    }

    /// The pattern for all journals, for SCAN.
    #[must_use]
    pub(crate) fn journals(&self) -> Pattern<'_> {
        Pattern::new(&self.templates.journal, "<voucher>")
    }

    /// The pattern for the windows and states of all vouchers, for SCAN.
    #[must_use]
    pub(crate) fn vouchers(&self) -> Pattern<'_> {
        Pattern::new(&self.templates.voucher, "<voucher>")
    }
}

/// The key that the rebuild `id` fills in place of `key`, in the same slot.
pub(crate) fn staged(key: &Key, id: &str) -> Key {
    format!("{}{STAGED}{id}", key.as_str_lossy()).into()
}

/// Adds the name of the key to a WRONGTYPE error, because Redis does not report the name.
#[must_use]
pub fn naming(key: &Key, error: Error) -> Error {
    if !error.details().starts_with("WRONGTYPE") {
        return error;
    }
    Error::new(error.kind().clone(), format!("{}: {}", key.as_str_lossy(), error.details()))
}

fn fill(template: &str, placeholder: &str, value: impl Display) -> Key {
    let (before, after) = halves(template, placeholder);
    format!("{before}{value}{after}").into()
}

fn halves<'a>(template: &'a str, placeholder: &str) -> (&'a str, &'a str) {
    // The configuration has checked that it holds its placeholder once.
    template.split_once(placeholder).unwrap_or((template, ""))
}

#[cfg(test)]
mod tests {
    use super::{KeyTemplates, Keys};

    #[test]
    fn every_user_has_a_lock_of_its_own() {
        let keys = |template: &str, users: &[i64]| {
            let users: Vec<_> = users.iter().map(|user| (*user).try_into().unwrap()).collect();
            Keys::new(KeyTemplates { lock: template.into(), ..KeyTemplates::default() }).locks(&users)
        };
        assert_eq!(
            keys("lock:<user>", &[7, 12_345, i64::MAX]),
            ["lock:7".into(), "lock:12345".into(), "lock:9223372036854775807".into()]
        );
        assert_eq!(keys("{a}:<user>:b", &[1, 2]), ["{a}:1:b".into(), "{a}:2:b".into()]);
        assert!(keys("<user>", &[]).is_empty());
    }

    #[test]
    fn the_keys_of_all_vouchers_can_be_looked_for() {
        let keys =
            Keys::new(KeyTemplates { stock: "{s*}:[<voucher>]:left".into(), ..KeyTemplates::default() });
        let stocks = keys.stocks();
        assert_eq!(stocks.glob(), r"{s\*}:\[*\]:left");
        assert_eq!(stocks.voucher("{s*}:[42]:left"), Some(42.try_into().unwrap()));
        for other in ["{s*}:[]:left", "{s*}:[4:2]:left", "{s*}:[0]:left", "{s*}:[42]:gone", "left"] {
            assert_eq!(stocks.voucher(other), None, "{other}");
        }
        assert_eq!(Keys::new(KeyTemplates::default()).vouchers().glob(), "seckill:voucher:*");
    }
}
