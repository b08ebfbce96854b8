//! Which path answers what.

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE},
};
use serde_json::json;
use tidegate_operations::text::error_chain;
use tidegate_orders::{
    OrderId,
    gate::{Admission, GateError},
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{
    gates::Gates,
    problem::{Outcome, Problem, ProblemKind, outcome},
    request::{self, BadBody, Wanted},
};
use crate::{http_server::has_token, settings::GateSettings};

/// What a body may have.
const BODY_BYTES: usize = 16 << 10;

/// What is answered, for programs.
const OPENAPI: &str = include_str!("openapi.json");

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";

type Answer = Response<Full<Bytes>>;

/// Answers requests.
#[derive(Debug)]
pub struct Pages {
    gates: Gates,
    settings: GateSettings,
    stop: CancellationToken,
}

impl Pages {
    pub fn new(gates: Gates, settings: GateSettings, stop: CancellationToken) -> Self {
        Self { gates, settings, stop }
    }

    pub fn settings(&self) -> &GateSettings {
        &self.settings
    }

    pub async fn answer(&self, request: Request<Incoming>) -> Answer {
        let path = request.uri().path();
        let is_read = [Method::GET, Method::HEAD].contains(request.method());
        match path {
            "/livez" if is_read => page(StatusCode::OK, TEXT, "alive\n"),
            "/readyz" if is_read => self.ready(),
            "/openapi.json" if is_read => page(StatusCode::OK, JSON, OPENAPI),
            "/orders" if !has_token(request.headers(), self.settings.token.as_ref()) => {
                let mut answer = problem(&ProblemKind::NoToken.into());
                answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                answer
            }
            "/orders" if request.method() == Method::POST => match self.order(request).await {
                Ok((order, word)) => {
                    let body = json!({ "orderId": order.to_string(), "outcome": word }).to_string();
                    page(StatusCode::ACCEPTED, JSON, body)
                }
                Err(told) => problem(&told),
            },
            "/orders" => allowing("POST"),
            "/livez" | "/readyz" | "/openapi.json" => allowing("GET, HEAD"),
            path => match path.strip_prefix("/problems/").and_then(kind_of) {
                Some(kind) if is_read => page(
                    StatusCode::OK,
                    TEXT,
                    format!("{}: {}\n\n{}\n", kind.status(), kind.title(), kind.page()),
                ),
                Some(_) => allowing("GET, HEAD"),
                None => problem(&ProblemKind::NoSuchPage.into()),
            },
        }
    }

    /// Whoever balances the load sends nobody here any more before the last ones are answered.
    fn ready(&self) -> Answer {
        match () {
            () if self.stop.is_cancelled() => {
                page(StatusCode::SERVICE_UNAVAILABLE, TEXT, "not ready\nstopping\n")
            }
            () if !self.gates.is_any_open() => {
                page(StatusCode::SERVICE_UNAVAILABLE, TEXT, "not ready\nstarting: waits for Redis\n")
            }
            () => page(StatusCode::OK, TEXT, "ready\n"),
        }
    }

    async fn order(&self, request: Request<Incoming>) -> Result<(OrderId, &'static str), Problem> {
        if !is_json(request.headers()) {
            return Err(ProblemKind::NotJson.into());
        }
        let traceparent = request.headers().get("traceparent").and_then(|value| value.to_str().ok());
        let traceparent = traceparent.map(str::to_owned);
        let body =
            timeout(self.settings.read_within, Limited::new(request.into_body(), BODY_BYTES).collect());
        let body = match body.await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(ProblemKind::TooLarge.into()),
            Ok(Err(error)) => {
                return Err(ProblemKind::BadJson.because(format!("the body broke off: {error}")));
            }
            Err(_) => return Err(ProblemKind::TooSlow.into()),
        };
        let wanted = request::read(&body).map_err(|bad| match bad {
            BadBody::NoJson(detail) => ProblemKind::BadJson.because(detail),
            BadBody::Faults(faults) => Problem::of_faults(&faults),
        })?;
        self.admit(wanted, traceparent).await
    }

    async fn admit(
        &self,
        wanted: Wanted,
        traceparent: Option<String>,
    ) -> Result<(OrderId, &'static str), Problem> {
        let Wanted { voucher, user, quantity, subjects, order } = wanted;
        let gate = self.gates.of_voucher(voucher).ok_or(ProblemKind::RedisAway)?;
        let order = match order {
            Some(order) => order,
            None => gate.ids.next().await.map_err(|error| {
                tracing::debug!(%error, "no order id");
                ProblemKind::RedisAway
            })?,
        };
        let reply =
            gate.gate.admit(&Admission { order, user, voucher, quantity, subjects, traceparent }).await;
        if let Err(error @ (GateError::Refused(_) | GateError::Unexpected { .. })) = &reply {
            tracing::error!(%order, %voucher, error = error_chain(&anyhow::anyhow!("{error}")), "Redis refused an order");
        }
        match outcome(reply, order) {
            Outcome::Admitted(word) => Ok((order, word)),
            Outcome::Problem(problem) => Err(problem),
        }
    }
}

fn kind_of(slug: &str) -> Option<ProblemKind> {
    ProblemKind::ALL.iter().copied().find(|kind| kind.slug() == slug)
}

fn is_json(headers: &HeaderMap) -> bool {
    let sent = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    sent.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(JSON)
}

fn page(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

fn problem(problem: &Problem) -> Answer {
    let mut answer = page(problem.kind.http_status(), PROBLEM, problem.document());
    if let Some(seconds) = problem.retry_after_s {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    answer
}

fn allowing(methods: &'static str) -> Answer {
    let mut answer = problem(&ProblemKind::WrongMethod.into());
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    answer
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn the_document_has_every_problem_under_its_status_and_no_other() {
        let document: Value = serde_json::from_str(OPENAPI).unwrap();
        let answers = document["paths"]["/orders"]["post"]["responses"].as_object().unwrap();
        let mut described = BTreeSet::new();
        for (status, answer) in answers {
            let types =
                &answer["content"]["application/problem+json"]["schema"]["allOf"][1]["properties"]["type"];
            let types = types["enum"].as_array().into_iter().flatten();
            described.extend(types.map(|kind| (status.parse().unwrap(), kind.as_str().unwrap().to_owned())));
        }
        // Whoever posts to /orders has the method right.
        let kinds = ProblemKind::ALL.iter().filter(|kind| **kind != ProblemKind::WrongMethod);
        let told: BTreeSet<(u16, String)> =
            kinds.map(|kind| (kind.status(), format!("/problems/{}", kind.slug()))).collect();
        assert_eq!(described, told);
        let pages = &document["paths"]["/problems/{kind}"]["get"]["parameters"][0]["schema"]["enum"];
        let pages: BTreeSet<&str> = pages.as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!(pages, ProblemKind::ALL.iter().map(|kind| kind.slug()).collect());
    }
}
