//! The answers of the gate: problems, admitted orders, accepted events, and pages.

use std::time::Duration;

use hyper::{
    StatusCode,
    header::{ACCEPT_ENCODING, ALLOW, HeaderValue, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE},
};
use serde_json::{Value, json};

use super::{
    event_reports::Reported,
    openapi,
    problem::{Admitted, Problem, ProblemKind},
};
use crate::{
    answer::{Answer, JSON, answer},
    order_pages::NoOrderPage,
    results::NoResults,
};

const PROBLEM: &str = "application/problem+json";

/// Answers with the order and the path of its page. The path names the voucher, because the order id alone does not
/// lead to the row.
pub fn accepted(Admitted { order, voucher, when }: Admitted) -> Answer {
    let body = json!({ "orderId": order.to_string(), "outcome": when.word() }).to_string();
    let mut accepted = answer(StatusCode::ACCEPTED, JSON, body);
    if let Ok(location) = HeaderValue::try_from(format!("/orders/{order}?voucherId={voucher}")) {
        accepted.headers_mut().insert(LOCATION, location);
    }
    accepted
}

/// Answers with an accepted event: 200 if its outcome is known, otherwise 202.
pub fn event_accepted(reported: &Reported, wait: Duration) -> Answer {
    let status = if reported.outcome.is_some() { StatusCode::OK } else { StatusCode::ACCEPTED };
    let mut accepted = answer(status, JSON, Value::Object(reported.document()).to_string());
    if let Ok(location) = HeaderValue::try_from(reported.location()) {
        accepted.headers_mut().insert(LOCATION, location);
    }
    if let Ok(applied) = HeaderValue::try_from(format!("wait={}", wait.as_secs()))
        && reported.has_waited
    {
        accepted.headers_mut().insert("preference-applied", applied);
    }
    accepted
}

pub fn json_page(page: &Value) -> Answer {
    answer(StatusCode::OK, JSON, page.to_string())
}

/// The text of the page that the type of a problem links to.
pub fn problem_page(slug: &str) -> Option<String> {
    let kind = openapi::kind_of(slug)?;
    Some(format!("{}: {}\n\n{}\n", kind.status(), kind.title(), kind.page()))
}

/// The problem of a page about an order that cannot be shown.
pub fn no_order_page(why: &NoOrderPage) -> Problem {
    let kind = match why {
        NoOrderPage::BadQuestion(_) => ProblemKind::BadQuestion,
        NoOrderPage::TooMany => ProblemKind::TooManyQuestions,
        NoOrderPage::StoresAway(_) => ProblemKind::StoresAway,
    };
    kind.because(why.to_string())
}

/// The problem that says why there are no results.
pub fn no_results(why: NoResults) -> Problem {
    let kind = match &why {
        NoResults::BadQuestion(_) => ProblemKind::BadQuestion,
        NoResults::TooMany => ProblemKind::TooManyQuestions,
        NoResults::Lost(_) => ProblemKind::ResultsLost,
        NoResults::Away => ProblemKind::RedisAway,
    };
    let problem = kind.because(why.to_string());
    if let NoResults::Lost(cursor) = why { problem.with("cursor", cursor) } else { problem }
}

/// Answers with a problem document.
pub fn problem(problem: &Problem) -> Answer {
    let mut answer = answer(problem.kind.http_status(), PROBLEM, problem.document());
    if problem.kind == ProblemKind::UnknownEncoding {
        answer.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    if problem.kind == ProblemKind::NoToken {
        answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(seconds) = problem.retry_after_s {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    answer
}

/// Answers that a path supports only these methods.
pub fn allowing(methods: &'static str) -> Answer {
    let mut answer = problem(&ProblemKind::WrongMethod.into());
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    answer
}
