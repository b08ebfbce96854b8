//! The problem documents ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)) that a caller gets instead of an order.
//! Each kind has a type and a page of its own.

use hyper::StatusCode;
use serde_json::{Map, Value, json};
use tidegate_orders::{
    OrderId, VoucherId,
    limits::{LimitReached, RateReached},
    scripts::{Admission, AdmitReply, ScriptError},
};

use super::request::Fault;

/// The seconds after which a client may ask again if the gate knows no better time.
const SOON_S: u64 = 1;

macro_rules! problems {
    ($($kind:ident $status:literal $slug:literal $title:literal: $page:literal)*) => {
        /// The kinds of problems that the gate answers with.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ProblemKind {
            $(#[doc = $page] $kind,)*
        }

        impl ProblemKind {
            /// All kinds of problems, in the order of their status.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// The HTTP status of this kind.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$kind => $status),* }
            }

            /// The last part of this kind's type, after `/problems/`.
            #[must_use]
            pub const fn slug(self) -> &'static str {
                match self { $(Self::$kind => $slug),* }
            }

            /// The title of this kind, the same for all problems of it.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$kind => $title),* }
            }

            /// The meaning of this kind, and what a client can do about it.
            #[must_use]
            pub const fn page(self) -> &'static str {
                match self { $(Self::$kind => $page),* }
            }
        }
    };
}

problems! {
    BadHead 400 "bad-head" "The head of the request breaks a rule of HTTP": "A request has one `Host`, and one `Authorization` at most. The member `detail` says what is wrong."
    BadJson 400 "bad-json" "The body is not JSON": "Send a JSON object, in UTF-8, such as {\"voucherId\": \"7\", \"userId\": \"1001\"}."
    BadQuestion 400 "bad-question" "The path or its query cannot be used": "The member `detail` says why."
    NoToken 401 "no-token" "The secret is missing or wrong": "Send `Authorization: Bearer` with gate.token."
    NotAProxy 403 "not-a-proxy" "Only listed proxies may say who the user is": "The header of gate.user_header came from an address that gate.trusted_proxies does not list. Leave it out, and send `userId`."
    NoUser 403 "no-user" "The proxy does not say who the user is": "A proxy of gate.trusted_proxies must send the header of gate.user_header once, with the id of a user."
    NoSuchPage 404 "no-such-page" "There is nothing at this path": "Request orders with POST /orders."
    NoSuchSale 404 "no-such-sale" "This voucher is not on sale": "Redis holds no stock of the voucher. It was not loaded, or its id is wrong."
    NoSuchRegion 404 "no-such-region" "The campaign has no such region": "`tidegate campaign show` lists the regions of a campaign, with their vouchers."
    WrongMethod 405 "wrong-method" "This path does not support the method": "The header Allow names the supported methods."
    TooSlow 408 "too-slow" "The request arrived too slowly": "Send it at once: the whole request has to arrive within gate.read_ms."
    SoldOut 409 "sold-out" "Sold out, or fewer units are left than wanted": "Fewer units may be left than the request wants. Units come back when orders are cancelled or expire."
    SecondOrder 409 "second-order" "This user has an order of this voucher": "Each user may have one order of a voucher, unless a limit allows more."
    OverLimit 409 "over-limit" "A limit refuses the order": "The member `limit` names it; `ordersLeft` and `unitsLeft` say what is left of it, and `opensAt` when its next window begins."
    NotBegun 409 "not-begun" "The sale has not begun": "Ask again after the sale has begun."
    Over 409 "over" "The sale is over": "Nothing is sold any more."
    Released 409 "given-back" "This order was admitted, and released": "The order with this id has ended. A new order takes a new id, and a new key."
    IdTaken 409 "id-taken" "The order id belongs to another user's order": "Send no orderId, and the gate creates one. If the request had none, an operator has to check the order ids: an id was assigned twice."
    OtherQuantity 409 "other-quantity" "This order was admitted with another quantity": "The order with this id keeps the quantity that it was admitted with."
    TooLarge 413 "too-large" "The body is too large": "A request has 16 KiB at most."
    NotJson 415 "not-json" "The content type is not JSON": "Send `Content-Type: application/json`."
    UnknownEncoding 415 "unknown-encoding" "The gate does not support the encoding of the body": "Send the body as it is, without `Content-Encoding`."
    BadInput 422 "bad-input" "The request has invalid values": "The member `errors` lists the invalid members by their JSON pointers, with reasons; `detail` is about a header."
    MissingSubject 422 "missing-subject" "A limit needs a subject that was not sent": "The member `subject` names it: send it among `subjects`."
    OtherRequest 422 "other-request" "This Idempotency-Key belongs to another request": "An Idempotency-Key stands for one request of a user for a voucher, with its units and subjects. Another request takes another key."
    TooFast 429 "too-fast" "A rate refuses the order": "The member `limit` names the rate. Come again after Retry-After; `retryAfterMs` says it to the millisecond."
    TooManyAttempts 429 "too-many-attempts" "Too many attempts": "Redis was not called. The member `subject` names the subject that is counted; without it, the address of the caller is counted. Come again after Retry-After; `retryAfterMs` says it to the millisecond."
    Busy 503 "busy" "Orders come faster than they can be written": "Workers are too far behind, or no worker is alive. Nothing was ordered: ask again later."
    Paused 503 "paused" "The sale is paused": "An operator has stopped it for a while."
    RedisAway 503 "redis-away" "Redis does not answer": "The gate sent no order to Redis. Ask again later."
    RedisRefused 503 "redis-refused" "Redis refused": "Nothing was ordered. The operators of the sale find the reason in the log of the gate."
    TooManyQuestions 503 "too-many-questions" "Too many requests for the state of orders": "Both stores may be fine: ask again."
    StoresAway 503 "stores-away" "The order cannot be looked up now": "The member `detail` says which store is away."
    Unsure 504 "unsure" "It is unknown whether the order is admitted": "Ask again under the same Idempotency-Key, or with the same `orderId` if there was no key: the order is admitted only once, however often you ask."
}

/// A problem that one request gets as its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub kind: ProblemKind,
    pub detail: Option<String>,
    /// The further members of the document.
    pub members: Map<String, Value>,
    /// The seconds after which the client may ask again.
    pub retry_after_s: Option<u64>,
}

impl From<ProblemKind> for Problem {
    fn from(kind: ProblemKind) -> Self {
        let retry_after_s = kind.has_retry_after().then_some(SOON_S);
        Self { kind, detail: None, members: Map::new(), retry_after_s }
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

    pub(super) fn of_faults(faults: &[Fault]) -> Self {
        let errors: Vec<Value> =
            faults.iter().map(|fault| json!({ "pointer": fault.pointer, "detail": fault.detail })).collect();
        Self::from(ProblemKind::BadInput).with("errors", errors)
    }

    /// The problem as JSON of the type `application/problem+json`.
    pub(super) fn document(&self) -> String {
        let mut document = Map::new();
        document.insert("type".to_owned(), format!("/problems/{}", self.kind.slug()).into());
        document.insert("title".to_owned(), self.kind.title().into());
        document.insert("status".to_owned(), self.kind.status().into());
        document.extend(self.detail.iter().map(|detail| ("detail".to_owned(), detail.as_str().into())));
        document.extend(self.members.clone());
        Value::Object(document).to_string()
    }
}

/// An order that Redis has admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    pub order: OrderId,
    pub voucher: VoucherId,
    pub when: AdmissionAttempt,
}

/// The request that admitted an order: this one or an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionAttempt {
    /// This request admitted the order.
    Now,
    /// An earlier request admitted the order, and this one repeats it.
    Before,
}

impl AdmissionAttempt {
    pub const ALL: [Self; 2] = [Self::Now, Self::Before];

    /// The word for `outcome` in answers and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Now => "admitted",
            Self::Before => "admitted_before",
        }
    }
}

/// Translates a reply of Redis into the answer for the caller.
pub fn outcome(reply: Result<AdmitReply, ScriptError>, admission: &Admission) -> Result<Admitted, Problem> {
    use ProblemKind as Kind;
    let Admission { order, voucher, .. } = *admission;
    Err(match reply {
        Ok(AdmitReply::Admitted) => return Ok(Admitted { order, voucher, when: AdmissionAttempt::Now }),
        Ok(AdmitReply::AdmittedBefore) => {
            return Ok(Admitted { order, voucher, when: AdmissionAttempt::Before });
        }
        Ok(AdmitReply::SoldOut) => Kind::SoldOut.into(),
        Ok(AdmitReply::UserHasOrder) => Kind::SecondOrder.into(),
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
