//! The reading of a request for an order from its JSON body.

use serde_json::Value;
use tidegate_orders::{CampaignId, OrderId, Quantity, Subjects, UserId, VoucherId};

use super::members::{BadBody, Members};

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

const MEMBERS: [&str; 7] = ["voucherId", "campaignId", "region", "userId", "quantity", "subjects", "orderId"];
const EXAMPLE: &str = "{\"voucherId\": \"7\", \"userId\": \"1001\"}";
const MOST_REGION_BYTES: usize = 32;

/// Parses the JSON body of a request for an order. If a proxy names the user, the body may omit the user, and must not
/// name another user.
pub fn read(body: &[u8], by_proxy: Option<UserId>) -> Result<Wanted, BadBody> {
    let mut members = Members::read(body, EXAMPLE)?;
    members.allow_only(&MEMBERS);
    let item = item(&mut members);
    let user = user(&mut members, by_proxy);
    let order = members.optional("orderId", OrderId::parse);
    if order.is_some() && by_proxy.is_some() {
        // A user that chooses ids could take the id of another order.
        members.fault("orderId", "is not accepted if a proxy names the user: send an Idempotency-Key");
    }
    let quantity = members.optional("quantity", Quantity::parse).unwrap_or(Quantity::ONE);
    let subjects = subjects(&mut members);
    let wanted = item.zip(user).map(|(item, user)| Wanted { item, user, quantity, subjects, order });
    members.end(wanted)
}

/// Reads the item: a voucher, or a campaign and a region, but never both.
fn item(members: &mut Members) -> Option<Item> {
    if !members.has("campaignId") && !members.has("region") {
        return members.required("voucherId", VoucherId::parse).map(Item::Voucher);
    }
    if members.has("voucherId") {
        members.fault("voucherId", "must not be sent together with campaignId or region");
    }
    let campaign = members.required("campaignId", CampaignId::parse);
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
            members.fault("region", detail);
            None
        }
        (None, Ok(_)) => None,
    }
}

fn user(members: &mut Members, by_proxy: Option<UserId>) -> Option<UserId> {
    let Some(by_proxy) = by_proxy else { return members.required("userId", UserId::parse) };
    if members.optional("userId", UserId::parse).is_some_and(|user| user != by_proxy) {
        members.fault("userId", "differs from the user that the proxy names: remove `userId`");
    }
    Some(by_proxy)
}

fn subjects(members: &mut Members) -> Subjects {
    let subjects = match members.get("subjects") {
        None => return Subjects::none(),
        Some(Value::Object(subjects)) => subjects.clone(),
        Some(_) => {
            members.fault("subjects", "must be a JSON object of subject names with text values");
            return Subjects::none();
        }
    };
    let mut all = Subjects::none();
    for (name, value) in &subjects {
        let with = match value.as_str() {
            Some(value) => all.clone().with(name, value).map_err(|error| error.to_string()),
            None => Err("must be a JSON string".to_owned()),
        };
        match with {
            Ok(with) => all = with,
            Err(detail) => members.fault_inside("subjects", name, detail),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(body: &str) -> Vec<String> {
        match read(body.as_bytes(), None) {
            Err(BadBody::Faults(faults)) => faults.into_iter().map(|fault| fault.pointer).collect(),
            other => panic!("{body}: {other:?}"),
        }
    }

    #[test]
    fn ids_are_texts_or_numbers_and_what_is_wrong_is_named_by_its_place() {
        let body =
            r#"{"voucherId":"7","userId":1001.0,"quantity":2,"subjects":{"phone":"a1"},"orderId":"42"}"#;
        let wanted = read(body.as_bytes(), None).unwrap();
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
        let region = read(&br#"{"campaignId":5,"region":"north","userId":1}"#[..], None).unwrap().item;
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
            assert!(matches!(read(body, None), Err(BadBody::NoJson(_))), "{body:?}");
        }
        let deep = "[".repeat(10_000);
        assert!(matches!(read(deep.as_bytes(), None), Err(BadBody::NoJson(_))));
    }

    #[test]
    fn a_user_whom_a_proxy_names_may_be_left_out_and_is_no_other() {
        let user = |body: &'static str| read(body.as_bytes(), UserId::try_from(5).ok());
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
