//! The handler that sends a batch of results to the URL of a webhook: one after the other, until a result waits for a
//! retry. From then on, a call without an answer delays no other result.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::future::join_all;
use hyper::{
    HeaderMap, StatusCode,
    body::Bytes,
    header::{CONTENT_TYPE, HeaderValue, USER_AGENT},
};
use standardwebhooks::{HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP};
use tidegate_orders::{
    PublishedResult, RedisStore, ResultFilter,
    publisher::now_ms,
    webhook_notes::{self, WebhookPause},
};
use tidegate_stream::{Cause, Entry, EntryId, Handled, Handler, Outage, Outcome};
use tokio::{
    sync::{Mutex, Semaphore},
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{
    client::Client,
    signer::{Signer, webhook_id},
    state::{Attempt, WebhookState},
};

/// The cause for which results wait that the receiver did not accept.
const NOT_ACCEPTED: Cause = Cause::new("webhook", 0);
/// The number of calls at once, after a result waits for a retry.
const CALLS: usize = 8;
/// The time that a batch waits for the answer to one of these calls.
const PATIENCE: Duration = Duration::from_secs(1);
/// The number of calls for which no batch waits any more.
const LATE_CALLS: usize = 24;
/// The time that a call may still take after the worker was stopped.
const STOP_PATIENCE: Duration = Duration::from_secs(2);
const AGENT: &str = concat!("tidegate/", env!("CARGO_PKG_VERSION"));

/// The handler of one webhook in one partition.
pub struct WebhookHandler {
    pub(super) caller: Arc<WebhookCaller>,
    /// The calls that had no answer when their batch ended. A retry takes the outcome.
    pub(super) late: Mutex<BTreeMap<EntryId, JoinHandle<Outcome>>>,
}

/// The caller of a webhook's receiver.
pub struct WebhookCaller {
    pub(super) redis: RedisStore,
    pub(super) kinds: ResultFilter,
    pub(super) signer: Arc<Signer>,
    pub(super) client: Client,
    pub(super) state: Arc<WebhookState>,
    /// The name of this worker.
    pub(super) worker: String,
    /// Cancelled when this worker must send nothing more.
    pub(super) ended: CancellationToken,
}

impl Handler for WebhookHandler {
    /// Sends each result of the batch, in stream order and one at a time until a result waits for a retry. An error of
    /// one result keeps no other result from being sent.
    async fn handle(&self, batch: &[Entry]) -> Result<Handled, Outage> {
        let (mut outcomes, mut entries) = (Vec::with_capacity(batch.len()), batch.iter());
        while self.holds_order().await
            && let Some(entry) = entries.next()
        {
            outcomes.push(self.handle_within(Duration::MAX, entry).await);
        }
        let places = &Semaphore::new(CALLS);
        let together = entries.map(|entry| async move {
            let _place = places.acquire().await;
            let has_room = self.open_calls().await < LATE_CALLS;
            self.handle_within(if has_room { PATIENCE } else { Duration::MAX }, entry).await
        });
        outcomes.extend(join_all(together).await);
        if self.holds_order().await {
            self.caller.client.keep_one().await;
        }
        Ok(outcomes.into())
    }
}

impl WebhookHandler {
    /// Whether results are sent in stream order, because none waits for a retry.
    async fn holds_order(&self) -> bool {
        self.caller.state.retrying().is_empty() && self.open_calls().await == 0
    }

    async fn open_calls(&self) -> usize {
        self.late.lock().await.values().filter(|call| !call.is_finished()).count()
    }

    /// Sends a result, and waits for the outcome during `patience`.
    async fn handle_within(&self, patience: Duration, entry: &Entry) -> Outcome {
        const NO_PANIC: &str = "a call does not panic";
        let mut late = self.late.lock().await.remove(&entry.id);
        if let Some(ended) = late.take_if(|call| call.is_finished())
            && ended.await.expect(NO_PANIC) == Outcome::Done
        {
            return Outcome::Done;
        }
        let call = || Arc::clone(&self.caller).handle_one(entry.clone()).in_current_span();
        let mut call = late.unwrap_or_else(|| tokio::spawn(call()));
        if let Ok(outcome) = timeout(patience, &mut call).await {
            return outcome.expect(NO_PANIC);
        }
        self.late.lock().await.insert(entry.id, call);
        Outcome::SetAside(NOT_ACCEPTED)
    }
}

impl WebhookCaller {
    async fn handle_one(self: Arc<Self>, entry: Entry) -> Outcome {
        if self.ended.is_cancelled() {
            return Outcome::SetAside(NOT_ACCEPTED);
        }
        let result = match PublishedResult::read(&entry) {
            Ok(result) if self.kinds.include(&result) => result,
            Ok(_) => return Outcome::Done,
            Err(error) => {
                tracing::error!(entry = %entry.id, %error, "an entry is no result of an order, so the webhook does not send it");
                self.state.end(entry.id, Attempt::Unreadable);
                return Outcome::Done;
            }
        };
        self.state.begin(entry.id);
        let (attempt, error) = match self.send(result).await {
            Some(Ok(status)) if status.is_success() => {
                self.state.end(entry.id, Attempt::Delivered);
                return Outcome::Done;
            }
            Some(Ok(StatusCode::GONE)) => {
                self.pause().await;
                (Attempt::Gone, "the receiver answered 410".to_owned())
            }
            Some(Ok(status)) => (Attempt::Failed, format!("the receiver answered {}", status.as_u16())),
            Some(Err(error)) => (Attempt::Failed, error),
            None => return Outcome::SetAside(NOT_ACCEPTED),
        };
        self.state.fail(entry.id, attempt, error);
        Outcome::SetAside(NOT_ACCEPTED)
    }

    /// Sends a result to the receiver. None: the worker was stopped before the receiver answered.
    async fn send(&self, result: PublishedResult) -> Option<Result<StatusCode, String>> {
        let id = webhook_id(&result);
        let body = Bytes::from(result.json);
        let headers = self.headers(&id, &body);
        tokio::select! {
            status = self.client.post(&headers, &body) => Some(status.map_err(|error| error.to_string())),
            () = async { self.ended.cancelled().await; sleep(STOP_PATIENCE).await } => None,
        }
    }

    fn headers(&self, id: &str, body: &[u8]) -> HeaderMap {
        let timestamp_s = i64::try_from(now_ms() / 1000).unwrap_or(i64::MAX);
        let value = |text: String| HeaderValue::from_str(&text).expect("ids, digits and base64 are ASCII");
        let mut headers = HeaderMap::new();
        headers.insert(HEADER_WEBHOOK_ID, value(id.to_owned()));
        headers.insert(HEADER_WEBHOOK_TIMESTAMP, value(timestamp_s.to_string()));
        headers.insert(HEADER_WEBHOOK_SIGNATURE, value(self.signer.sign(id, timestamp_s, body)));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        headers
    }

    /// Ends all sending of this worker, and pauses the webhook for all workers. If Redis does not answer, the next attempt
    /// does this.
    async fn pause(&self) {
        self.ended.cancel();
        let reason = "the receiver answered 410 (Gone)".to_owned();
        let pause = WebhookPause { by: format!("worker {}", self.worker), reason, at_ms: now_ms() };
        match webhook_notes::pause(&self.redis, &self.state.name, &pause).await {
            Ok(()) => tracing::error!(
                "the receiver of a webhook answered 410: the webhook is paused until you type \
                 `tidegate webhooks --resume NAME`; see docs/runbook/webhooks.md"
            ),
            Err(error) => tracing::debug!(%error, "could not pause the webhook"),
        }
    }
}
