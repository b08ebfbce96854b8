//! An order or an event out of the fields of an entry. The only place that knows the names of the fields.

mod event;
mod result;

use std::borrow::Cow;

use serde::Deserialize;
use tidegate_stream::Entry;

use crate::{
    event::{BadText, Event},
    order::{BadNumber, Order, OrderId, Quantity, Slot, UserId, Uses, VoucherId},
    traceparent::Traceparent,
};
pub use event::{event_fields, order_of_event, reference_of_event};
pub use result::result_fields;

/// The names that `lua/admit.lua` writes.
const USER_ID: &str = "userId";
const VOUCHER_ID: &str = "voucherId";
const ID: &str = "id";
const QUANTITY: &str = "quantity";
const SLOT: &str = "slot";
const TRACEPARENT: &str = "traceparent";

/// What an order used of limits. Only the gate writes it, so it has one name.
pub(crate) const USES: &str = "uses";

/// What makes an entry an event, which is something else than an order, whatever its other fields are called.
pub const EVENT: &str = "event";

/// Longest piece of a bad value that an error shows, in characters.
const SHOWN_CHARS: usize = 64;

/// Under which names producers write the fields of an order. An entry that lacks a field under its name here has it under
/// the name that `lua/admit.lua` writes, if at all: the gate's orders are read, however others name theirs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct FieldNames {
    /// The user's id.
    pub user: String,
    /// The voucher's id.
    pub voucher: String,
    /// The order's id.
    pub id: String,
    /// Units; optional.
    pub quantity: String,
    /// Which of the user's orders it is; optional.
    pub slot: String,
    /// The trace that the producer was in; optional.
    pub traceparent: String,
}

impl Default for FieldNames {
    /// The names that `lua/admit.lua` and the tutorial's script write.
    fn default() -> Self {
        Self {
            user: USER_ID.into(),
            voucher: VOUCHER_ID.into(),
            id: ID.into(),
            quantity: QUANTITY.into(),
            slot: SLOT.into(),
            traceparent: TRACEPARENT.into(),
        }
    }
}

/// A name of [`FieldNames`] that would make entries ambiguous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AmbiguousName {
    /// The setting that says so, such as `fields.user`.
    pub setting: &'static str,
    /// Why no other field may be called so.
    pub why: String,
}

/// Why an entry is no order. It will not become one by trying again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A required field is not there.
    #[error("the field {field} is missing{hint}")]
    Missing {
        /// Name of the field.
        field: String,
        /// What to set where the entry looks like an order with other names; otherwise empty.
        hint: String,
    },
    /// A field stands twice: which of the two is meant, nobody can know.
    #[error("the field {field} stands more than once")]
    Duplicate {
        /// Name of the field.
        field: String,
    },
    /// A value that its field cannot have.
    #[error("the field {field} {fault}: \"{shown}\"")]
    BadValue {
        /// Name of the field.
        field: String,
        /// What is wrong with the value.
        fault: BadNumber,
        /// The beginning of the value, at most 64 characters, what cannot be printed escaped.
        shown: String,
    },
    /// A text that its field cannot have.
    #[error("the field {field} {fault}: \"{shown}\"")]
    BadText {
        /// Name of the field.
        field: &'static str,
        /// What is wrong with the text.
        fault: BadText,
        /// The beginning of the text, as in [`WireError::BadValue`].
        shown: String,
    },
    /// It has a field `event`, where an order was asked for.
    #[error("it has a field {EVENT}, so it is no order but an event")]
    Event,
    /// It is an event of which this version does not know.
    #[error("the field {EVENT} is \"{shown}\", which this version does not know")]
    UnknownEvent {
        /// The beginning of the word, as in [`WireError::BadValue`].
        shown: String,
    },
}

/// Whether an entry says what happened to an order, in a way that can be read or not.
#[must_use]
pub fn is_event(entry: &Entry) -> bool {
    entry.fields.iter().any(|(name, _)| name == EVENT)
}

/// The fields of an order's entry, as the gate appends it.
#[must_use]
pub fn order_fields(order: &Order) -> Vec<(&'static str, Cow<'static, str>)> {
    let mut fields: Vec<(&'static str, Cow<'static, str>)> = vec![
        (USER_ID, order.user.to_string().into()),
        (VOUCHER_ID, order.voucher.to_string().into()),
        (ID, order.id.to_string().into()),
    ];
    if order.quantity != Quantity::ONE {
        fields.push((QUANTITY, order.quantity.to_string().into()));
    }
    if order.slot != Slot::FIRST {
        fields.push((SLOT, order.slot.to_string().into()));
    }
    if let Some(uses) = &order.uses {
        fields.push((USES, uses.to_string().into()));
    }
    fields
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// An order that was admitted.
    Order(Order),
    /// Something that happened to an order.
    Event(Event),
}

impl Message {
    /// The voucher that it is about.
    #[must_use]
    pub fn voucher(&self) -> VoucherId {
        match self {
            Self::Order(order) => order.voucher,
            Self::Event(event) => event.voucher,
        }
    }
}

impl WireError {
    /// One word for labels and dead letters.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "missing_field",
            Self::Duplicate { .. } => "duplicate_field",
            Self::BadValue { .. } | Self::BadText { .. } => "bad_value",
            Self::Event | Self::UnknownEvent { .. } => "unsupported_event",
        }
    }

    /// Whether the entry looks like an order whose fields have other names than those that are configured.
    #[must_use]
    pub fn has_other_names(&self) -> bool {
        matches!(self, Self::Missing { hint, .. } if !hint.is_empty())
    }
}

/// What can be read of an entry, be it an order or not. For people who look for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryIds {
    /// Its order id.
    pub id: Option<OrderId>,
    /// Its user.
    pub user: Option<UserId>,
    /// Its voucher.
    pub voucher: Option<VoucherId>,
}

/// A field of an order: its setting, in entries, and in the entries of the gate.
#[derive(Clone, Copy)]
struct Field<'a> {
    setting: &'static str,
    name: &'a str,
    standard: &'static str,
}

impl FieldNames {
    /// Reads an entry. One that has a field `event` is an event, whatever its other fields are.
    ///
    /// # Errors
    /// As [`Self::decode`]; and when the event is not known, or one of its texts is not what its field allows.
    pub fn decode_message(&self, entry: &Entry) -> Result<Message, WireError> {
        match event::decode(entry)? {
            Some(event) => Ok(Message::Event(event)),
            None => self.order(entry).map(Message::Order),
        }
    }

    /// Reads the order out of an entry. Field order does not matter, unknown fields are ignored.
    ///
    /// # Errors
    /// When it is an event, a required field is missing, a known field stands twice, or a value is not what its field
    /// allows.
    pub fn decode(&self, entry: &Entry) -> Result<Order, WireError> {
        if is_event(entry) {
            return Err(WireError::Event);
        }
        self.order(entry)
    }

    /// Reads an entry that is no event.
    fn order(&self, entry: &Entry) -> Result<Order, WireError> {
        Ok(Order {
            user: self.required(entry, self.user(), UserId::parse)?,
            voucher: self.required(entry, self.voucher(), VoucherId::parse)?,
            id: self.required(entry, self.id(), OrderId::parse)?,
            quantity: optional(entry, self.quantity(), Quantity::ONE, Quantity::parse)?,
            slot: optional(entry, self.slot(), Slot::FIRST, Slot::parse)?,
            uses: uses(entry),
        })
    }

    /// Whether an entry names this voucher and this user, where one is asked for. Also of an entry that is no order: it
    /// is seen by whoever looks for its voucher.
    #[must_use]
    pub fn are_named(&self, entry: &Entry, voucher: Option<VoucherId>, user: Option<UserId>) -> bool {
        let holds = |field: Field<'_>, id: Option<String>| {
            id.is_none_or(|id| entry.fields.iter().any(|(name, value)| field.is(name) && *value == id))
        };
        holds(self.voucher(), voucher.map(|id| id.to_string()))
            && holds(self.user(), user.map(|id| id.to_string()))
    }

    /// What stands for the order id of an entry, which may be no order otherwise.
    #[must_use]
    pub fn id_text<'e>(&self, entry: &'e Entry) -> Option<&'e [u8]> {
        first(entry, self.id())
    }

    /// Reads what can be read; of a field that stands twice, the first.
    #[must_use]
    pub fn peek(&self, entry: &Entry) -> EntryIds {
        EntryIds {
            id: order_of_event(entry)
                .or_else(|| first(entry, self.id()).and_then(|value| OrderId::parse(value).ok())),
            user: first(entry, self.user()).and_then(|value| UserId::parse(value).ok()),
            voucher: first(entry, self.voucher()).and_then(|value| VoucherId::parse(value).ok()),
        }
    }

    /// Names of the fields that say what an entry is about, be it an order or an event; some may stand here twice.
    #[must_use]
    pub fn telling(&self) -> Vec<&str> {
        let fields =
            [self.id(), self.user(), self.voucher(), self.quantity(), self.slot(), self.traceparent_field()];
        let names = fields.into_iter().flat_map(|field| [field.name, field.standard]);
        names.chain([USES, EVENT, event::ORDER_ID, event::REFERENCE]).collect()
    }

    /// Names of the fields that say which order an entry is about, be it an order or an event.
    #[must_use]
    pub fn naming_order(&self) -> [&str; 4] {
        [self.id().name, self.id().standard, EVENT, event::ORDER_ID]
    }

    /// The trace that the producer was in. None as well where the field says nothing that can be read, or stands twice:
    /// that is no reason to refuse an order. Whether the rest of the entry is an order does not matter.
    #[must_use]
    pub fn traceparent(&self, entry: &Entry) -> Option<Traceparent> {
        only(entry, self.traceparent_field()).ok()?.and_then(Traceparent::parse)
    }

    /// Names with which an entry could be read in two ways: two fields of one name, an event's, or one under which the
    /// gate's own entries hold another field.
    #[must_use]
    pub fn ambiguous(&self) -> Vec<AmbiguousName> {
        let fields = self.all();
        let why = |field: &Field<'_>| {
            if field.name == EVENT {
                return Some("makes an entry an event, which is no order".to_owned());
            }
            if field.name == USES {
                return Some("is what the gate's own entries call what an order used of limits".to_owned());
            }
            let other = fields
                .iter()
                .find(|other| other.setting != field.setting && other.is(field.name.as_bytes()))?;
            Some(match other.name == field.name {
                true => format!("is the name of {}, too", other.setting),
                false => format!("is what the gate's own entries call the field of {}", other.setting),
            })
        };
        fields
            .iter()
            .filter_map(|field| Some(AmbiguousName { setting: field.setting, why: why(field)? }))
            .collect()
    }

    fn user(&self) -> Field<'_> {
        Field { setting: "fields.user", name: &self.user, standard: USER_ID }
    }

    fn voucher(&self) -> Field<'_> {
        Field { setting: "fields.voucher", name: &self.voucher, standard: VOUCHER_ID }
    }

    fn id(&self) -> Field<'_> {
        Field { setting: "fields.id", name: &self.id, standard: ID }
    }

    fn quantity(&self) -> Field<'_> {
        Field { setting: "fields.quantity", name: &self.quantity, standard: QUANTITY }
    }

    fn slot(&self) -> Field<'_> {
        Field { setting: "fields.slot", name: &self.slot, standard: SLOT }
    }

    fn traceparent_field(&self) -> Field<'_> {
        Field { setting: "fields.traceparent", name: &self.traceparent, standard: TRACEPARENT }
    }

    fn all(&self) -> [Field<'_>; 6] {
        [self.user(), self.voucher(), self.id(), self.quantity(), self.slot(), self.traceparent_field()]
    }

    fn required<T>(&self, entry: &Entry, field: Field<'_>, parse: Parse<T>) -> Result<T, WireError> {
        match only(entry, field)? {
            Some(value) => parsed(field, value, parse),
            None => Err(WireError::Missing { field: field.name.to_owned(), hint: self.hint(entry) }),
        }
    }

    /// What to set, where the fields that are missing stand there under other names that are in use for them.
    fn hint(&self, entry: &Entry) -> String {
        let looks = [(self.user(), LIKE_USER), (self.voucher(), LIKE_VOUCHER), (self.id(), LIKE_ID)];
        let missing = looks.into_iter().filter(|(field, _)| first(entry, *field).is_none());
        let settings = missing.filter_map(|(field, like)| {
            let (name, _) = entry.fields.iter().find(|(name, value)| {
                let is_known = self.all().iter().any(|field| field.is(name));
                !is_known && like.contains(&plain(name).as_str()) && OrderId::parse(value).is_ok()
            })?;
            Some(format!("{} = \"{}\"", field.setting, shown(name)))
        });
        let settings: Vec<String> = settings.collect();
        match settings.is_empty() {
            true => String::new(),
            false => format!("; it may be an order under other names: set {}", settings.join(", ")),
        }
    }
}

/// Names in use for the same things, without upper case, `_` and `-`.
const LIKE_USER: &[&str] = &["userid", "uid", "user", "memberid", "customerid", "buyerid"];
const LIKE_VOUCHER: &[&str] = &["voucherid", "vid", "voucher", "couponid", "seckillvoucherid", "goodsid"];
const LIKE_ID: &[&str] = &["id", "orderid", "oid", "order", "voucherorderid", "orderno"];
const LONGEST_LIKE: usize = 32;

fn plain(name: &[u8]) -> String {
    let letters = name.iter().take(LONGEST_LIKE).filter(|byte| !matches!(byte, b'_' | b'-'));
    letters.map(|byte| char::from(byte.to_ascii_lowercase())).collect()
}

impl Field<'_> {
    /// Whether the field may be called so.
    fn is(self, name: &[u8]) -> bool {
        name == self.name.as_bytes() || name == self.standard.as_bytes()
    }
}

/// The value of a field, the first where it stands twice.
fn first<'e>(entry: &'e Entry, field: Field<'_>) -> Option<&'e [u8]> {
    let called =
        |called: &str| entry.fields.iter().find(|(name, _)| name == called).map(|(_, value)| value.as_ref());
    called(field.name).or_else(|| called(field.standard))
}

/// The value of a field, which must not stand twice.
fn only<'e>(entry: &'e Entry, field: Field<'_>) -> Result<Option<&'e [u8]>, WireError> {
    let called = |called: &str| {
        let mut values = entry.fields.iter().filter(|(name, _)| name == called);
        let value = values.next().map(|(_, value)| value.as_ref());
        if values.next().is_some() {
            return Err(WireError::Duplicate { field: called.to_owned() });
        }
        Ok(value)
    };
    match called(field.name)? {
        None if field.name != field.standard => called(field.standard),
        value => Ok(value),
    }
}

/// A text that the gate did not write says nothing, as any other field that nobody knows.
fn uses(entry: &Entry) -> Option<Uses> {
    let field = Field { setting: USES, name: USES, standard: USES };
    only(entry, field).ok().flatten().and_then(Uses::parse)
}

type Parse<T> = fn(&[u8]) -> Result<T, BadNumber>;

fn optional<T>(entry: &Entry, field: Field<'_>, or: T, parse: Parse<T>) -> Result<T, WireError> {
    only(entry, field)?.map_or(Ok(or), |value| parsed(field, value, parse))
}

fn parsed<T>(field: Field<'_>, value: &[u8], parse: Parse<T>) -> Result<T, WireError> {
    parse(value).map_err(|fault| WireError::BadValue {
        field: field.name.to_owned(),
        fault,
        shown: shown(value),
    })
}

/// The beginning of a value, for people: whatever producers write, one line of a log can take it.
fn shown(value: &[u8]) -> String {
    // A character has at most four bytes, so this much holds all that is shown, however long the value.
    let beginning = &value[..value.len().min(SHOWN_CHARS * 4)];
    String::from_utf8_lossy(beginning).escape_debug().take(SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests;
