//! The reading of a request for an order from its JSON body.

use std::fmt;

use hyper::body::Bytes;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use tidegate_orders::{CampaignId, OrderId, Quantity, Subjects, UserId, VoucherId};

/// The item that a client orders: a voucher, or a region of a campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Voucher(VoucherId),
    /// The voucher of a region of a campaign.
    Region {
        campaign: CampaignId,
        region: String,
    },
}

/// The order that a client requests, parsed from the body of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub item: Item,
    pub user: UserId,
    pub quantity: Quantity,
    pub subjects: Subjects,
    /// The order id from the request, if the client sent one to repeat an earlier request.
    pub order: Option<OrderId>,
}

/// An error in one JSON value of the body of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The JSON pointer (RFC 6901) to the invalid value.
    pub pointer: String,
    pub detail: String,
}

/// The reason why the body of a request is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadBody {
    /// The body is no JSON.
    NoJson(String),
    /// The body is JSON, but has these errors.
    Faults(Vec<Fault>),
}

const MEMBERS: [&str; 7] = ["voucherId", "campaignId", "region", "userId", "quantity", "subjects", "orderId"];
const MOST_REGION_BYTES: usize = 32;
/// The largest number of unknown members that an answer names. It keeps the answer from being much larger than the
/// request.
const MOST_FAULTS: usize = 8;
const MOST_FAULTY_NAME: usize = 64;

/// A JSON value that has no member twice. Otherwise a program before the gate that reads the first one would check
/// another value than the gate uses.
struct Body(Value);

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BodyVisitor)
    }
}

struct BodyVisitor;

impl<'de> Visitor<'de> for BodyVisitor {
    type Value = Body;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Body, A::Error> {
        let mut object = Map::new();
        while let Some((name, Body(value))) = members.next_entry::<String, Body>()? {
            if object.insert(name, value).is_some() {
                return Err(de::Error::custom("a member occurs twice"));
            }
        }
        Ok(Body(Value::Object(object)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Body, A::Error> {
        while parts.next_element::<Body>()?.is_some() {}
        // No member of a request is an array, so its parts are not kept.
        Ok(Body(Value::Array(Vec::new())))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Body, E> {
        Ok(Body(text.into()))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Body, E> {
        Ok(Body(value.into()))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Body, E> {
        Ok(Body(number.into()))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Body, E> {
        Ok(Body(number.into()))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Body, E> {
        Ok(Body(number.into()))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Body, E> {
        Ok(Body(Value::Null))
    }
}

/// Parses the JSON body of a request for an order. If a proxy names the user, the body may omit the user, and must not
/// name another user.
pub fn read(body: &Bytes, by_proxy: Option<UserId>) -> Result<Wanted, BadBody> {
    let value: Body = serde_json::from_slice(body).map_err(|error| BadBody::NoJson(error.to_string()))?;
    let Body(Value::Object(members)) = value else {
        let detail = "must be an object such as {\"voucherId\": \"7\", \"userId\": \"1001\"}".to_owned();
        return Err(BadBody::Faults(vec![Fault { pointer: String::new(), detail }]));
    };
    let mut faults = Vec::new();
    let strange = members.keys().filter(|name| !MEMBERS.contains(&name.as_str()));
    for name in strange.take(MOST_FAULTS) {
        fault(&mut faults, name, format!("is unknown: the members are {}", MEMBERS.join(", ")));
    }
    let item = item(&members, &mut faults);
    let user = user(&members, by_proxy, &mut faults);
    let order = optional(&members, "orderId", OrderId::parse, &mut faults);
    if order.is_some() && by_proxy.is_some() {
        // A user that chooses ids could take the id of another order.
        fault(
            &mut faults,
            "orderId",
            "is not accepted if a proxy names the user: send an Idempotency-Key".to_owned(),
        );
    }
    let quantity = optional(&members, "quantity", Quantity::parse, &mut faults).unwrap_or(Quantity::ONE);
    let subjects = subjects(&members, &mut faults);
    match (item, user) {
        (Some(item), Some(user)) if faults.is_empty() => Ok(Wanted { item, user, quantity, subjects, order }),
        _ => Err(BadBody::Faults(faults)),
    }
}

fn fault(faults: &mut Vec<Fault>, name: &str, detail: String) {
    let name: String = name.chars().take(MOST_FAULTY_NAME).collect();
    let name = name.replace('~', "~0").replace('/', "~1");
    faults.push(Fault { pointer: format!("/{name}"), detail });
}

/// Reads the item: a voucher, or a campaign and a region, but never both.
fn item(members: &Map<String, Value>, faults: &mut Vec<Fault>) -> Option<Item> {
    let has = |name: &str| members.contains_key(name);
    if !has("campaignId") && !has("region") {
        return required(members, "voucherId", VoucherId::parse, faults).map(Item::Voucher);
    }
    if has("voucherId") {
        fault(faults, "voucherId", "must not be sent together with campaignId or region".to_owned());
    }
    let campaign = required(members, "campaignId", CampaignId::parse, faults);
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let region = match members.get("region") {
        None => Err("is missing"),
        Some(Value::String(region))
            if (1..=MOST_REGION_BYTES).contains(&region.len()) && region.bytes().all(is_letter) =>
        {
            Ok(region.clone())
        }
        Some(_) => Err("must be text of 1 to 32 letters, digits or the characters _ . -"),
    };
    match (campaign, region) {
        (Some(campaign), Ok(region)) => Some(Item::Region { campaign, region }),
        (_, Err(detail)) => {
            fault(faults, "region", detail.to_owned());
            None
        }
        (None, Ok(_)) => None,
    }
}

fn user(members: &Map<String, Value>, by_proxy: Option<UserId>, faults: &mut Vec<Fault>) -> Option<UserId> {
    let Some(by_proxy) = by_proxy else { return required(members, "userId", UserId::parse, faults) };
    if optional(members, "userId", UserId::parse, faults).is_some_and(|user| user != by_proxy) {
        fault(faults, "userId", "differs from the user that the proxy names: remove `userId`".to_owned());
    }
    Some(by_proxy)
}

type Parse<T, E> = fn(&[u8]) -> Result<T, E>;

fn required<T, E: std::fmt::Display>(
    members: &Map<String, Value>,
    name: &str,
    parse: Parse<T, E>,
    faults: &mut Vec<Fault>,
) -> Option<T> {
    if !members.contains_key(name) {
        fault(faults, name, "is missing".to_owned());
    }
    optional(members, name, parse, faults)
}

/// Reads a number. It may be text, or a JSON number that all programs read exactly: up to 2^53 - 1.
fn optional<T, E: std::fmt::Display>(
    members: &Map<String, Value>,
    name: &str,
    parse: Parse<T, E>,
    faults: &mut Vec<Fault>,
) -> Option<T> {
    let text = match members.get(name)? {
        Value::String(text) => text.clone(),
        Value::Number(number) => match whole(number) {
            Some(whole) => whole.to_string(),
            None => {
                fault(faults, name, "must be a whole number: send numbers from 2^53 as text".to_owned());
                return None;
            }
        },
        _ => {
            fault(faults, name, "must be a number, as text or as a JSON number".to_owned());
            return None;
        }
    };
    let parsed = parse(text.as_bytes());
    parsed.inspect_err(|error| fault(faults, name, error.to_string())).ok()
}

/// Returns a number if it is whole. JSON has one kind of number: 256.0 is 256.
fn whole(number: &Number) -> Option<u64> {
    const MOST: u64 = (1 << 53) - 1;
    let float =
        || number.as_f64().filter(|number| number.fract() == 0.0 && (0.0..=MOST as f64).contains(number));
    let whole = number.as_u64().or_else(|| Some(float()? as u64));
    whole.filter(|whole| *whole <= MOST)
}

fn subjects(members: &Map<String, Value>, faults: &mut Vec<Fault>) -> Subjects {
    let subjects = match members.get("subjects") {
        None => return Subjects::none(),
        Some(Value::Object(subjects)) => subjects,
        Some(_) => {
            fault(faults, "subjects", "must be a JSON object of subject names with text values".to_owned());
            return Subjects::none();
        }
    };
    let mut all = Subjects::none();
    for (name, value) in subjects {
        let with = match value.as_str() {
            Some(value) => all.clone().with(name, value).map_err(|error| error.to_string()),
            None => Err("must be a JSON string".to_owned()),
        };
        match with {
            Ok(with) => all = with,
            Err(detail) => {
                let name: String = name.chars().take(64).collect();
                let name = name.replace('~', "~0").replace('/', "~1");
                faults.push(Fault { pointer: format!("/subjects/{name}"), detail });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(body: &str) -> Vec<String> {
        match read(&Bytes::from(body.to_owned()), None) {
            Err(BadBody::Faults(faults)) => faults.into_iter().map(|fault| fault.pointer).collect(),
            other => panic!("{body}: {other:?}"),
        }
    }

    #[test]
    fn ids_are_texts_or_numbers_and_what_is_wrong_is_named_by_its_place() {
        let body =
            r#"{"voucherId":"7","userId":1001.0,"quantity":2,"subjects":{"phone":"a1"},"orderId":"42"}"#;
        let wanted = read(&Bytes::from_static(body.as_bytes()), None).unwrap();
        assert_eq!(wanted.item, Item::Voucher(7.try_into().unwrap()));
        assert_eq!((wanted.user.get(), wanted.quantity.get()), (1001, 2));
        assert_eq!(wanted.order.map(OrderId::get), Some(42));
        assert_eq!(wanted.subjects.iter().count(), 1);
        assert_eq!(faults("[]"), [""]);
        assert_eq!(faults("{}"), ["/voucherId", "/userId"]);
        assert_eq!(
            faults(r#"{"voucherId":"7","userId":"1","vouchers":1,"a/b~":1}"#),
            ["/a~1b~0", "/vouchers"]
        );
        for (body, place) in [
            (r#"{"voucherId":"0","userId":"1"}"#, "/voucherId"),
            (r#"{"voucherId":" 7","userId":"1"}"#, "/voucherId"),
            (r#"{"voucherId":7.5,"userId":"1"}"#, "/voucherId"),
            (r#"{"voucherId":9007199254740993,"userId":"1"}"#, "/voucherId"),
            (r#"{"voucherId":"7","userId":null}"#, "/userId"),
            (r#"{"voucherId":"7","userId":"9223372036854775808"}"#, "/userId"),
            (r#"{"voucherId":"7","userId":"1","quantity":"10001"}"#, "/quantity"),
            (r#"{"voucherId":"7","userId":"1","subjects":[]}"#, "/subjects"),
            (r#"{"voucherId":"7","userId":"1","subjects":{"phone":1}}"#, "/subjects/phone"),
            (r#"{"voucherId":"7","userId":"1","subjects":{"phone":"a\u0000"}}"#, "/subjects/phone"),
            (r#"{"voucherId":"7","userId":"1","subjects":{"user":"2"}}"#, "/subjects/user"),
        ] {
            assert_eq!(faults(body), [place], "{body}");
        }
        let region =
            read(&Bytes::from_static(br#"{"campaignId":5,"region":"north","userId":1}"#), None).unwrap().item;
        assert_eq!(region, Item::Region { campaign: 5.try_into().unwrap(), region: "north".to_owned() });
        for (body, places) in [
            (r#"{"campaignId":5,"userId":1}"#, &["/region"][..]),
            (r#"{"region":"north","userId":1}"#, &["/campaignId"]),
            (r#"{"campaignId":0,"region":"a b","userId":1}"#, &["/campaignId", "/region"]),
            (r#"{"campaignId":5,"region":"north","voucherId":7,"userId":1}"#, &["/voucherId"]),
        ] {
            assert_eq!(faults(body), places, "{body}");
        }
        for body in [
            &br#"{"voucherId":"7","userId":"1","quantity":1,"quantity":5}"#[..],
            br#"{"voucherId":"7","userId":"1","subjects":{"phone":"a","phone":"b"}}"#,
            b"",
            b"{",
            b"\xff",
            b"{\"voucherId\":\"\xff\"}",
        ] {
            assert!(matches!(read(&Bytes::copy_from_slice(body), None), Err(BadBody::NoJson(_))), "{body:?}");
        }
        let deep = "[".repeat(10_000);
        assert!(matches!(read(&Bytes::from(deep), None), Err(BadBody::NoJson(_))));
    }

    #[test]
    fn a_user_whom_a_proxy_names_may_be_left_out_and_is_no_other() {
        let user = |body: &'static str| read(&Bytes::from_static(body.as_bytes()), UserId::try_from(5).ok());
        for body in
            [r#"{"voucherId":"7"}"#, r#"{"voucherId":"7","userId":"5"}"#, r#"{"voucherId":7,"userId":5}"#]
        {
            assert_eq!(user(body).unwrap().user.get(), 5, "{body}");
        }
        for body in [r#"{"voucherId":"7","userId":"6"}"#, r#"{"voucherId":"7","userId":null}"#] {
            let Err(BadBody::Faults(faults)) = user(body) else { panic!("{body}") };
            assert_eq!(faults[0].pointer, "/userId", "{body}");
        }
    }
}
