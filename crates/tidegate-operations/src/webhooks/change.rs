//! The changes of operators to a webhook: pause, resume, send again, and remove what a webhook left in Redis.

use anyhow::Context;
use fred::{interfaces::StreamsInterface, types::Value};
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_orders::{
    RedisStore,
    publisher::now_ms,
    webhook_notes::{self, WebhookPause, group_of},
};
use tidegate_stream::{EntryId, StreamInspector, StreamNames};

use super::list::{WebhookStatus, WebhookView, has_sender, list};
use crate::{
    change::{Next, Plan, Report},
    settings::SystemSettings,
};

/// A change of an operator to a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WebhookAction {
    /// Workers send no results to the webhook until it is resumed.
    Pause,
    /// Workers send results to the webhook again.
    Resume,
    /// Workers send all results again, beginning with this entry of the results stream.
    Resend {
        /// The lowest entry id of a result that is sent again.
        from: EntryId,
    },
    /// The consumer group of a webhook that the configuration does not have any more is deleted, with all its notes.
    Remove,
}

/// The reason why a change of a webhook is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WebhookRefusal {
    /// There is no such webhook, neither in the configuration nor in Redis.
    Unknown,
    /// No worker has started with the webhook yet, so it has no consumer group.
    NotStarted,
    /// The configuration still has the webhook.
    Configured,
    /// A worker sends results to the webhook now: the configuration of the workers has it.
    InUse,
}

/// The plan of a change to a webhook.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookChangePlan {
    /// The name of the webhook.
    pub name: String,
    /// The change that the operator wants.
    pub action: WebhookAction,
    /// The reason why the change is not possible; None: it is possible.
    pub refusal: Option<WebhookRefusal>,
    /// Whether nothing is left to do.
    pub is_done: bool,
    /// The number of results that would be sent again: of all states and kinds, up to 10,000.
    pub results: u64,
    /// The number of results that would not be sent any more, because the consumer group is deleted.
    pub unsent: u64,
    /// The entry after which the webhook would read again.
    #[serde(skip)]
    after: Option<EntryId>,
}

/// The report of a change to a webhook.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookChangeReport {
    /// The name of the webhook.
    pub name: String,
    /// The change that the operator wants.
    pub action: WebhookAction,
    /// Whether the command has changed anything.
    pub is_changed: bool,
}

/// The number of results up to which the plan counts.
const COUNT_MAX: u64 = 10_000;
const COUNT_PAGE: u16 = 1_000;

impl Plan for WebhookChangePlan {
    fn next(&self) -> Next {
        match self.action {
            _ if self.refusal.is_some() => Next::Refused,
            _ if self.is_done => Next::NothingToDo,
            WebhookAction::Pause | WebhookAction::Resume => Next::Go,
            WebhookAction::Resend { .. } => Next::Ask(format!("Send these results to {} again?", self.name)),
            WebhookAction::Remove => Next::Ask(format!("Delete the consumer group of {}?", self.name)),
        }
    }
}

impl Report for WebhookChangeReport {
    fn counts(&self) -> Json {
        json!({ "changed": self.is_changed })
    }
}

/// The operation that changes one webhook in one partition.
#[derive(Debug)]
pub struct WebhookChange<'a> {
    settings: &'a SystemSettings,
    redis: &'a RedisStore,
    name: &'a str,
    action: WebhookAction,
}

impl<'a> WebhookChange<'a> {
    /// Creates the operation for the webhook `name` in this partition.
    #[must_use]
    pub fn new(
        settings: &'a SystemSettings,
        redis: &'a RedisStore,
        name: &'a str,
        action: WebhookAction,
    ) -> Self {
        Self { settings, redis, name, action }
    }

    /// Reads what the change would do.
    ///
    /// # Errors
    /// If Redis does not answer or refuses.
    pub async fn plan(&self) -> anyhow::Result<WebhookChangePlan> {
        let views = list(self.settings, self.redis).await.context("Failed to read the webhooks")?;
        let view = views.into_iter().find(|view| view.name == self.name);
        let mut plan = WebhookChangePlan {
            name: self.name.to_owned(),
            action: self.action,
            refusal: view.as_ref().map_or(Some(WebhookRefusal::Unknown), |view| self.refusal(view)),
            is_done: false,
            results: 0,
            unsent: view.as_ref().map_or(0, |view| view.backlog.unsent()),
            after: None,
        };
        let Some(view) = view.filter(|_| plan.refusal.is_none()) else { return Ok(plan) };
        if self.action == WebhookAction::Remove
            && has_sender(self.redis, self.name).await.context("Failed to read the lease")?
        {
            return Ok(WebhookChangePlan { refusal: Some(WebhookRefusal::InUse), ..plan });
        }
        let is_paused = view.backlog.pause.is_some();
        match self.action {
            WebhookAction::Pause => plan.is_done = is_paused,
            WebhookAction::Resume => plan.is_done = !is_paused,
            WebhookAction::Remove => {}
            WebhookAction::Resend { from } => {
                plan.after = self.position_before(from).await?;
                plan.is_done = plan.after.is_none();
                if let Some(after) = plan.after {
                    plan.results = self.count(after).await?;
                }
            }
        }
        Ok(plan)
    }

    fn refusal(&self, view: &WebhookView) -> Option<WebhookRefusal> {
        let is_configured = view.state != WebhookStatus::NotConfigured;
        match self.action {
            WebhookAction::Remove if is_configured => Some(WebhookRefusal::Configured),
            WebhookAction::Remove => None,
            _ if !is_configured => Some(WebhookRefusal::Unknown),
            WebhookAction::Resend { .. } if !view.backlog.has_group => Some(WebhookRefusal::NotStarted),
            _ => None,
        }
    }

    /// The entry after which the webhook has to read, so that it reads `from`; None: it reads `from` anyway. The
    /// position only ever moves back, so no result is skipped.
    async fn position_before(&self, from: EntryId) -> anyhow::Result<Option<EntryId>> {
        let last = self.last_delivered().await?;
        Ok((from <= last).then(|| from.previous()))
    }

    async fn last_delivered(&self) -> anyhow::Result<EntryId> {
        let results = &self.settings.stream.results;
        let groups: Vec<std::collections::BTreeMap<String, Value>> =
            self.redis.pool().xinfo_groups(results).await.context("Failed to read the results")?;
        let own = groups
            .iter()
            .find(|group| group.get("name").and_then(Value::as_string) == Some(group_of(self.name)));
        let last = own.and_then(|group| group.get("last-delivered-id")?.as_string()?.parse().ok());
        Ok(last.unwrap_or(EntryId::MIN))
    }

    async fn count(&self, after: EntryId) -> anyhow::Result<u64> {
        let results = self.settings.stream.results.clone();
        let last = self.last_delivered().await?;
        let names =
            StreamNames { stream: results.clone(), dead: results.clone(), group: group_of(self.name) };
        let inspector = StreamInspector::new(self.redis, names);
        let pages = inspector.entry_pages(&results, (after.next(), last), COUNT_PAGE);
        Ok(pages.count(COUNT_MAX, |_| {}).await?)
    }

    /// Makes the planned change of the webhook. `by` is the operator, and `reason` the reason of a pause.
    ///
    /// # Errors
    /// If Redis does not answer or refuses.
    pub async fn run(
        &self,
        plan: WebhookChangePlan,
        by: String,
        reason: Option<String>,
    ) -> anyhow::Result<WebhookChangeReport> {
        let (redis, name) = (self.redis, self.name);
        let is_changed = match self.action {
            WebhookAction::Pause => {
                let reason = reason.unwrap_or_else(|| "an operator paused it".to_owned());
                webhook_notes::pause(redis, name, &WebhookPause { by, reason, at_ms: now_ms() })
                    .await
                    .map(|()| true)
            }
            WebhookAction::Resume => webhook_notes::resume(redis, name).await,
            WebhookAction::Resend { .. } => self.set_position(plan.after).await,
            WebhookAction::Remove => self.remove().await,
        };
        let is_changed = is_changed.with_context(|| format!("Failed to change the webhook {name:?}"))?;
        Ok(WebhookChangeReport { name: plan.name, action: self.action, is_changed })
    }

    /// Moves the position of the group back. Results that are still to be sent stay pending, and others become unread.
    async fn set_position(&self, after: Option<EntryId>) -> fred::prelude::FredResult<bool> {
        let Some(after) = after else { return Ok(false) };
        let (results, group) = (&self.settings.stream.results, group_of(self.name));
        self.redis.pool().xgroup_setid::<(), _, _, _>(results, group, after.to_string()).await?;
        Ok(true)
    }

    async fn remove(&self) -> fred::prelude::FredResult<bool> {
        let results = &self.settings.stream.results;
        // The group may be lost already, and only the notes are left.
        let _destroyed: u64 = self.redis.pool().xgroup_destroy(results, group_of(self.name)).await?;
        webhook_notes::forget(self.redis, self.name).await?;
        Ok(true)
    }
}
