//! The pages of the gate: their paths and their answers.

use std::{sync::Arc, time::Duration};

use hyper::{
    HeaderMap, Request, StatusCode,
    body::{Bytes, Incoming},
};
use serde_json::{Value, json};
use tidegate_orders::{OrderId, Quantity, Subjects, event::NewEvent};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    answers::{
        accepted, allowing, event_accepted, json_page, no_order_page, no_results, problem, problem_page,
    },
    attempts::Attempts,
    body,
    caller::Caller,
    counters::GateCounters,
    event_reports::{BatchFormat, EventBatch, EventReports, Reported},
    event_request,
    following::Following,
    headers::{attributes, parsed, preferred_wait, traceparent},
    openapi,
    order_list::{self, OrderList},
    ordering::Attributes,
    problem::{Admitted, Problem, ProblemKind},
    publishing,
    refusals::Refusals,
    request::{self, Item, Wanted},
    route::{NoRoute, Route},
    tutorial::{self, Logins},
};
use crate::{
    answer::{Answer, JSON, TEXT, answer},
    cached::Cached,
    metrics::{self, CONTENT_TYPE as METRICS},
    order_pages::Viewer,
    server::fault_of_head,
    settings::GateSettings,
    tokens::Tokens,
};

/// The largest body of a request, in bytes.
const BODY_BYTES: usize = 16 << 10;
/// The largest body of a request with many events, in bytes.
const EVENTS_BODY_BYTES: usize = 1 << 20;
/// The outcome of a check if the order would be admitted.
const WOULD_BE_ADMITTED: &str = "would_be_admitted";
/// The time for which the gate reuses the last result of whether Redis answers.
const READY_FRESH_FOR: Duration = Duration::from_secs(1);

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
    list: OrderList,
    settings: GateSettings,
    tokens: Arc<Tokens>,
    stop: CancellationToken,
}

impl GatePages {
    pub fn new(
        following: Arc<Following>,
        refusals: Refusals,
        (settings, tokens): (GateSettings, Arc<Tokens>),
        counters: GateCounters,
        stop: CancellationToken,
    ) -> Self {
        let logins = settings.tutorial_login.as_deref().map(Logins::new);
        let document = openapi::document(&settings.callers).into();
        let (attempts, redis_answers) = (Attempts::new(&settings.attempts), Cached::new(READY_FRESH_FOR));
        let events = EventReports::new(refusals.clone());
        Self {
            following,
            events,
            list: OrderList::new(),
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
        if route.map_or(true, Route::is_counted)
            && let Err(told) = self.attempts.count_address(caller.address())
        {
            return self.refuse(route.ok(), told);
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
                answered.map_or_else(|told| problem(&told), |(it, wait)| event_accepted(&it, wait))
            }
            Route::CheckOrder => match self.check(request, caller).await {
                Ok(()) => json_page(&json!({ "outcome": WOULD_BE_ADMITTED })),
                Err(told) => problem(&told),
            },
            Route::PublishVoucher => {
                let shared = (&*self.following, self.settings.read_within);
                Box::pin(publishing::answer_to(request, caller, shared)).await
            }
            Route::PostEvents => self.post_events(request, caller).await.unwrap_or_else(|told| {
                self.counters.event(Some(&told));
                problem(&told)
            }),
            route => self.look(route, &request, caller).await.unwrap_or_else(|told| problem(&told)),
        }
    }

    /// Answers a request that changes nothing.
    async fn look(
        &self,
        route: Route<'_>,
        request: &Request<Incoming>,
        caller: &Caller,
    ) -> Result<Answer, Problem> {
        let offers = &self.following.now().offers;
        let page = match route {
            Route::ListOrders => Box::pin(self.order_list(request.uri().query(), caller)).await?,
            Route::Voucher(id) => offers.voucher(parsed(id, "voucher")?).await?,
            Route::Campaign(id) => offers.campaign(parsed(id, "campaign")?).await?,
            Route::Order(order) => return self.order_page(order, request, caller).await,
            Route::Results => return self.results(request, caller).await,
            _ => return Err(ProblemKind::NoSuchPage.into()),
        };
        Ok(json_page(&page))
    }

    async fn post_event(
        &self,
        order: &str,
        request: Request<Incoming>,
        caller: &Caller,
    ) -> Result<(Reported, Duration), Problem> {
        caller.must_be_application()?;
        let order = order.parse::<OrderId>();
        let order =
            order.map_err(|error| ProblemKind::BadQuestion.because(format!("the order id {error}")))?;
        let wait = preferred_wait(request.headers());
        let traceparent = traceparent(request.headers());
        let body = body::read(request, &[JSON], BODY_BYTES, self.settings.read_within).await?;
        let event = event_request::read(&body, Some(order)).map_err(|bad| bad.why)?;
        let generation = self.following.admitting()?;
        Ok((self.events.report(&generation, NewEvent { event, traceparent }, wait).await?, wait))
    }

    async fn post_events(&self, request: Request<Incoming>, caller: &Caller) -> Result<Answer, Problem> {
        caller.must_be_application()?;
        let traceparent = traceparent(request.headers());
        let _permit = self.events.begin_batch()?;
        let form = BatchFormat::of(request.headers());
        let types = [form.content_type(), "application/x-ndjson"];
        let body = body::read(request, &types, EVENTS_BODY_BYTES, self.settings.read_within).await?;
        let events = EventBatch::read(&body, form)?;
        let generation = self.following.admitting()?;
        let answers = self.events.report_many(&generation, events, (traceparent, &self.counters)).await;
        Ok(answer(StatusCode::OK, form.content_type(), answers))
    }

    async fn results(&self, request: &Request<Incoming>, caller: &Caller) -> Result<Answer, Problem> {
        caller.must_be_application()?;
        // With another list than the system's, the gate would read other streams than those of the workers.
        let generation = self.following.admitting()?;
        let end = caller.end(self.tokens.change());
        generation.results.answer(request.uri(), request.headers(), end).await.map_err(no_results)
    }

    async fn order_page(
        &self,
        order: &str,
        request: &Request<Incoming>,
        caller: &Caller,
    ) -> Result<Answer, Problem> {
        let viewer = Viewer { only: caller.user()?, end: caller.end(self.tokens.change()) };
        let orders = &self.following.now().orders;
        let shown = orders.answer(order, request.uri(), request.headers(), viewer).await;
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
        problem(&told)
    }

    fn metrics(&self) -> Answer {
        match metrics::render_of("gate", |families| {
            self.counters.add_to(families);
            self.following.now().results.counts().add_to(families);
        }) {
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

    /// Answers with a user's orders of a voucher. A user whom a proxy names sees its own orders.
    async fn order_list(&self, query: Option<&str>, caller: &Caller) -> Result<Value, Problem> {
        let asked = order_list::asked(query, caller.user()?)?;
        self.attempts.count_subjects(asked.1, &Subjects::none())?;
        self.list.answer(&self.following.now(), asked).await
    }

    async fn check(&self, request: Request<Incoming>, caller: &Caller) -> Result<(), Problem> {
        let wanted = self.wanted(request, caller).await?;
        if wanted.order.is_some() {
            return Err(ProblemKind::BadInput.because("a check has no `orderId`"));
        }
        self.following.admitting()?.ordering.check(wanted).await
    }

    /// Reads a request for an order, and counts its user and its subjects.
    async fn wanted(&self, request: Request<Incoming>, caller: &Caller) -> Result<Wanted, Problem> {
        let user = caller.user()?;
        let body = body::read(request, &[JSON], BODY_BYTES, self.settings.read_within).await?;
        let wanted = request::read(&body, user)?;
        self.attempts.count_subjects(wanted.user, &wanted.subjects)?;
        Ok(wanted)
    }

    async fn order(&self, request: Request<Incoming>, caller: &Caller) -> Result<Admitted, Problem> {
        let attributes = attributes(request.headers())?;
        let wanted = self.wanted(request, caller).await?;
        self.following.admitting()?.ordering.order(wanted, attributes).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_takes_little_memory_because_it_is_moved_for_each_request() {
        fn answer<'p, A>(_: impl FnOnce(&'p GatePages, Request<Incoming>, Caller) -> A) -> usize {
            size_of::<A>()
        }
        let bytes = answer(GatePages::answer);
        assert!(bytes <= 12 << 10, "{bytes} bytes");
    }
}
