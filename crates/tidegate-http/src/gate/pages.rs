//! The pages of the gate: their paths and their answers.

use std::{sync::Arc, time::Duration};

use hyper::{
    HeaderMap, Request, StatusCode,
    body::{Bytes, Incoming},
    header::{ACCEPT_ENCODING, ALLOW, HeaderValue, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE},
};
use serde_json::{Value, json};
use tidegate_orders::{OrderId, Quantity, Subjects, event::NewEvent, scripts::IdempotencyKey};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    attempts::Attempts,
    body,
    caller::Caller,
    counters::GateCounters,
    event_reports::{EventReports, Reported, preferred_wait},
    event_request,
    following::Following,
    openapi,
    ordering::Attributes,
    problem::{Admitted, Problem, ProblemKind},
    refusals::Refusals,
    request::{self, Item, Wanted},
    route::{NoRoute, Route},
    tutorial::{self, Logins},
};
use crate::{
    answer::{Answer, JSON, TEXT, answer},
    cached::Cached,
    metrics::{self, CONTENT_TYPE as METRICS},
    order_pages::NoOrderPage,
    server::fault_of_head,
    settings::GateSettings,
    tokens::Tokens,
};

/// The largest body of a request, in bytes.
const BODY_BYTES: usize = 16 << 10;
/// The largest body of a request with many events, in bytes.
const EVENTS_BODY_BYTES: usize = 1 << 20;
const JSON_LINES: &str = "application/jsonl";

/// The time for which the gate reuses the last result of whether Redis answers.
const READY_FRESH_FOR: Duration = Duration::from_secs(1);
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
    events: EventReports,
    settings: GateSettings,
    tokens: Arc<Tokens>,
    stop: CancellationToken,
}

impl GatePages {
    pub fn new(
        following: Arc<Following>,
        refusals: Refusals,
        (settings, tokens): (GateSettings, Arc<Tokens>),
        stop: CancellationToken,
    ) -> Self {
        let logins = settings.tutorial_login.as_deref().map(Logins::new);
        let (counters, document) = (GateCounters::default(), openapi::document(&settings.callers).into());
        let (attempts, redis_answers) = (Attempts::new(&settings.attempts), Cached::new(READY_FRESH_FOR));
        let events = EventReports::new(refusals.clone());
        Self {
            following,
            events,
            refusals,
            logins,
            counters,
            document,
            redis_answers,
            attempts,
            settings,
            tokens,
            stop,
        }
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
        // The path is copied: answering takes the request, with its body.
        let path = request.uri().path().to_owned();
        let route = Route::of(request.method(), &path, self.logins.is_some());
        if route.is_ok_and(Route::is_counted) || route.is_err() {
            if let Err(told) = self.attempts.count_address(caller.address()) {
                return self.refuse(route.ok(), told);
            }
        }
        let route = match route {
            Ok(route) => route,
            Err(NoRoute::NoSuchPage) => return problem(&ProblemKind::NoSuchPage.into()),
            Err(NoRoute::WrongMethod(allowed)) => return allowing(allowed),
        };
        if let Some(scopes) = route.scopes()
            && let Err(denied) = self.tokens.check(request.headers(), scopes)
        {
            return self.refuse(Some(route), denied.into());
        }
        self.page(route, request, &caller).await
    }

    async fn page(&self, route: Route<'_>, request: Request<Incoming>, caller: &Caller) -> Answer {
        match route {
            Route::Livez => answer(StatusCode::OK, TEXT, "alive\n"),
            Route::Readyz => self.ready().await,
            Route::OpenApi => answer(StatusCode::OK, JSON, self.document.clone()),
            Route::Metrics => self.metrics(),
            Route::ProblemPage(slug) => match problem_page(slug) {
                Some(page) => answer(StatusCode::OK, TEXT, page),
                None => problem(&ProblemKind::NoSuchPage.into()),
            },
            Route::PlaceOrder => {
                let began = Instant::now();
                let answered = self.order(request, caller).await;
                self.counters.answered(&answered, began.elapsed());
                answered.map_or_else(|told| problem(&told), accepted)
            }
            Route::PlaceOrderOfTutorial => {
                self.order_of_tutorial(request.uri().path(), request.headers()).await
            }
            Route::PostEvent(order) => {
                let answered = self.post_event(order, request, caller).await;
                self.counters.event(answered.as_ref().err());
                answered
                    .map_or_else(|told| problem(&told), |(reported, wait)| event_accepted(&reported, wait))
            }
            Route::PostEvents => match self.post_events(request, caller).await {
                Ok(lines) => answer(StatusCode::OK, JSON_LINES, lines),
                Err(told) => {
                    self.counters.event(Some(&told));
                    problem(&told)
                }
            },
            Route::Order(order) => {
                let shown = self.order_page(order, &request, caller).await;
                shown.unwrap_or_else(|told| problem(&told))
            }
        }
    }

    async fn post_event(
        &self,
        order: &str,
        request: Request<Incoming>,
        caller: &Caller,
    ) -> Result<(Reported, Duration), Problem> {
        no_user(caller)?;
        let order = order.parse::<OrderId>();
        let order =
            order.map_err(|error| ProblemKind::BadQuestion.because(format!("the order id {error}")))?;
        let wait = preferred_wait(request.headers());
        let traceparent = traceparent(request.headers());
        let body = body::read(request, &[JSON], BODY_BYTES, self.settings.read_within).await?;
        let event = event_request::read(&body, Some(order))?;
        let generation = self.following.admitting()?;
        Ok((self.events.report(&generation, NewEvent { event, traceparent }, wait).await?, wait))
    }

    async fn post_events(&self, request: Request<Incoming>, caller: &Caller) -> Result<String, Problem> {
        no_user(caller)?;
        let traceparent = traceparent(request.headers());
        let types = [JSON_LINES, "application/x-ndjson"];
        let body = body::read(request, &types, EVENTS_BODY_BYTES, self.settings.read_within).await?;
        let generation = self.following.admitting()?;
        self.events.report_lines(&generation, &body, (traceparent, &self.counters)).await
    }

    async fn order_page(
        &self,
        order: &str,
        request: &Request<Incoming>,
        caller: &Caller,
    ) -> Result<Answer, Problem> {
        let only = caller.user()?;
        let orders = &self.following.now().orders;
        let shown = orders.answer(order, request.uri(), request.headers(), only).await;
        shown.map_err(|why| no_order_page(&why))
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

    /// Answers a request that the gate refuses before it reads the body. Refused requests for orders are counted.
    fn refuse(&self, route: Option<Route<'_>>, told: Problem) -> Answer {
        if route.is_some_and(Route::places_order) {
            self.counters.refused(&told);
        }
        if route == Some(Route::PlaceOrderOfTutorial) {
            return tutorial::told(&Err(told));
        }
        let mut answer = problem(&told);
        if told.kind == ProblemKind::NoToken {
            answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        answer
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
        let attributes = attributes(request.headers())?;
        let body = body::read(request, &[JSON], BODY_BYTES, self.settings.read_within).await?;
        let wanted = request::read(&body, user)?;
        self.attempts.count_subjects(wanted.user, &wanted.subjects)?;
        self.following.admitting()?.ordering.order(wanted, attributes).await
    }
}

/// Reads the attributes of a request from its headers.
fn attributes(headers: &HeaderMap) -> Result<Attributes, Problem> {
    let traceparent = traceparent(headers);
    let mut keys = headers.get_all(IDEMPOTENCY_KEY).into_iter();
    let key = keys.next().map(|key| IdempotencyKey::parse(key.as_bytes())).transpose();
    match (key, keys.next()) {
        (Ok(key), None) => Ok(Attributes { key, traceparent }),
        (Err(why), _) => Err(ProblemKind::BadInput.because(format!("Idempotency-Key {why}"))),
        (_, Some(_)) => Err(ProblemKind::BadInput.because("the header Idempotency-Key is repeated")),
    }
}

fn traceparent(headers: &HeaderMap) -> Option<String> {
    headers.get("traceparent").and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// Refuses a request that names a user: users must not say that they have paid.
fn no_user(caller: &Caller) -> Result<(), Problem> {
    match caller.user()? {
        Some(_) => Err(ProblemKind::NotForUsers.into()),
        None => Ok(()),
    }
}

/// Answers with an accepted event: 200 if its outcome is known, otherwise 202.
fn event_accepted(reported: &Reported, wait: Duration) -> Answer {
    let status = if reported.outcome.is_some() { StatusCode::OK } else { StatusCode::ACCEPTED };
    let mut accepted = answer(status, JSON, Value::Object(reported.document()).to_string());
    if let Ok(location) = HeaderValue::try_from(reported.location()) {
        accepted.headers_mut().insert(LOCATION, location);
    }
    if let Ok(applied) = HeaderValue::try_from(format!("wait={}", wait.as_secs()))
        && !wait.is_zero()
    {
        accepted.headers_mut().insert("preference-applied", applied);
    }
    accepted
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
fn problem_page(slug: &str) -> Option<String> {
    let kind = openapi::kind_of(slug)?;
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
