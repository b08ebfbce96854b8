//! Notes about webhooks that all workers of a fleet share: pauses, unsent results that were deleted, and the state of
//! the worker that sends.

use std::collections::{BTreeMap, HashMap};

use fred::{interfaces::HashesInterface, prelude::FredResult};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::scripts::RedisStore;

/// The text before the name of a webhook in the name of its consumer group.
pub const GROUP_PREFIX: &str = "webhook:";

/// The suffixes of the fields in the hash, behind the name of the webhook.
const PAUSED: &str = ":paused";
const LOST: &str = ":lost";
const SENDER: &str = ":sender";

/// The consumer group with which a webhook reads the stream of results.
#[must_use]
pub fn group_of(webhook: &str) -> String {
    format!("{GROUP_PREFIX}{webhook}")
}

/// The pause of a webhook: while it lasts, no worker sends results to the webhook's URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookPause {
    /// The name of the operator or of the worker that paused the webhook.
    pub by: String,
    /// The reason for the pause, as a sentence for people.
    pub reason: String,
    /// The time when the pause began, in Unix milliseconds.
    pub at_ms: u64,
}

/// The state of the worker that sends the results of a webhook, as the worker last wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookSender {
    /// The name of the worker.
    pub worker: String,
    /// The time when the worker wrote this state, in Unix milliseconds.
    pub at_ms: u64,
    /// The time when the receiver last accepted a result, in Unix milliseconds.
    pub sent_ms: Option<u64>,
    /// The number of results that were refused at least once, and that the worker sends again.
    pub retrying: usize,
    /// The last error, as a text for people.
    pub error: Option<String>,
    /// The time of the last error, in Unix milliseconds.
    pub error_ms: Option<u64>,
}

/// All notes about one webhook in one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookNotes {
    /// The pause of the webhook; None: workers send its results.
    pub pause: Option<WebhookPause>,
    /// The number of results, of all kinds, that were deleted before the webhook had read or sent them.
    pub lost: u64,
    /// The state of the worker that sends, or that sent last.
    pub sender: Option<WebhookSender>,
}

/// Reads the notes about all webhooks of a partition, by the name of the webhook.
///
/// # Errors
/// If Redis does not answer or refuses.
pub async fn read_all(redis: &RedisStore) -> FredResult<BTreeMap<String, WebhookNotes>> {
    let fields: HashMap<String, String> = redis.pool().hgetall(redis.keys().fleet().webhooks()).await?;
    let mut all = BTreeMap::<String, WebhookNotes>::new();
    for (field, value) in fields {
        let Some((name, kind)) = field.rsplit_once(':') else { continue };
        let notes = all.entry(name.to_owned()).or_default();
        match kind {
            "paused" => notes.pause = Some(pause_of(&value)),
            "lost" => notes.lost = value.parse().unwrap_or(0),
            "sender" => notes.sender = parsed(&value),
            _ => {}
        }
    }
    Ok(all)
}

/// Reads the notes about one webhook.
///
/// # Errors
/// As [`read_all`].
pub async fn read(redis: &RedisStore, webhook: &str) -> FredResult<WebhookNotes> {
    let fields = [PAUSED, LOST, SENDER].map(|suffix| format!("{webhook}{suffix}")).to_vec();
    let values: Vec<Option<String>> = redis.pool().hmget(redis.keys().fleet().webhooks(), fields).await?;
    let mut values = values.into_iter();
    let mut next = || values.next().flatten();
    Ok(WebhookNotes {
        pause: next().map(|value| pause_of(&value)),
        lost: next().and_then(|value| value.parse().ok()).unwrap_or(0),
        sender: next().and_then(|value| parsed(&value)),
    })
}

/// Pauses a webhook for all workers. If the webhook is paused already, the first pause stays.
///
/// # Errors
/// As [`read_all`].
pub async fn pause(redis: &RedisStore, webhook: &str, pause: &WebhookPause) -> FredResult<()> {
    let (key, field) = (redis.keys().fleet().webhooks(), format!("{webhook}{PAUSED}"));
    redis.pool().hsetnx(key, field, json(pause)).await
}

/// Ends the pause of a webhook. Returns whether the webhook was paused.
///
/// # Errors
/// As [`read_all`].
pub async fn resume(redis: &RedisStore, webhook: &str) -> FredResult<bool> {
    redis.pool().hdel(redis.keys().fleet().webhooks(), format!("{webhook}{PAUSED}")).await
}

/// Writes the state of the worker that sends the results of a webhook.
///
/// # Errors
/// As [`read_all`].
pub async fn write_sender(redis: &RedisStore, webhook: &str, sender: &WebhookSender) -> FredResult<()> {
    let field = format!("{webhook}{SENDER}");
    redis.pool().hset(redis.keys().fleet().webhooks(), (field, json(sender))).await
}

/// Deletes all notes about a webhook.
///
/// # Errors
/// As [`read_all`].
pub async fn forget(redis: &RedisStore, webhook: &str) -> FredResult<()> {
    let fields = [PAUSED, LOST, SENDER].map(|suffix| format!("{webhook}{suffix}")).to_vec();
    redis.pool().hdel(redis.keys().fleet().webhooks(), fields).await
}

fn json(note: &impl Serialize) -> String {
    serde_json::to_string(note).expect("a note has only texts and numbers")
}

fn parsed<T: DeserializeOwned>(value: &str) -> Option<T> {
    serde_json::from_str(value).ok()
}

/// Reads a pause from its value. A value that an operator set manually is a pause, too.
fn pause_of(value: &str) -> WebhookPause {
    let manual = || WebhookPause { by: "an operator".to_owned(), reason: value.to_owned(), at_ms: 0 };
    parsed(value).unwrap_or_else(manual)
}
