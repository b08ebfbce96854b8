//! The publishing of vouchers over HTTP: `POST /vouchers` writes the row of a voucher whose sale begins later.

use std::{ops::RangeInclusive, time::Duration};

use hyper::{
    Request, StatusCode,
    body::Incoming,
    header::{HeaderValue, LOCATION},
};
use jiff::Timestamp;
use serde_json::{Value, json};
use tidegate_operations::{
    vouchers::{
        MAX_STOCK,
        publish::{self, PublishOutcome, PublishRefusal, PublishRequest, PublishState},
    },
    within::in_time,
};
use tidegate_orders::{VoucherId, records::vouchers::LATEST_MS, scripts::OfferState};

use super::{
    answers::problem,
    body,
    caller::Caller,
    following::Following,
    members::{BadBody, Members},
    problem::{Problem, ProblemKind},
};
use crate::answer::{Answer, JSON, answer};

const MEMBERS: [&str; 5] = ["voucherId", "stock", "begin", "end", "payWithinS"];
const EXAMPLE: &str = r#"{"voucherId": "7", "stock": 1000, "begin": "2030-01-31T20:00:00Z"}"#;
/// The largest body of a request, in bytes.
const BODY_BYTES: usize = 4 << 10;
/// The time that MySQL has for the row.
const MYSQL_WITHIN: Duration = Duration::from_secs(5);
/// The longest time limit for the payment of an order, in seconds: 365 days.
const MOST_PAY_WITHIN_S: i64 = 365 * 24 * 3600;

/// Parses the voucher to publish from the JSON body of a request.
fn read(body: &[u8], now: Timestamp) -> Result<PublishRequest, BadBody> {
    let mut members = Members::read(body, EXAMPLE)?;
    members.allow_only(&MEMBERS);
    let voucher = members.required("voucherId", VoucherId::parse);
    let stock = members.required("stock", |text| within(text, 1..=MAX_STOCK));
    members.must_have("begin");
    let begin = members.text("begin", time);
    let end = members.text("end", time);
    let pay_within_s = members.optional("payWithinS", |text| within(text, 0..=MOST_PAY_WITHIN_S));
    if begin.is_some_and(|begin| begin <= now) {
        members.fault("begin", "must be in the future");
    }
    if begin.zip(end).is_some_and(|(begin, end)| end <= begin) {
        members.fault("end", "must be after the begin");
    }
    let request = match (voucher, stock, begin) {
        (Some(voucher), Some(stock), Some(begin)) => {
            Some(PublishRequest { voucher, stock, begin, end, pay_within_s })
        }
        _ => None,
    };
    members.end(request)
}

fn within(text: &[u8], range: RangeInclusive<i64>) -> Result<i64, String> {
    let number = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    let number = number.filter(|number| range.contains(number));
    number.ok_or_else(|| format!("must be a whole number from {} to {}", range.start(), range.end()))
}

fn time(text: &[u8]) -> Result<Timestamp, &'static str> {
    let time = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    let time = time.filter(|time: &Timestamp| time.as_millisecond() <= LATEST_MS);
    time.ok_or("must be a time such as 2030-01-31T20:00:00Z, at most 2038-01-19T03:14:07Z")
}

/// Writes the row of the voucher in the body of a request, and answers with the voucher.
pub async fn answer_to(
    request: Request<Incoming>,
    caller: &Caller,
    shared: (&Following, Duration),
) -> Answer {
    publish(request, caller, shared).await.unwrap_or_else(|told| problem(&told))
}

async fn publish(
    request: Request<Incoming>,
    caller: &Caller,
    (following, within): (&Following, Duration),
) -> Result<Answer, Problem> {
    caller.must_be_application()?;
    let body = body::read(request, &[JSON], BODY_BYTES, within).await?;
    let request = read(&body, Timestamp::now())?;
    // With another list than the system's, the gate could write to another MySQL than the workers.
    let generation = following.admitting()?;
    let stores = generation.gates.stores_of_voucher(request.voucher);
    let (_, mysql) = stores.map_err(|_| ProblemKind::RedisAway)?;
    let published = in_time("MySQL", MYSQL_WITHIN, publish::run(&mysql, request)).await;
    let published = published.map_err(|error| Problem::of_mysql(&error))?;
    let PublishState { outcome, refusal, .. } = published;
    let status = match (outcome, refusal) {
        (_, Some(refusal @ PublishRefusal::ColumnTooSmall)) => {
            return Err(ProblemKind::BadInput.because(refusal.to_string()));
        }
        (_, Some(refusal)) => return Err(ProblemKind::VoucherExists.because(refusal.to_string())),
        (PublishOutcome::PublishedBefore, _) => StatusCode::OK,
        _ => StatusCode::CREATED,
    };
    let mut answer = answer(status, JSON, page(&request).to_string());
    if let Ok(location) = HeaderValue::try_from(format!("/vouchers/{}", request.voucher)) {
        answer.headers_mut().insert(LOCATION, location);
    }
    Ok(answer)
}

fn page(request: &PublishRequest) -> Value {
    json!({
        "voucherId": request.voucher.to_string(),
        "state": OfferState::NotBegun.word(),
        "unitsLeft": request.stock,
        "begin": request.begin.to_string(),
        "end": request.end.map(|end| end.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_voucher_is_read_with_its_times_and_each_wrong_value_is_named() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let read = |body: &str| read(body.as_bytes(), now);
        let whole = r#"{"voucherId":"7","stock":"5","begin":"2030-01-01T00:00:00Z","end":"2030-01-02T08:00:00+08:00",
            "payWithinS":900}"#;
        let request = read(whole).unwrap();
        assert_eq!((request.stock, request.pay_within_s), (5, Some(900)));
        assert_eq!(request.end.unwrap().to_string(), "2030-01-02T00:00:00Z");
        for (body, places) in [
            ("{}", &["/voucherId", "/stock", "/begin"][..]),
            (r#"{"voucherId":7,"stock":0,"begin":"2030-01-01T00:00:00Z"}"#, &["/stock"]),
            (r#"{"voucherId":7,"stock":1,"begin":1893456000}"#, &["/begin"]),
            (r#"{"voucherId":7,"stock":1,"begin":"2020-01-01T00:00:00Z"}"#, &["/begin"]),
            (
                r#"{"voucherId":7,"stock":1,"begin":"2030-01-01T00:00:00Z","end":"2030-01-01T00:00:00Z"}"#,
                &["/end"],
            ),
            (
                r#"{"voucherId":7,"stock":1,"begin":"2040-01-01T00:00:00Z","payWithinS":-1}"#,
                &["/begin", "/payWithinS"],
            ),
        ] {
            let Err(BadBody::Faults(faults)) = read(body) else { panic!("{body}") };
            assert_eq!(
                faults.iter().map(|fault| fault.pointer.as_str()).collect::<Vec<_>>(),
                places,
                "{body}"
            );
        }
    }
}
