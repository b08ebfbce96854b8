//! The state of webhooks, as Redis knows it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use fred::{
    interfaces::{KeysInterface, StreamsInterface},
    prelude::FredResult,
    types::Value,
};
use serde::Serialize;
use tidegate_orders::{
    RedisStore,
    webhook_notes::{self, GROUP_PREFIX, WebhookNotes, WebhookPause, WebhookSender, group_of},
};
use tidegate_stream::{EntryId, RedisError, StreamError, StreamNames, age_ms, inspect};

use crate::settings::{SystemSettings, WebhookSettings};

/// The results that a webhook has not sent yet, and the notes about the webhook.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookBacklog {
    /// The pause of the webhook; None: workers send its results.
    pub pause: Option<WebhookPause>,
    /// The number of results that were deleted before the webhook had read or sent them: of all kinds, because no worker
    /// has read most of them.
    pub lost: u64,
    /// The state of the worker that sends, or that sent last.
    pub sender: Option<WebhookSender>,
    /// The number of results that the webhook has read and not sent.
    pub pending: u64,
    /// The number of results that the webhook has not read. If Redis does not know the number, it is a lower bound.
    pub unread: u64,
    /// The age of the oldest result that was not sent, in seconds; None: all results were sent.
    pub oldest_unsent_s: Option<f64>,
    /// Whether the consumer group of the webhook exists.
    pub has_group: bool,
    /// The oldest result that the webhook has read and not sent; None: it has sent all that it has read.
    #[serde(skip)]
    pub oldest_pending: Option<EntryId>,
}

/// The present activity of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WebhookStatus {
    /// No result waits for a retry.
    Sending,
    /// Results wait for a retry, because the receiver did not accept them.
    Retrying,
    /// An operator, or an answer of the receiver, has paused the webhook.
    Paused,
    /// No worker has started with this webhook yet.
    NotStarted,
    /// The consumer group was lost. The next worker sends all results that are kept.
    GroupLost,
    /// The configuration has no such webhook any more, but its consumer group is left in Redis.
    NotConfigured,
}

impl WebhookStatus {
    /// The word for this state, for people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Sending => "sending",
            Self::Retrying => "retrying",
            Self::Paused => "paused",
            Self::NotStarted => "not started",
            Self::GroupLost => "group lost",
            Self::NotConfigured => "not configured",
        }
    }
}

/// One webhook with its state in one partition.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookView {
    /// The name of the webhook.
    pub name: String,
    /// The scheme and the host of the URL; None: the configuration has no such webhook.
    pub url: Option<String>,
    /// The states and kinds of the results that the webhook gets; empty: all results.
    pub kinds: Vec<&'static str>,
    /// The present activity of the webhook.
    pub state: WebhookStatus,
    /// The results that were not sent, and the notes about the webhook.
    #[serde(flatten)]
    pub backlog: WebhookBacklog,
}

impl WebhookBacklog {
    /// Reads the backlog of one webhook of the results stream `results`.
    ///
    /// # Errors
    /// If Redis does not answer or refuses.
    pub async fn read(redis: &RedisStore, results: &str, webhook: &str) -> Result<Self, StreamError> {
        let notes = webhook_notes::read(redis, webhook).await?;
        Self::with_notes(redis, results, webhook, notes).await
    }

    async fn with_notes(
        redis: &RedisStore,
        results: &str,
        webhook: &str,
        notes: WebhookNotes,
    ) -> Result<Self, StreamError> {
        let names =
            StreamNames { stream: results.to_owned(), dead: results.to_owned(), group: group_of(webhook) };
        let status = inspect(redis, &names).await?;
        let group = status.group.as_ref();
        let oldest = group.and_then(|group| match (group.oldest_pending, group.oldest_undelivered) {
            (Some(pending), Some(unread)) => Some(pending.min(unread)),
            (pending, unread) => pending.or(unread),
        });
        let WebhookNotes { pause, lost, sender } = notes;
        let mut backlog = Self {
            pause,
            lost,
            sender,
            pending: group.map_or(0, |group| group.pending),
            unread: group.map_or(0, |group| group.undelivered.number()),
            oldest_unsent_s: oldest.map(|id| Duration::from_millis(age_ms(status.now_ms, id)).as_secs_f64()),
            has_group: group.is_some(),
            oldest_pending: group.and_then(|group| group.oldest_pending),
        };
        if backlog.has_lost_group() {
            backlog.unread = status.length;
        }
        Ok(backlog)
    }

    /// Whether a worker has sent results of the webhook before, and its consumer group is missing. Then its position is
    /// lost, so the next worker sends all results that are kept.
    #[must_use]
    pub fn has_lost_group(&self) -> bool {
        !self.has_group && (self.sender.is_some() || self.lost > 0)
    }

    /// The number of unsent results, including results that the filter of the webhook leaves out.
    #[must_use]
    pub fn unsent(&self) -> u64 {
        self.pending + self.unread
    }

    /// The present activity of the webhook, if the configuration has it.
    #[must_use]
    pub fn state(&self) -> WebhookStatus {
        if self.pause.is_some() {
            return WebhookStatus::Paused;
        }
        if !self.has_group {
            return if self.has_lost_group() { WebhookStatus::GroupLost } else { WebhookStatus::NotStarted };
        }
        match &self.sender {
            Some(sender) if sender.retrying > 0 => WebhookStatus::Retrying,
            _ => WebhookStatus::Sending,
        }
    }
}

/// Reads all webhooks of a partition: those of the configuration, and those that left a consumer group or unsent results.
///
/// # Errors
/// If Redis does not answer or refuses.
pub async fn list(settings: &SystemSettings, redis: &RedisStore) -> Result<Vec<WebhookView>, StreamError> {
    let results = &settings.stream.results;
    let mut notes = webhook_notes::read_all(redis).await?;
    let mut views = Vec::new();
    for webhook in &*settings.results.webhooks {
        let notes = notes.remove(&webhook.name).unwrap_or_default();
        let backlog = WebhookBacklog::with_notes(redis, results, &webhook.name, notes).await?;
        views.push(WebhookView::of(webhook, backlog));
    }
    let with_group = groups(redis, results).await?;
    for name in with_group.into_iter().chain(notes.keys().cloned()).collect::<BTreeSet<_>>() {
        if settings.results.webhooks.iter().all(|webhook| webhook.name != name) {
            let notes = notes.remove(&name).unwrap_or_default();
            let backlog = WebhookBacklog::with_notes(redis, results, &name, notes).await?;
            if backlog.has_group || backlog.unsent() > 0 {
                views.push(WebhookView {
                    name,
                    url: None,
                    kinds: Vec::new(),
                    state: WebhookStatus::NotConfigured,
                    backlog,
                });
            }
        }
    }
    Ok(views)
}

impl WebhookView {
    fn of(webhook: &WebhookSettings, backlog: WebhookBacklog) -> Self {
        Self {
            name: webhook.name.clone(),
            url: Some(webhook.url.to_string()),
            kinds: webhook.kinds.words().to_vec(),
            state: backlog.state(),
            backlog,
        }
    }
}

/// Whether a worker has the lease of the webhook. Its configuration may differ from that of this process.
pub(crate) async fn has_sender(redis: &RedisStore, webhook: &str) -> FredResult<bool> {
    redis.pool().exists(redis.keys().fleet().webhook_sender(webhook)).await
}

/// The names of the webhooks that have a consumer group. Without a stream, there are none.
async fn groups(redis: &RedisStore, results: &str) -> Result<Vec<String>, RedisError> {
    let groups: Vec<BTreeMap<String, Value>> =
        match redis.pool().xinfo_groups(results).await.map_err(RedisError::from) {
            Err(error) if error.is_no_such_key() => Vec::new(),
            groups => groups?,
        };
    let names = groups.iter().filter_map(|group| group.get("name")?.as_string());
    Ok(names.filter_map(|group| group.strip_prefix(GROUP_PREFIX).map(str::to_owned)).collect())
}
