//! The admin pages: their paths, their content, and the clients that may read them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::Context;
use futures_util::future::join_all;
use hyper::{
    Method, Request, StatusCode,
    body::Bytes,
    header::{ALLOW, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE},
};
use serde::Serialize;
use serde_json::json;
use tidegate_compare::text::error_chain;
use tidegate_operations::{
    status::Status,
    within::{in_time, until},
};
use tidegate_stream::{breaker::State, has_group};
use tidegate_worker::{Parts, Phase, View, WorkerView};
use tokio::time::Instant;

use crate::{
    answer::{Answer, JSON, TEXT, answer},
    cached::Cached,
    gather::{Gathered, Gatherer, STORES},
    metrics,
    order_pages::{NoOrderPage, OrderPages, OrderWatch, Permits, Viewer},
    server::fault_of_head,
    server_sent::ClientEnd,
    settings::TokenScope,
    tokens::{Denied, Tokens},
    webhooks::WebhookState,
};

/// The time for which the server reuses the last answer of the stores about whether they are ready.
const READY_FRESH_FOR: Duration = Duration::from_secs(1);
/// The time that a store has to answer; a store that needs longer counts as not ready.
const READY_PATIENCE: Duration = Duration::from_secs(2);

/// The limits for order pages. They allow fewer queries than there are connections, so that probes always find room.
const ORDER_PERMITS: Permits = Permits { looks: 24, streams: 128 };

/// The pages that need no token: a probe has none, and they show no orders.
const PROBES: [&str; 2] = ["/livez", "/readyz"];

const INDEX: &str = "\
/livez    200 while all lanes (consumers) work; otherwise 503, with a list of what is stuck
/readyz   200 if at least one partition can write orders; otherwise 503, with the reasons
/metrics  the metrics for Prometheus
/status   JSON: the output of `tidegate status --json`, and the state of each lane
/orders/ID         JSON: the state of an order; with ?voucherId=ID, the answer is faster
/orders/ID/events  server-sent events: the present state of an order, then each change
";

/// The admin pages that this process serves over HTTP.
#[derive(Debug)]
pub struct AdminPages {
    partitions: Vec<PartitionPages>,
    webhooks: Vec<Arc<WebhookState>>,
    orders: OrderPages,
    tokens: Arc<Tokens>,
}

/// The data for the pages of one partition. A system without partitions has exactly one.
#[derive(Debug)]
struct PartitionPages {
    view: Arc<View>,
    gatherer: Gatherer,
    stores: Cached<Vec<String>>,
}

/// The JSON document of the page `/status`.
#[derive(Serialize)]
struct Everything<'a> {
    worker: WorkerView,
    #[serde(flatten)]
    status: &'a Status,
}

/// The JSON of `/status` in a system with partitions, by partition tag.
#[derive(Serialize)]
struct Partitions<'a> {
    partitions: BTreeMap<&'a str, Everything<'a>>,
}

impl AdminPages {
    /// Creates the admin pages for the worker states in `views` (at least one), and for the orders that `watch`
    /// follows. All pages but the probes need one of the tokens with the scope `read`.
    pub fn new(
        views: &[Arc<View>],
        webhooks: Vec<Arc<WebhookState>>,
        watch: Arc<OrderWatch>,
        tokens: Arc<Tokens>,
    ) -> Self {
        let orders = OrderPages::new(watch, ORDER_PERMITS, views[0].stop_token());
        Self { partitions: views.iter().map(PartitionPages::new).collect(), webhooks, orders, tokens }
    }

    /// Answers a request for an admin page, without reading the body of the request.
    pub async fn answer<B>(&self, request: Request<B>) -> Answer {
        if let Some(fault) = fault_of_head(&request) {
            return text(StatusCode::BAD_REQUEST, format!("{fault}\n"));
        }
        let path = request.uri().path();
        if !PROBES.contains(&path)
            && let Err(denied) = self.tokens.check(request.headers(), &[TokenScope::Read])
        {
            return no_access(denied);
        }
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "use GET or HEAD\n");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        match path {
            "/" => text(StatusCode::OK, INDEX),
            "/livez" => {
                let stuck = self.partitions.iter().flat_map(|own| own.named(own.view.stuck()));
                verdict("alive", &stuck.collect::<Vec<_>>())
            }
            "/readyz" => self.ready().await,
            "/metrics" => self.metrics().await,
            "/status" => self.status().await,
            path => match path.strip_prefix("/orders/") {
                Some(order) => {
                    // Here, hyper itself notices when a client closes its connection, so `closed` stays unused.
                    let end = ClientEnd { access: self.tokens.change(), ..ClientEnd::default() };
                    let viewer = Viewer { only: None, end };
                    let answered = self.orders.answer(order, request.uri(), request.headers(), viewer).await;
                    answered.unwrap_or_else(|why| no_order_page(&why))
                }
                None => text(StatusCode::NOT_FOUND, INDEX),
            },
        }
    }

    /// Gathers the data of all partitions, in their order. The partitions are asked at the same time, so that
    /// partitions that do not answer cost one timeout in all.
    async fn gather(&self) -> Vec<(&View, Arc<Gathered>)> {
        let gather = async |own: &PartitionPages| own.gatherer.gather().await;
        let gathered = join_all(self.partitions.iter().map(gather)).await;
        self.partitions.iter().map(|own| &*own.view).zip(gathered).collect()
    }

    async fn metrics(&self) -> Answer {
        written(metrics::CONTENT_TYPE, metrics::render(&self.gather().await, &self.webhooks))
    }

    async fn status(&self) -> Answer {
        let gathered = self.gather().await;
        let json = match &gathered[..] {
            [(view, whole)] if view.tag().is_none() => {
                serde_json::to_string_pretty(&Everything { worker: view.worker(), status: &whole.status })
            }
            all => {
                let by_tag = all.iter().filter_map(|(view, gathered)| {
                    Some((view.tag()?, Everything { worker: view.worker(), status: &gathered.status }))
                });
                serde_json::to_string_pretty(&Partitions { partitions: by_tag.collect() })
            }
        };
        written(JSON, json.context("Failed to write JSON"))
    }

    /// Answers `/readyz`. One partition that takes orders is enough: a partition that is away must not take working
    /// partitions out of service.
    async fn ready(&self) -> Answer {
        let unready = async |own: &PartitionPages| own.unready().await;
        let troubles = join_all(self.partitions.iter().map(unready)).await;
        if troubles.iter().any(Vec::is_empty) {
            let others = self.partitions.iter().zip(troubles).flat_map(|(own, troubles)| own.named(troubles));
            let others: String = others.map(|trouble| format!("not {trouble}\n")).collect();
            return text(StatusCode::OK, format!("ready\n{others}"));
        }
        let named = self.partitions.iter().zip(troubles).flat_map(|(own, troubles)| own.named(troubles));
        verdict("ready", &named.collect::<Vec<_>>())
    }
}

impl PartitionPages {
    fn new(view: &Arc<View>) -> Self {
        let (view, gatherer) = (Arc::clone(view), Gatherer::new(Arc::clone(view)));
        Self { view, gatherer, stores: Cached::new(READY_FRESH_FOR) }
    }

    /// The problems, each with the partition that it belongs to.
    fn named(&self, troubles: Vec<String>) -> Vec<String> {
        match self.view.tag() {
            Some(tag) => {
                troubles.into_iter().map(|trouble| format!("partition {{{tag}}}: {trouble}")).collect()
            }
            None => troubles,
        }
    }

    /// The reasons why this partition cannot write orders now; empty if it can.
    async fn unready(&self) -> Vec<String> {
        let parts = match (self.view.phase(), self.view.parts()) {
            (Phase::Stopping, _) => return vec!["stopping: finishing the work in progress".to_owned()],
            (Phase::Starting, _) | (_, None) => {
                return vec![
                    "starting: waiting for Redis, the consumer group or the lease of the worker's name"
                        .to_owned(),
                ];
            }
            (Phase::Running, Some(parts)) => parts.clone(),
        };
        if let State::Open { since, outage } = parts.breaker.state() {
            return vec![format!(
                "{outage}; the worker has read nothing for {:.1} s",
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
    anyhow::ensure!(
        has_group,
        "the consumer group {:?} of the stream {:?} is missing",
        names.group,
        names.stream
    );
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
        // The answer may still arrive, and would be taken for the answer to a later query.
        session.close_on_drop();
    }
    pinged.context(mysql)
}

fn no_access(denied: Denied) -> Answer {
    match denied {
        Denied::NoToken => {
            let told = "send `Authorization: Bearer TOKEN` with a token of the setting `tokens`\n";
            let mut answer = text(StatusCode::UNAUTHORIZED, told);
            answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            answer
        }
        Denied::NoScope(_) => text(StatusCode::FORBIDDEN, "the token lacks the scope `read`\n"),
    }
}

/// Answers 200 with the word, or 503 with the problems.
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

fn no_order_page(why: &NoOrderPage) -> Answer {
    let status = match why {
        NoOrderPage::BadQuestion(_) => StatusCode::BAD_REQUEST,
        NoOrderPage::TooMany | NoOrderPage::StoresAway(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    let mut answer = answer(status, JSON, json!({ "error": why.to_string() }).to_string());
    if status == StatusCode::SERVICE_UNAVAILABLE {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    answer
}

fn text(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    answer(status, TEXT, text)
}
