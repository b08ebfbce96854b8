//! The pages of the gate: their paths and their answers.

use std::{sync::Arc, time::Duration};

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::{
    HeaderMap, Method, Request, StatusCode,
    body::{Body, Bytes, Incoming},
    header::{
        ACCEPT_ENCODING, ALLOW, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, LOCATION, RETRY_AFTER,
        WWW_AUTHENTICATE,
    },
};
use serde_json::json;
use tidegate_orders::{Quantity, Subjects, scripts::IdempotencyKey};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    attempts::Attempts,
    caller::Caller,
    counters::GateCounters,
    following::Following,
    openapi,
    ordering::Attributes,
    problem::{Admitted, Problem, ProblemKind},
    refusals::Refusals,
    request::{self, BadBody, Item, Wanted},
    tutorial::{self, Logins},
};
use crate::{
    answer::{Answer, JSON, TEXT, answer},
    cached::Cached,
    metrics::{self, CONTENT_TYPE as METRICS},
    order_pages::NoOrderPage,
    server::{fault_of_head, has_token},
    settings::GateSettings,
};

/// The largest body of a request, in bytes.
const BODY_BYTES: usize = 16 << 10;

/// The time for which the gate reuses the last result of whether Redis answers.
const READY_FRESH_FOR: Duration = Duration::from_secs(1);
/// The path for requesting orders.
const ORDERS: &str = "/orders";
const PROBLEM: &str = "application/problem+json";
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The HTTP pages that a gate serves.
#[derive(Debug)]
pub struct GatePages {
    following: Arc<Following>,
    refusals: Refusals,
    logins: Option<Logins>,
    counters: GateCounters,
    document: Bytes,
    redis_answers: Cached<bool>,
    attempts: Attempts,
    settings: GateSettings,
    stop: CancellationToken,
}

impl GatePages {
    pub fn new(
        following: Arc<Following>,
        refusals: Refusals,
        settings: GateSettings,
        stop: CancellationToken,
    ) -> Self {
        let logins = settings.tutorial_login.as_deref().map(Logins::new);
        let (counters, document) = (GateCounters::default(), openapi::document(&settings.callers).into());
        let (attempts, redis_answers) = (Attempts::new(&settings.attempts), Cached::new(READY_FRESH_FOR));
        Self { following, refusals, logins, counters, document, redis_answers, attempts, settings, stop }
    }

    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    pub fn counters(&self) -> &GateCounters {
        &self.counters
    }

    pub fn settings(&self) -> &GateSettings {
        &self.settings
    }

    pub async fn answer(&self, request: Request<Incoming>, caller: Caller) -> Answer {
        if let Some(fault) = fault_of_head(&request) {
            return problem(&ProblemKind::BadHead.because(fault));
        }
        let is_read = [Method::GET, Method::HEAD].contains(request.method());
        let path = request.uri().path();
        if let Err(told) = self.attempts.count_address(caller.address(), path) {
            return self.too_many(path, told);
        }
        let needs_token = [ORDERS, "/metrics"].contains(&path) || path.starts_with("/orders/");
        if needs_token && !has_token(request.headers(), self.settings.token.as_ref()) {
            return self.no_token(path);
        }
        match path {
            "/livez" if is_read => answer(StatusCode::OK, TEXT, "alive\n"),
            "/readyz" if is_read => self.ready().await,
            "/openapi.json" if is_read => answer(StatusCode::OK, JSON, self.document.clone()),
            "/metrics" if is_read => self.metrics(),
            ORDERS if request.method() == Method::POST => {
                let began = Instant::now();
                let answered = self.order(request, &caller).await;
                self.counters.answered(&answered, began.elapsed());
                answered.map_or_else(|told| problem(&told), accepted)
            }
            ORDERS => allowing("POST"),
            path if self.is_of_tutorial(path) => {
                if request.method() == Method::POST {
                    self.order_of_tutorial(path, request.headers()).await
                } else {
                    allowing("POST")
                }
            }
            "/livez" | "/readyz" | "/metrics" | "/openapi.json" => allowing("GET, HEAD"),
            path => match (path.strip_prefix("/orders/"), problem_page(path)) {
                (Some(order), _) if is_read => {
                    let orders = &self.following.now().orders;
                    let found = orders.answer(order, request.uri(), request.headers()).await;
                    found.unwrap_or_else(|why| problem(&no_order_page(&why)))
                }
                (None, Some(page)) if is_read => answer(StatusCode::OK, TEXT, page),
                (None, None) => problem(&ProblemKind::NoSuchPage.into()),
                _ => allowing("GET, HEAD"),
            },
        }
    }

    /// Answers `/readyz`. While the gate stops, this fails early, so that a load balancer sends no more clients here.
    async fn ready(&self) -> Answer {
        match self.why_not_ready().await {
            None => answer(StatusCode::OK, TEXT, "ready\n"),
            Some(why) => answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("not ready\n{why}\n")),
        }
    }

    /// The reason why the gate admits no orders now, for `/readyz` and for the service manager. None: the gate admits
    /// orders.
    pub async fn why_not_ready(&self) -> Option<String> {
        if self.stop.is_cancelled() {
            return Some("stopping".to_owned());
        }
        if let Some(why) = self.following.not_ready() {
            return Some(why);
        }
        let answers = *self.redis_answers.get(self.following.now().gates.any_answers()).await;
        (!answers).then(|| "Redis does not answer".to_owned())
    }

    fn is_of_tutorial(&self, path: &str) -> bool {
        self.logins.is_some() && path.starts_with(tutorial::PATH)
    }

    fn no_token(&self, path: &str) -> Answer {
        let told = ProblemKind::NoToken.into();
        if path == ORDERS {
            self.counters.refused(&told);
        }
        let mut answer = problem(&told);
        answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        answer
    }

    fn too_many(&self, path: &str, told: Problem) -> Answer {
        if path == ORDERS || self.is_of_tutorial(path) {
            self.counters.refused(&told);
        }
        if self.is_of_tutorial(path) { tutorial::told(&Err(told)) } else { problem(&told) }
    }

    fn metrics(&self) -> Answer {
        match metrics::render_of("gate", |families| self.counters.add_to(families)) {
            Ok(page) => answer(StatusCode::OK, METRICS, page),
            Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error:#}\n")),
        }
    }

    async fn order_of_tutorial(&self, path: &str, headers: &HeaderMap) -> Answer {
        let (Some(voucher), Some(logins)) = (tutorial::voucher(path), &self.logins) else {
            return tutorial::told(&Err(ProblemKind::NoSuchPage.into()));
        };
        let began = Instant::now();
        let admitting = match self.following.admitting() {
            Ok(admitting) => admitting,
            Err(told) => {
                self.counters.refused(&told);
                return tutorial::told(&Err(told));
            }
        };
        let user = match logins.user(&admitting.gates, headers, &self.refusals).await {
            Ok(Some(user)) => user,
            Ok(None) => return tutorial::not_logged_in(),
            Err(told) => {
                self.counters.refused(&told);
                return tutorial::told(&Err(told));
            }
        };
        let item = Item::Voucher(voucher);
        let wanted = Wanted { item, user, quantity: Quantity::ONE, subjects: Subjects::none(), order: None };
        let traceparent = attributes(headers).ok().and_then(|it| it.traceparent);
        let answered = match self.attempts.count_subjects(user, &wanted.subjects) {
            Ok(()) => admitting.ordering.order(wanted, Attributes { key: None, traceparent }).await,
            Err(told) => Err(told),
        };
        self.counters.answered(&answered, began.elapsed());
        tutorial::told(&answered)
    }

    async fn order(&self, request: Request<Incoming>, caller: &Caller) -> Result<Admitted, Problem> {
        let user = caller.user()?;
        if !is_json(request.headers()) {
            return Err(ProblemKind::NotJson.into());
        }
        if is_encoded(request.headers()) {
            return Err(ProblemKind::UnknownEncoding.into());
        }
        let attributes = attributes(request.headers())?;
        let wanted = request::read(&self.body(request).await?, user).map_err(|bad| match bad {
            BadBody::NoJson(detail) => ProblemKind::BadJson.because(detail),
            BadBody::Faults(faults) => Problem::of_faults(&faults),
        })?;
        self.attempts.count_subjects(wanted.user, &wanted.subjects)?;
        self.following.admitting()?.ordering.order(wanted, attributes).await
    }

    async fn body(&self, request: Request<Incoming>) -> Result<Bytes, Problem> {
        // If a body names its size and is too large, the gate refuses it without reading it.
        if request.body().size_hint().lower() > BODY_BYTES as u64 {
            return Err(ProblemKind::TooLarge.into());
        }
        let body = Limited::new(request.into_body(), BODY_BYTES).collect();
        match timeout(self.settings.read_within, body).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(ProblemKind::TooLarge.into()),
            Ok(Err(error)) => Err(ProblemKind::BadJson.because(format!("the body is incomplete: {error}"))),
            Err(_) => Err(ProblemKind::TooSlow.into()),
        }
    }
}

/// Reads the attributes of a request from its headers.
fn attributes(headers: &HeaderMap) -> Result<Attributes, Problem> {
    let traceparent = headers.get("traceparent").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let mut keys = headers.get_all(IDEMPOTENCY_KEY).into_iter();
    let key = keys.next().map(|key| IdempotencyKey::parse(key.as_bytes())).transpose();
    match (key, keys.next()) {
        (Ok(key), None) => Ok(Attributes { key, traceparent }),
        (Err(why), _) => Err(ProblemKind::BadInput.because(format!("Idempotency-Key {why}"))),
        (_, Some(_)) => Err(ProblemKind::BadInput.because("the header Idempotency-Key is repeated")),
    }
}

/// Answers with the order and the path of its page. The path names the voucher, because the order id alone does not
/// lead to the row.
fn accepted(Admitted { order, voucher, when }: Admitted) -> Answer {
    let body = json!({ "orderId": order.to_string(), "outcome": when.word() }).to_string();
    let mut accepted = answer(StatusCode::ACCEPTED, JSON, body);
    if let Ok(location) = HeaderValue::try_from(format!("/orders/{order}?voucher={voucher}")) {
        accepted.headers_mut().insert(LOCATION, location);
    }
    accepted
}

/// The text of the page that the type of a problem links to.
fn problem_page(path: &str) -> Option<String> {
    let kind = openapi::kind_of(path.strip_prefix("/problems/")?)?;
    Some(format!("{}: {}\n\n{}\n", kind.status(), kind.title(), kind.page()))
}

fn no_order_page(why: &NoOrderPage) -> Problem {
    let kind = match why {
        NoOrderPage::BadQuestion(_) => ProblemKind::BadQuestion,
        NoOrderPage::TooMany => ProblemKind::TooManyQuestions,
        NoOrderPage::StoresAway(_) => ProblemKind::StoresAway,
    };
    kind.because(why.to_string())
}

fn is_json(headers: &HeaderMap) -> bool {
    let sent = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    sent.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(JSON)
}

/// Whether the body has an encoding. `identity` means that it has none.
fn is_encoded(headers: &HeaderMap) -> bool {
    let codings =
        headers.get_all(CONTENT_ENCODING).iter().flat_map(|line| line.as_bytes().split(|it| *it == b','));
    codings
        .map(<[u8]>::trim_ascii)
        .any(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"))
}

fn problem(problem: &Problem) -> Answer {
    let mut answer = answer(problem.kind.http_status(), PROBLEM, problem.document());
    if problem.kind == ProblemKind::UnknownEncoding {
        answer.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
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
