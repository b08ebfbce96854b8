//! Decodes an order or an event from the fields of an entry. Only this module knows the names of the fields.

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
pub(crate) use event::new_event_fields;
pub use event::{event_fields, order_of_event, reference_of_event};
pub use result::{BadResult, result_fields};

/// The field names that `lua/admit.lua` writes.
const USER_ID: &str = "userId";
const VOUCHER_ID: &str = "voucherId";
const ID: &str = "id";
const QUANTITY: &str = "quantity";
const SLOT: &str = "slot";
const TRACEPARENT: &str = "traceparent";

/// The field for the uses of limits by an order. Only the gate writes it, so it has one name.
pub(crate) const USES: &str = "uses";

/// The name of the field that makes an entry an event of an order, such as a payment. An entry with this field is not
/// an order, whatever its other fields are.
pub const EVENT: &str = "event";

/// The longest part of a bad value that an error shows, in characters.
const SHOWN_CHARS: usize = 64;

/// The names under which producers write the fields of an order. If an entry lacks a configured name, Tidegate looks
/// for the name that `lua/admit.lua` writes. So Tidegate can read the orders of its own scripts, whatever names other
/// producers use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct FieldNames {
    /// The name of the field with the user's id.
    pub user: String,
    /// The name of the field with the voucher's id.
    pub voucher: String,
    /// The name of the field with the order's id.
    pub id: String,
    /// The name of the field with the number of units. Entries may lack this field.
    pub quantity: String,
    /// The name of the field with the slot: the number of the order among the user's live orders of the voucher.
    /// Entries may lack this field.
    pub slot: String,
    /// The name of the field with the trace context of the producer. Entries may lack this field.
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

/// A configured field name that would make entries ambiguous, with its setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AmbiguousName {
    /// The setting that holds the ambiguous name, such as `fields.user`.
    pub setting: &'static str,
    /// The reason why the field must not have the name.
    pub why: String,
}

/// The reason why an entry is not a valid order. A retry of the entry does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A required field is missing.
    #[error("the field {field} is missing{hint}")]
    Missing {
        /// The name of the field.
        field: String,
        /// The settings to change if the entry looks like an order with other field names; otherwise empty.
        hint: String,
    },
    /// A field occurs more than once, so its value is ambiguous.
    #[error("the field {field} occurs more than once")]
    Duplicate {
        /// The name of the field.
        field: String,
    },
    /// A value that this field does not allow.
    #[error("the field {field} {fault}: \"{shown}\"")]
    BadValue {
        /// The name of the field.
        field: String,
        /// The fault in the value.
        fault: BadNumber,
        /// The beginning of the value, at most 64 characters. Characters that cannot be printed are escaped.
        shown: String,
    },
    /// A text that this field does not allow.
    #[error("the field {field} {fault}: \"{shown}\"")]
    BadText {
        /// The name of the field.
        field: &'static str,
        /// The fault in the text.
        fault: BadText,
        /// The beginning of the text, as in [`WireError::BadValue`].
        shown: String,
    },
    /// The entry has a field `event`, but the caller asked for an order.
    #[error("the entry has a field {EVENT}, so it is an event and not an order")]
    Event,
    /// The entry is an event that this version does not know.
    #[error("the field {EVENT} is \"{shown}\", which this version of Tidegate does not know")]
    UnknownEvent {
        /// The beginning of the word, as in [`WireError::BadValue`].
        shown: String,
    },
}

/// Whether an entry is an event of an order, even if its fields are not valid.
#[must_use]
pub fn is_event(entry: &Entry) -> bool {
    entry.fields.iter().any(|(name, _)| name == EVENT)
}

/// The fields of the entry for an order, in the form that `lua/admit.lua` writes.
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

/// The decoded content of an entry: an order or an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// An order that was admitted.
    Order(Order),
    /// Something that happened to an order.
    Event(Event),
}

impl Message {
    /// The voucher that the message is about.
    #[must_use]
    pub fn voucher(&self) -> VoucherId {
        match self {
            Self::Order(order) => order.voucher,
            Self::Event(event) => event.voucher,
        }
    }
}

impl WireError {
    /// The word for this error in metric labels and dead letters.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "missing_field",
            Self::Duplicate { .. } => "duplicate_field",
            Self::BadValue { .. } | Self::BadText { .. } => "bad_value",
            Self::Event | Self::UnknownEvent { .. } => "unsupported_event",
        }
    }

    /// Whether the entry looks like an order whose field names differ from the configured names.
    #[must_use]
    pub fn has_other_names(&self) -> bool {
        matches!(self, Self::Missing { hint, .. } if !hint.is_empty())
    }
}

/// The ids that can be read from an entry, even if the entry is not a valid order. People find the entry by these ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryIds {
    /// The id of the order in the entry.
    pub id: Option<OrderId>,
    /// The id of the user in the entry.
    pub user: Option<UserId>,
    /// The id of the voucher in the entry.
    pub voucher: Option<VoucherId>,
}

/// A field of an order: the setting for its name, its name in entries, and its name in the entries of `lua/admit.lua`.
#[derive(Clone, Copy)]
struct Field<'a> {
    setting: &'static str,
    name: &'a str,
    standard: &'static str,
}

impl FieldNames {
    /// Decodes an order or an event from an entry. An entry with a field `event` is an event, whatever its other fields
    /// are.
    ///
    /// # Errors
    /// As [`Self::decode`]. Also if the event is unknown, or one of its texts is not what its field allows.
    pub fn decode_message(&self, entry: &Entry) -> Result<Message, WireError> {
        match event::decode(entry)? {
            Some(event) => Ok(Message::Event(event)),
            None => self.order(entry).map(Message::Order),
        }
    }

    /// Decodes an order from an entry. The fields may be in any sequence, and unknown fields are ignored.
    ///
    /// # Errors
    /// If it is an event, a required field is missing, a known field occurs twice, or a value is not what its field
    /// allows.
    pub fn decode(&self, entry: &Entry) -> Result<Order, WireError> {
        if is_event(entry) {
            return Err(WireError::Event);
        }
        self.order(entry)
    }

    /// Reads the order from an entry that is not an event.
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

    /// Whether an entry contains the given voucher and the given user. `None` matches any voucher or user. An entry
    /// that is not a valid order can match, so that a search for its voucher finds the entry.
    #[must_use]
    pub fn are_named(&self, entry: &Entry, voucher: Option<VoucherId>, user: Option<UserId>) -> bool {
        let holds = |field: Field<'_>, id: Option<String>| {
            id.is_none_or(|id| entry.fields.iter().any(|(name, value)| field.is(name) && *value == id))
        };
        holds(self.voucher(), voucher.map(|id| id.to_string()))
            && holds(self.user(), user.map(|id| id.to_string()))
    }

    /// The text in the entry's field for the order id. The other fields of the entry need not be valid.
    #[must_use]
    pub fn id_text<'e>(&self, entry: &'e Entry) -> Option<&'e [u8]> {
        first(entry, self.id())
    }

    /// Reads all ids that can be read from an entry. If a field occurs twice, its first value counts.
    #[must_use]
    pub fn peek(&self, entry: &Entry) -> EntryIds {
        EntryIds {
            id: order_of_event(entry)
                .or_else(|| first(entry, self.id()).and_then(|value| OrderId::parse(value).ok())),
            user: first(entry, self.user()).and_then(|value| UserId::parse(value).ok()),
            voucher: first(entry, self.voucher()).and_then(|value| VoucherId::parse(value).ok()),
        }
    }

    /// The names of the fields with the order, user and voucher of an entry, for orders and for events. Some names may
    /// occur twice in the list.
    #[must_use]
    pub fn identifying_names(&self) -> Vec<&str> {
        let fields =
            [self.id(), self.user(), self.voucher(), self.quantity(), self.slot(), self.traceparent_field()];
        let names = fields.into_iter().flat_map(|field| [field.name, field.standard]);
        names.chain([USES, EVENT, event::ORDER_ID, event::REFERENCE]).collect()
    }

    /// The names of the fields with the order id, for orders and for events.
    #[must_use]
    pub fn naming_order(&self) -> [&str; 4] {
        [self.id().name, self.id().standard, EVENT, event::ORDER_ID]
    }

    /// The producer's trace context in an entry. `None` if the field is missing, cannot be read or occurs twice: no
    /// order is refused for this reason. The other fields of the entry need not be valid.
    #[must_use]
    pub fn traceparent(&self, entry: &Entry) -> Option<Traceparent> {
        only(entry, self.traceparent_field()).ok()?.and_then(Traceparent::parse)
    }

    /// The configured field names that make entries ambiguous: names that are configured twice, belong to events, or
    /// have another meaning in the entries of `lua/admit.lua`.
    #[must_use]
    pub fn ambiguous(&self) -> Vec<AmbiguousName> {
        let fields = self.all();
        let why = |field: &Field<'_>| {
            if field.name == EVENT {
                return Some("makes an entry an event, so the entry is not read as an order".to_owned());
            }
            if field.name == USES {
                return Some(
                    "is the name that lua/admit_limited.lua gives to the field for limits".to_owned(),
                );
            }
            let other = fields
                .iter()
                .find(|other| other.setting != field.setting && other.is(field.name.as_bytes()))?;
            Some(match other.name == field.name {
                true => format!("is also the value of {}", other.setting),
                false => format!("is the name that lua/admit.lua gives to the field of {}", other.setting),
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

    /// The settings to change if the entry has the missing fields under other common names.
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
            false => {
                format!("; the entry may be an order with other field names: set {}", settings.join(", "))
            }
        }
    }
}

/// Common names for the same fields, without upper case, `_` and `-`.
const LIKE_USER: &[&str] = &["userid", "uid", "user", "memberid", "customerid", "buyerid"];
const LIKE_VOUCHER: &[&str] = &["voucherid", "vid", "voucher", "couponid", "seckillvoucherid", "goodsid"];
const LIKE_ID: &[&str] = &["id", "orderid", "oid", "order", "voucherorderid", "orderno"];
const LONGEST_LIKE: usize = 32;

fn plain(name: &[u8]) -> String {
    let letters = name.iter().take(LONGEST_LIKE).filter(|byte| !matches!(byte, b'_' | b'-'));
    letters.map(|byte| char::from(byte.to_ascii_lowercase())).collect()
}

impl Field<'_> {
    /// Whether this field may have this name.
    fn is(self, name: &[u8]) -> bool {
        name == self.name.as_bytes() || name == self.standard.as_bytes()
    }
}

/// The value of a field; the first one, if the field occurs twice.
fn first<'e>(entry: &'e Entry, field: Field<'_>) -> Option<&'e [u8]> {
    let called =
        |called: &str| entry.fields.iter().find(|(name, _)| name == called).map(|(_, value)| value.as_ref());
    called(field.name).or_else(|| called(field.standard))
}

/// The value of a field, which must not occur twice.
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

/// Reads the uses of limits by the order. A text that the gate did not write is ignored, as any unknown field is.
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

/// The beginning of a value, as text for operators. It fits into one line of a log, whatever producers write.
fn shown(value: &[u8]) -> String {
    // A character has at most four bytes, so this part holds everything that is shown, however long the value is.
    let beginning = &value[..value.len().min(SHOWN_CHARS * 4)];
    String::from_utf8_lossy(beginning).escape_debug().take(SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests;
