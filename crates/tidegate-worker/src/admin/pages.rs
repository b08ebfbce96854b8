//! The pages: which path shows what, and to whom.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use hyper::{
    Method, Request, StatusCode,
    body::Bytes,
    header::{ALLOW, AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE},
};
use secrecy::ExposeSecret;
use serde::Serialize;
use subtle::ConstantTimeEq;
use tidegate_stream::{breaker::State, has_group};
use tokio::time::Instant;

use tidegate_operations::{
    status::Status,
    text::error_chain,
    within::{in_time, until},
};

use super::{
    answer::{Answer, JSON, TEXT, answer},
    order_watch::OrderWatch,
    orders::OrderPages,
};
use crate::{
    cached::Cached,
    gather::{Gatherer, STORES},
    metrics,
    view::{Parts, Phase, View, WorkerView},
};

/// As long, the stores' last word on whether they answer is taken for their present one.
const READY_FRESH_FOR: Duration = Duration::from_secs(1);
/// A store that needs longer to answer does not.
const READY_PATIENCE: Duration = Duration::from_secs(2);

const INDEX: &str = "\
/livez    200 while the lanes turn; 503 names what is stuck
/readyz   200 when both stores answer and the group is there; 503 says why not
/metrics  for Prometheus
/status   as JSON: what `tidegate status --json` shows, and what each lane does
/orders/ID         as JSON: what became of an order; ?voucher= saves a search
/orders/ID/events  the same as server-sent events
";

/// Answers requests.
#[derive(Debug)]
pub struct Pages {
    view: Arc<View>,
    gatherer: Gatherer,
    stores: Cached<Vec<String>>,
    orders: OrderPages,
}

/// `/status`.
#[derive(Serialize)]
struct Everything<'a> {
    worker: WorkerView,
    #[serde(flatten)]
    status: &'a Status,
}

impl Pages {
    /// Of what `view` shows and `watch` sees.
    pub fn new(view: Arc<View>, watch: Arc<OrderWatch>) -> Self {
        let orders = OrderPages::new(Arc::clone(&view), watch);
        let gatherer = Gatherer::new(Arc::clone(&view));
        Self { gatherer, view, stores: Cached::new(READY_FRESH_FOR), orders }
    }

    /// Answers a request. Its body is not looked at.
    pub async fn answer<B>(&self, request: Request<B>) -> Answer {
        if !self.may_look(&request) {
            let mut answer =
                text(StatusCode::UNAUTHORIZED, "send `Authorization: Bearer` with admin.token\n");
            answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return answer;
        }
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "GET or HEAD\n");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        match request.uri().path() {
            "/" => text(StatusCode::OK, INDEX),
            "/livez" => verdict("alive", &self.view.stuck()),
            "/readyz" => verdict("ready", &self.unready().await),
            "/metrics" => self.metrics().await,
            "/status" => self.status().await,
            path => match path.strip_prefix("/orders/") {
                Some(order) => self.orders.answer(order, request.uri(), request.headers()).await,
                None => text(StatusCode::NOT_FOUND, INDEX),
            },
        }
    }

    fn may_look<B>(&self, request: &Request<B>) -> bool {
        let Some(token) = &self.view.settings().admin.token else { return true };
        let sent = request.headers().get(AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
        let Some((scheme, sent)) = sent.split_at_checked("Bearer ".len()) else { return false };
        // In the same time, however much of it is right.
        scheme.eq_ignore_ascii_case(b"Bearer ") && sent.ct_eq(token.expose_secret().as_bytes()).into()
    }

    async fn metrics(&self) -> Answer {
        let gathered = self.gatherer.gather().await;
        written(metrics::CONTENT_TYPE, metrics::render(&self.view, &gathered))
    }

    async fn status(&self) -> Answer {
        let gathered = self.gatherer.gather().await;
        let everything = Everything { worker: self.view.worker(), status: &gathered.status };
        written(JSON, serde_json::to_string_pretty(&everything).context("Failed to write JSON"))
    }

    /// Why nothing can be written now; empty if it can.
    async fn unready(&self) -> Vec<String> {
        let parts = match (self.view.phase(), self.view.parts()) {
            (Phase::Stopping, _) => return vec!["stopping: what is in hand is finished".to_owned()],
            (Phase::Starting, _) | (_, None) => {
                return vec![
                    "starting: waits for Redis, its consumer group or the name of the worker".to_owned(),
                ];
            }
            (Phase::Running, Some(parts)) => parts.clone(),
        };
        if let State::Open { since, outage } = parts.breaker.state() {
            return vec![format!(
                "{outage}; nothing has been read for {:.1} s",
                since.elapsed().as_secs_f64()
            )];
        }
        let view = Arc::clone(&self.view);
        let troubles = self.stores.get(async move {
            let (redis, mysql) = tokio::join!(ask_redis(&view, &parts), ask_mysql(&parts));
            [redis, mysql].into_iter().filter_map(Result::err).map(|error| error_chain(&error)).collect()
        });
        troubles.await.to_vec()
    }
}

async fn ask_redis(view: &View, parts: &Parts) -> anyhow::Result<()> {
    let [redis, _] = STORES;
    let names = view.settings().system.stream_names();
    let asked = async { Ok(has_group(&parts.redis, &names).await?) };
    let has_group = in_time(redis, READY_PATIENCE, asked).await.context(redis)?;
    anyhow::ensure!(has_group, "the consumer group {:?} of {:?} is missing", names.group, names.stream);
    Ok(())
}

async fn ask_mysql(parts: &Parts) -> anyhow::Result<()> {
    let [_, mysql] = STORES;
    let end = Instant::now() + READY_PATIENCE;
    let connected = async { Ok(parts.mysql.acquire().await?) };
    let mut session = in_time(mysql, until(end), connected).await.context(mysql)?;
    let pinged = async { Ok(sqlx::Connection::ping(&mut *session).await?) };
    let pinged = in_time(mysql, until(end), pinged).await;
    if pinged.is_err() {
        // The answer may still come, and would be taken for that to another question.
        session.close_on_drop();
    }
    pinged.context(mysql)
}

/// 200 with the word, or 503 with what is wrong.
fn verdict(word: &str, troubles: &[String]) -> Answer {
    if troubles.is_empty() {
        return text(StatusCode::OK, format!("{word}\n"));
    }
    text(StatusCode::SERVICE_UNAVAILABLE, format!("not {word}\n{}\n", troubles.join("\n")))
}

fn written(content_type: &'static str, page: anyhow::Result<String>) -> Answer {
    match page {
        Ok(page) => answer(StatusCode::OK, content_type, page),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}\n")),
    }
}

fn text(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    answer(status, TEXT, text)
}
