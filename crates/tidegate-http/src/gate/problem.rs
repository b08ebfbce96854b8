//! The problem documents ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)) that a caller gets instead of an order.
//! Each kind has a type and a page of its own.

use hyper::StatusCode;
use serde_json::{Map, Value, json};
use tidegate_compare::text::error_chain;
use tidegate_orders::{
    OrderId, VoucherId,
    limits::{LimitReached, RateReached},
    scripts::{Admission, AdmitReply, ScriptError},
};

use super::members::{BadBody, Fault};
use crate::tokens::Denied;

/// The seconds after which a client may ask again if the gate knows no better time.
const SOON_S: u64 = 1;

macro_rules! problems {
    ($($kind:ident $status:literal $slug:literal $title:literal: $page:literal)*) => {
        /// The kinds of problems with which the gate answers a request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ProblemKind {
            $(#[doc = $page] $kind,)*
        }

        impl ProblemKind {
            /// All kinds of problems, sorted by HTTP status code.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// The HTTP status code of this kind of problem.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$kind => $status),* }
            }

            /// The name of this kind of problem, which follows `/problems/` in the problem's type.
            #[must_use]
            pub const fn slug(self) -> &'static str {
                match self { $(Self::$kind => $slug),* }
            }

            /// The title that all problems of this kind share.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$kind => $title),* }
            }

            /// The text that explains this kind of problem and says what a client can do.
            #[must_use]
            pub const fn page(self) -> &'static str {
                match self { $(Self::$kind => $page),* }
            }
        }
    };
}

problems! {
    BadHead 400 "bad-head" "The head of the request breaks a rule of HTTP": "A request must have one `Host` header, and at most one `Authorization` header. The member `detail` says which rule the request breaks."
    BadJson 400 "bad-json" "The body is not JSON": "Send a JSON object in UTF-8, such as {\"voucherId\": \"7\", \"userId\": \"1001\"}."
    BadQuestion 400 "bad-question" "The path or the query of the request is invalid": "The member `detail` says what is wrong with the path or the query."
    NoToken 401 "no-token" "The token is missing or wrong": "Send the header `Authorization: Bearer TOKEN` with a token from the setting `tokens` of the gate."
    NotAProxy 403 "not-a-proxy" "Only a trusted proxy may name the user in a header": "The request has the header that the setting `gate.user_header` names, but its sender is not in the setting `gate.trusted_proxies`. Remove this header and send `userId`."
    NoScope 403 "no-scope" "The token does not permit this request": "The member `scopes` names the scopes that permit the request. Use another token, or let the operators of the gate add one of these scopes to your token."
    NotForUsers 403 "not-for-users" "Users may not use this path": "A proxy names the user of this request. Only applications may use this path: send the request to the gate without the proxy."
    NoUser 403 "no-user" "The proxy does not name the user": "A trusted proxy (setting `gate.trusted_proxies`) must send a user id, exactly once, in the header that the setting `gate.user_header` names."
    NoSuchPage 404 "no-such-page" "This path does not exist": "To request an order, send POST /orders."
    NoSuchSale 404 "no-such-sale" "This voucher is not on sale": "Redis has no stock of the voucher, or no such campaign: it was not loaded, or the id is wrong."
    NoSuchRegion 404 "no-such-region" "The campaign has no such region": "The command `tidegate campaign show` lists the regions of a campaign and their vouchers."
    WrongMethod 405 "wrong-method" "This path does not support the method of the request": "The header `Allow` of the answer names the supported methods."
    TooSlow 408 "too-slow" "The request arrived too slowly": "The body of the request must arrive within the time of the setting `gate.read_ms`. Send the whole request at once."
    SoldOut 409 "sold-out" "The voucher is sold out": "The voucher has no units left. Units become free again when orders are cancelled or expire."
    TooFewLeft 409 "too-few-left" "The voucher has too few units left": "The voucher has fewer units left than the request asks for. The member `unitsLeft` says how many. Send a new request for at most this number."
    SecondOrder 409 "second-order" "This user already has an order for this voucher": "Each user may have one order for a voucher, unless a limit allows more. The member `orders` is the path of the list of the user's orders of this voucher."
    OverLimit 409 "over-limit" "A limit refuses the order": "The member `limit` names the limit. The members `ordersLeft` and `unitsLeft` say how many orders and units the limit still allows. The member `opensAt` is the time when the next window of the limit begins."
    NotBegun 409 "not-begun" "The sale has not begun": "Send the request again after the sale has begun."
    Over 409 "over" "The sale is over": "The sale has ended, so the gate admits no more orders for this voucher."
    Released 409 "given-back" "This order was admitted and later released": "The order with this id has ended. To order again, send a new order id or a new Idempotency-Key."
    VoucherExists 409 "voucher-exists" "MySQL has this voucher with other values": "The member `detail` says which values MySQL has, or that the voucher is delisted. To change the times, ask an operator to type `tidegate voucher schedule`. To publish a new voucher, send another id."
    IdTaken 409 "id-taken" "The order id belongs to another user's order": "Send the request without `orderId`, and the gate creates an order id. If the request already had no `orderId`, an order id was assigned twice: tell the operators to check the order ids."
    OtherQuantity 409 "other-quantity" "This order was admitted with another quantity": "The quantity of an admitted order cannot change. Send the first quantity again, or send a new order id."
    ResultsLost 410 "results-lost" "Results were deleted before you read them": "Results after your cursor were deleted (settings `results.keep_ms` and `results.keep_bytes`), or Redis lost data. Look up the state of your orders. Then continue with the cursor in the member `cursor`, which begins at the oldest kept result."
    TooLarge 413 "too-large" "The body is too large": "The member `detail` says how large the body may be, or how many events it may have."
    NotJson 415 "not-json" "The gate does not support the content type of the body": "The member `detail` names the types that this path supports."
    UnknownEncoding 415 "unknown-encoding" "The gate does not support the encoding of the body": "Send the body uncompressed and without the header `Content-Encoding`."
    BadInput 422 "bad-input" "The request has invalid values": "The member `errors` lists each invalid member of the body as a JSON pointer, with a reason. If the answer has no `errors`, the member `detail` has the reason."
    MissingSubject 422 "missing-subject" "The request lacks a subject that a limit needs": "A limit counts orders by this subject, such as a device or an address. The member `subject` names the subject. Send its value in `subjects`."
    OtherRequest 422 "other-request" "This Idempotency-Key belongs to another request": "Requests with the same Idempotency-Key must have the same user, voucher, quantity and subjects. For another request, send a new key."
    TooFast 429 "too-fast" "A rate limit refuses the order": "The member `limit` names the rate limit. Wait for the time in the header `Retry-After` (seconds) or in the member `retryAfterMs` (milliseconds). Then send the request again."
    TooManyAttempts 429 "too-many-attempts" "Too many attempts": "Too many requests came from the same subject or the same address, so the gate did not call Redis. The member `subject` names the counted subject. If this member is missing, the gate counted the address of the caller. Wait for the time in the header `Retry-After` (seconds) or in the member `retryAfterMs` (milliseconds). Then send the request again."
    Busy 503 "busy" "Orders arrive faster than workers can write them": "The workers are too far behind, or no worker is alive. Redis did not admit the order: send the request again later."
    Paused 503 "paused" "The sale is paused": "An operator has paused the sale, or is changing the list of partitions. Send the request again later."
    RedisAway 503 "redis-away" "Redis does not answer": "Redis does not answer, so the gate did not send the order or the event, or cannot read what you asked for. Send the request again later."
    RedisRefused 503 "redis-refused" "Redis refused a command of the gate": "Redis refused a command of the gate, for example for an order, an event or a voucher. The log of the gate has the reason: ask the operators of the sale."
    TooManyQuestions 503 "too-many-questions" "Too many requests that read orders, results or vouchers": "Too many clients ask for orders, results or vouchers that are not loaded, or report many events, at the same time. This is no fault of Redis or MySQL. Send the request again after the time in the header `Retry-After` (seconds)."
    StoresAway 503 "stores-away" "A store failed, or did not answer the gate": "The member `detail` says which store failed, and why. Send the request again later."
    Unsure 504 "unsure" "The gate does not know whether Redis has the order or the event": "Send an order again with the same Idempotency-Key, or with the `orderId` of this answer: Redis admits the order only once. Send an event again as it was: the same event again changes nothing."
}

/// A problem (RFC 9457) that the gate sends as the answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub kind: ProblemKind,
    pub detail: Option<String>,
    /// The members of the problem document besides type, title, status and detail.
    pub members: Map<String, Value>,
    /// The seconds after which the client may send its request again, for the header `Retry-After`.
    pub retry_after_s: Option<u64>,
}

impl Problem {
    /// The problem of a request that MySQL has not answered. The same request may be sent again.
    pub fn of_mysql(error: &anyhow::Error) -> Self {
        ProblemKind::StoresAway.because(format!("MySQL: {}", error_chain(error)))
    }
}

impl From<ProblemKind> for Problem {
    fn from(kind: ProblemKind) -> Self {
        let retry_after_s = kind.has_retry_after().then_some(SOON_S);
        Self { kind, detail: None, members: Map::new(), retry_after_s }
    }
}

impl From<BadBody> for Problem {
    fn from(bad: BadBody) -> Self {
        match bad {
            BadBody::NoJson(detail) => ProblemKind::BadJson.because(detail),
            BadBody::Faults(faults) => Self::of_faults(&faults),
        }
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::NoToken => ProblemKind::NoToken.into(),
            Denied::NoScope(scopes) => {
                let words: Vec<&str> = scopes.iter().map(|scope| scope.word()).collect();
                Self::from(ProblemKind::NoScope).with("scopes", words)
            }
        }
    }
}

impl ProblemKind {
    /// Whether answers of this kind say when the client may ask again.
    pub(super) const fn has_retry_after(self) -> bool {
        matches!(self.status(), 429 | 503)
    }

    pub(super) fn http_status(self) -> StatusCode {
        StatusCode::from_u16(self.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    pub(super) fn because(self, detail: impl Into<String>) -> Problem {
        Problem { detail: Some(detail.into()), ..self.into() }
    }
}

impl Problem {
    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.to_owned(), value.into());
        self
    }

    /// Adds the time to wait: in whole seconds for the header, and to the millisecond for clients that read the
    /// document.
    pub(super) fn come_again_in(self, wait_ms: u64) -> Self {
        let problem = self.with("retryAfterMs", wait_ms);
        Self { retry_after_s: Some(wait_ms.div_ceil(1000).max(1)), ..problem }
    }

    fn of_faults(faults: &[Fault]) -> Self {
        let errors: Vec<Value> =
            faults.iter().map(|fault| json!({ "pointer": fault.pointer, "detail": fault.detail })).collect();
        Self::from(ProblemKind::BadInput).with("errors", errors)
    }

    /// The problem as JSON of the type `application/problem+json`.
    pub(super) fn document(&self) -> String {
        Value::Object(self.members_of_document()).to_string()
    }

    /// The members of the problem document.
    pub(super) fn members_of_document(&self) -> Map<String, Value> {
        let mut document = Map::new();
        document.insert("type".to_owned(), format!("/problems/{}", self.kind.slug()).into());
        document.insert("title".to_owned(), self.kind.title().into());
        document.insert("status".to_owned(), self.kind.status().into());
        document.extend(self.detail.iter().map(|detail| ("detail".to_owned(), detail.as_str().into())));
        document.extend(self.members.clone());
        document
    }
}

/// An order that Redis has admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    pub order: OrderId,
    pub voucher: VoucherId,
    pub when: AdmissionAttempt,
}

/// Whether this request admitted the order, or an earlier request had already admitted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionAttempt {
    /// This request admitted the order.
    Now,
    /// An earlier request admitted the order, and this request repeats the earlier one.
    Before,
}

impl AdmissionAttempt {
    pub const ALL: [Self; 2] = [Self::Now, Self::Before];

    /// The value of the JSON member and metric label `outcome` for an admitted order.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Now => "admitted",
            Self::Before => "admitted_before",
        }
    }
}

/// Converts a reply of an admission script to the answer for the caller: the admitted order or a problem.
pub fn outcome(reply: Result<AdmitReply, ScriptError>, admission: &Admission) -> Result<Admitted, Problem> {
    use ProblemKind as Kind;
    let Admission { order, voucher, .. } = *admission;
    Err(match reply {
        Ok(AdmitReply::Admitted) => return Ok(Admitted { order, voucher, when: AdmissionAttempt::Now }),
        Ok(AdmitReply::AdmittedBefore) => {
            return Ok(Admitted { order, voucher, when: AdmissionAttempt::Before });
        }
        Ok(AdmitReply::SoldOut) => sold_out(0),
        Ok(AdmitReply::UserHasOrder) => Problem::from(Kind::SecondOrder)
            .with("orders", format!("/orders?voucherId={voucher}&userId={}", admission.user)),
        Ok(AdmitReply::NoStock) => Kind::NoSuchSale.into(),
        Ok(AdmitReply::NotBegun) => Kind::NotBegun.into(),
        Ok(AdmitReply::Over) => Kind::Over.into(),
        Ok(AdmitReply::Paused) => Kind::Paused.into(),
        Ok(AdmitReply::Busy) => Kind::Busy.into(),
        Ok(AdmitReply::Released) => Problem::from(Kind::Released).with("orderId", order.to_string()),
        Ok(AdmitReply::OverLimit(reached)) => over_limit(reached),
        Ok(AdmitReply::TooFast(RateReached { name, retry_ms })) => {
            Problem::from(Kind::TooFast).with("limit", name).come_again_in(retry_ms)
        }
        Err(ScriptError::IdTaken { order }) => {
            Problem::from(Kind::IdTaken).with("orderId", order.to_string())
        }
        Err(ScriptError::OtherQuantity { order }) => {
            Problem::from(Kind::OtherQuantity).with("orderId", order.to_string())
        }
        Err(ScriptError::OtherRequest) => Kind::OtherRequest.into(),
        Err(ScriptError::NoSubject { name, .. }) => Problem::from(Kind::MissingSubject).with("subject", name),
        Err(ScriptError::Unreachable(_)) => Problem::from(Kind::Unsure).with("orderId", order.to_string()),
        Err(ScriptError::Unconfirmed { order, .. }) => {
            Problem::from(Kind::Unsure).with("orderId", order.to_string())
        }
        Err(ScriptError::Refused(_) | ScriptError::WrongPartition(_) | ScriptError::Unexpected { .. }) => {
            Kind::RedisRefused.into()
        }
    })
}

/// The problem of a voucher that has too few units for a request, and this number of units.
pub fn sold_out(left: u64) -> Problem {
    match left {
        0 => ProblemKind::SoldOut.into(),
        left => Problem::from(ProblemKind::TooFewLeft).with("unitsLeft", left),
    }
}

fn over_limit(LimitReached { name, orders_left, units_left, opens_ms }: LimitReached) -> Problem {
    let mut problem = Problem::from(ProblemKind::OverLimit).with("limit", name);
    for (name, left) in [("ordersLeft", orders_left), ("unitsLeft", units_left)] {
        if let Some(left) = left {
            problem = problem.with(name, left);
        }
    }
    match opens_ms.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok()) {
        Some(opens) => problem.with("opensAt", opens.to_string()),
        None => problem,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tidegate_orders::{Quantity, Subjects};

    use super::*;

    #[test]
    fn each_kind_has_a_type_and_words_of_its_own() {
        let slugs: HashSet<&str> = ProblemKind::ALL.iter().map(|kind| kind.slug()).collect();
        let titles: HashSet<&str> = ProblemKind::ALL.iter().map(|kind| kind.title()).collect();
        assert_eq!((slugs.len(), titles.len()), (ProblemKind::ALL.len(), ProblemKind::ALL.len()));
        for kind in ProblemKind::ALL {
            assert!((400..=504).contains(&kind.status()), "{kind:?}");
        }
    }

    #[test]
    fn a_limit_says_what_is_left_and_when_it_opens_and_a_rate_when_to_come_again() {
        let admission = Admission {
            order: 42.try_into().unwrap(),
            user: 1.try_into().unwrap(),
            voucher: 7.try_into().unwrap(),
            quantity: Quantity::ONE,
            subjects: Subjects::none(),
            traceparent: None,
        };
        let reached = LimitReached {
            name: "days".to_owned(),
            orders_left: Some(1),
            units_left: None,
            opens_ms: Some(1_700_000_000_000),
        };
        let problem = outcome(Ok(AdmitReply::OverLimit(reached)), &admission).unwrap_err();
        let document: Value = serde_json::from_str(&problem.document()).unwrap();
        let expected = json!({
            "type": "/problems/over-limit", "title": "A limit refuses the order", "status": 409,
            "limit": "days", "ordersLeft": 1, "opensAt": "2023-11-14T22:13:20Z",
        });
        assert_eq!(document, expected);
        let rate = RateReached { name: "fast".to_owned(), retry_ms: 1_001 };
        let problem = outcome(Ok(AdmitReply::TooFast(rate)), &admission).unwrap_err();
        assert_eq!((problem.kind.status(), problem.retry_after_s), (429, Some(2)));
    }
}
