//! The handler that sends a batch of results to the URL of a webhook: one after the other, until a result waits for a
//! retry. From then on, a call without an answer delays other results for twice [`PATIENCE`] at most.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

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
    sync::{Semaphore, oneshot},
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
/// The largest number of calls that run at once while results wait for a retry.
const CALLS: usize = 32;
/// The time that a batch waits for the answer to one of these calls, and before it for room to make the call.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time that a call may still take after the worker was stopped.
const STOP_PATIENCE: Duration = Duration::from_secs(2);
const AGENT: &str = concat!("tidegate/", env!("CARGO_PKG_VERSION"));

/// The handler of one webhook in one partition.
pub struct WebhookHandler {
    caller: Arc<WebhookCaller>,
    /// The places of calls that run. A call keeps its place when its batch has ended.
    places: Arc<Semaphore>,
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
    /// The calls that may have no answer when their batch ends.
    pub(super) late: Mutex<LateResults>,
}

/// The results whose calls may outlive their batches: those whose call runs, and those that the receiver accepted after
/// the end of the batch. The accepted ones are acknowledged at their retry, without another call.
#[derive(Debug, Default)]
pub struct LateResults {
    open: BTreeSet<EntryId>,
    accepted: BTreeSet<EntryId>,
}

impl Handler for WebhookHandler {
    /// Sends each result of the batch, in stream order and one at a time until a result waits for a retry. An error of
    /// one result keeps no other result from being sent.
    async fn handle(&self, batch: &[Entry]) -> Result<Handled, Outage> {
        let (mut outcomes, mut entries) = (Vec::with_capacity(batch.len()), batch.iter());
        while self.holds_order()
            && let Some(entry) = entries.next()
        {
            outcomes.push(match self.caller.wanted(entry) {
                Ok(result) => self.caller.call(entry.id, result).await,
                Err(outcome) => outcome,
            });
        }
        let together = entries.map(async |entry| match self.caller.wanted(entry) {
            Ok(result) => self.call_with_patience(entry.id, result).await,
            Err(outcome) => outcome,
        });
        outcomes.extend(join_all(together).await);
        Ok(outcomes.into())
    }
}

impl WebhookHandler {
    pub fn new(caller: WebhookCaller) -> Self {
        Self { caller: Arc::new(caller), places: Arc::new(Semaphore::new(CALLS)) }
    }

    /// Whether results are sent in stream order, because none waits for a retry.
    fn holds_order(&self) -> bool {
        !self.caller.state.is_retrying() && self.places.available_permits() == CALLS
    }

    /// Sends a result, and waits for the answer during [`PATIENCE`]. A call without an answer goes on.
    async fn call_with_patience(&self, id: EntryId, result: PublishedResult) -> Outcome {
        let place = timeout(PATIENCE, Arc::clone(&self.places).acquire_owned()).await;
        // The semaphore is never closed.
        let Ok(Ok(place)) = place else { return Outcome::SetAside(NOT_ACCEPTED) };
        let (caller, (answered, mut answer)) = (Arc::clone(&self.caller), oneshot::channel());
        caller.late().open.insert(id);
        let call = async move {
            let outcome = caller.call(id, result).await;
            caller.note_end(id, outcome, answered);
            drop(place);
        };
        tokio::spawn(call.in_current_span());
        if let Ok(Ok(outcome)) = timeout(PATIENCE, &mut answer).await {
            return outcome;
        }
        // From here on, the call notes its outcome itself.
        answer.close();
        answer.try_recv().unwrap_or(Outcome::SetAside(NOT_ACCEPTED))
    }

    /// Waits until no call runs any more. Calls end soon after the worker must send nothing more.
    pub async fn end(&self) {
        let all = u32::try_from(CALLS).unwrap_or(u32::MAX);
        let _all = self.places.acquire_many(all).await;
    }
}

impl WebhookCaller {
    /// The result to send for an entry, or the outcome of an entry that needs no call now.
    fn wanted(&self, entry: &Entry) -> Result<PublishedResult, Outcome> {
        {
            let mut late = self.late();
            if late.accepted.remove(&entry.id) {
                return Err(Outcome::Done);
            }
            if late.open.contains(&entry.id) || self.ended.is_cancelled() {
                return Err(Outcome::SetAside(NOT_ACCEPTED));
            }
        }
        match PublishedResult::read(entry, &self.kinds) {
            Ok(Some(result)) => Ok(result),
            Ok(None) => Err(Outcome::Done),
            Err(error) => {
                tracing::error!(entry = %entry.id, %error, "an entry is no result of an order, so the webhook does not send it");
                self.state.end(entry.id, Attempt::Unreadable);
                Err(Outcome::Done)
            }
        }
    }

    async fn call(&self, id: EntryId, result: PublishedResult) -> Outcome {
        if self.ended.is_cancelled() {
            return Outcome::SetAside(NOT_ACCEPTED);
        }
        self.state.begin(id);
        let (attempt, error) = match self.send(result).await {
            Some(Ok(status)) if status.is_success() => {
                self.state.end(id, Attempt::Delivered);
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
        self.state.fail(id, attempt, error);
        Outcome::SetAside(NOT_ACCEPTED)
    }

    /// Tells the batch the outcome of a call. If the batch has ended, notes an accepted result for its retry.
    fn note_end(&self, id: EntryId, outcome: Outcome, batch: oneshot::Sender<Outcome>) {
        let mut late = self.late();
        late.open.remove(&id);
        if batch.send(outcome) == Err(Outcome::Done) {
            let oldest = self.state.backlog().and_then(|backlog| backlog.oldest_pending);
            // Deleted results have no retry.
            late.accepted.retain(|accepted| oldest.is_none_or(|oldest| *accepted >= oldest));
            late.accepted.insert(id);
        }
    }

    fn late(&self) -> MutexGuard<'_, LateResults> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a result to the receiver. None: the worker was stopped before the receiver answered.
    async fn send(&self, result: PublishedResult) -> Option<Result<StatusCode, String>> {
        let id = webhook_id(&result);
        let body = Bytes::from(String::from(result.json));
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
