//! The command `tidegate webhooks`: shows the webhooks, and pauses, resumes or removes one, or sends results again.

use clap::Args;
use tidegate_compare::text::counted;
use tidegate_operations::{
    Stores,
    webhooks::{
        WebhookAction, WebhookChange, WebhookChangePlan, WebhookChangeReport, WebhookRefusal, WebhookStatus,
        WebhookView, list,
    },
};
use tidegate_stream::server_time_ms;

use crate::{
    exit::{Exit, WrongUsage},
    operator::{Change, ChangeArgs, PlanText, ReportText},
    output::table,
    scope::PartitionCommand,
    times::{self, Point},
};

const EXAMPLES: &str = "\
Examples:
  tidegate webhooks
  tidegate webhooks --pause shop --reason 'new receiver'
  tidegate webhooks --resume shop
  tidegate webhooks --resend shop --from -2h --dry-run
  tidegate webhooks --remove old-shop --yes --json

Without a flag, the command shows the webhooks of the configuration, and removed webhooks that are left in Redis: the
state, the number of results that are not sent, and the last error. `lost` is the number of results that workers deleted
(results.keep_ms, results.keep_bytes) before the webhook had sent or read them.

--resend sends all results since the time --from again. The receiver gets them with the same webhook-id as before.
--remove deletes the consumer group and the notes of a webhook that you removed from the configuration.
docs/webhooks.md describes webhooks.";

/// The arguments of `tidegate webhooks`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct WebhooksArgs {
    /// Stop sending results to this webhook, until it is resumed
    #[arg(long, value_name = "NAME", group = "action")]
    pause: Option<String>,
    /// End the pause of this webhook
    #[arg(long, value_name = "NAME", group = "action")]
    resume: Option<String>,
    /// Send the results since the time --from to this webhook again
    #[arg(long, value_name = "NAME", group = "action", requires = "from")]
    resend: Option<String>,
    /// Delete the consumer group and the notes of a webhook that is not configured any more
    #[arg(long, value_name = "NAME", group = "action")]
    remove: Option<String>,
    /// The time of the first result to send again, such as -2h
    #[arg(long, value_name = "TIME", requires = "resend", allow_hyphen_values = true, value_parser = times::parse_point)]
    from: Option<Point>,
    /// The reason for the pause, which the command shows later
    #[arg(long, value_name = "TEXT", requires = "pause")]
    reason: Option<String>,
    #[command(flatten)]
    change: ChangeArgs,
}

impl PartitionCommand for WebhooksArgs {
    /// Shows the webhooks, or changes one.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let redis = stores.redis().await?;
        let Some((name, action)) = self.action(server_time_ms(redis.pool()).await?) else {
            if self.change.is_dry_run() {
                return Err(
                    WrongUsage("--dry-run needs --pause, --resume, --resend or --remove".to_owned()).into()
                );
            }
            let views = list(stores.settings(), redis).await?;
            self.change.output().print(&views, text)?;
            return Ok(Exit::Ok);
        };
        let change = WebhookChange::new(stores.settings(), redis, name, action);
        let plan = change.plan().await?;
        let (who, reason) = (self.change.who(), self.reason.clone());
        let run = async |plan, _job: &_| change.run(plan, who, reason).await;
        Change::new(stores, &self.change).run(plan, run).await
    }
}

impl WebhooksArgs {
    fn action(&self, now_ms: u64) -> Option<(&str, WebhookAction)> {
        let resend = self.resend.as_deref().zip(self.from.as_ref());
        let resend = resend.map(|(name, from)| (name, WebhookAction::Resend { from: from.first(now_ms) }));
        let pause = self.pause.as_deref().map(|name| (name, WebhookAction::Pause));
        let resume = self.resume.as_deref().map(|name| (name, WebhookAction::Resume));
        let remove = self.remove.as_deref().map(|name| (name, WebhookAction::Remove));
        resend.or(pause).or(resume).or(remove)
    }
}

fn text(views: &Vec<WebhookView>) -> String {
    if views.is_empty() {
        return "There are no webhooks: add [[webhooks]] to the configuration (docs/webhooks.md)".to_owned();
    }
    let mut rows =
        table(&["webhook", "url", "kinds", "state", "pending", "unread", "oldest", "lost", "last error"]);
    for view in views {
        let backlog = &view.backlog;
        let kinds = if view.kinds.is_empty() { "all".to_owned() } else { view.kinds.join(" ") };
        let sender = backlog.sender.as_ref();
        rows.add_row([
            view.name.clone(),
            view.url.clone().unwrap_or_else(|| "-".to_owned()),
            kinds,
            view.state.word().to_owned(),
            backlog.pending.to_string(),
            backlog.unread.to_string(),
            backlog.oldest_unsent_s.map_or_else(|| "-".to_owned(), |age_s| format!("{age_s:.0} s")),
            backlog.lost.to_string(),
            sender.and_then(|sender| sender.error.clone()).unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    let notes = views.iter().filter_map(note).map(|note| format!("\n{note}"));
    format!("{rows}{}", notes.collect::<String>())
}

/// The sentence about a webhook that an operator should know more about.
fn note(view: &WebhookView) -> Option<String> {
    let name = &view.name;
    match (&view.backlog.pause, view.state) {
        (Some(pause), _) => Some(format!(
            "{name} is paused by {} since {} ({}): tidegate webhooks --resume {name}",
            pause.by,
            times::utc(i64::try_from(pause.at_ms).unwrap_or(i64::MAX)),
            pause.reason
        )),
        (None, WebhookStatus::NotConfigured) => Some(format!(
            "{name} is not in the configuration of this command. If workers have it, name their file (--config FILE). \
             Otherwise: tidegate webhooks --remove {name}"
        )),
        (None, WebhookStatus::NotStarted) => {
            Some(format!("{name}: no worker has started with this webhook yet"))
        }
        (None, WebhookStatus::GroupLost) => Some(format!(
            "{name}: its consumer group was lost, so the next worker sends all results that are kept"
        )),
        (None, WebhookStatus::Sending | WebhookStatus::Retrying | WebhookStatus::Paused) => None,
    }
}

impl PlanText for WebhookChangePlan {
    fn text(&self) -> String {
        let Self { name, action, .. } = self;
        if let Some(refusal) = self.refusal {
            return match refusal {
                WebhookRefusal::Unknown => format!("there is no webhook {name}: see tidegate webhooks"),
                WebhookRefusal::NotStarted => {
                    format!(
                        "webhook {name}: no worker has started with it yet, so there is nothing to send again"
                    )
                }
                WebhookRefusal::InUse => format!(
                    "a worker sends results to {name} now: remove it from the configuration of the workers, restart \
                     them, and try again"
                ),
                WebhookRefusal::Configured => format!(
                    "webhook {name}: the configuration still has it: remove it there and restart the workers first"
                ),
            };
        }
        match (action, self.is_done) {
            (WebhookAction::Pause, false) => format!("webhook {name}: workers would send no more results"),
            (WebhookAction::Pause, true) => format!("webhook {name}: is already paused"),
            (WebhookAction::Resume, false) => {
                format!("webhook {name}: workers would continue to send results")
            }
            (WebhookAction::Resume, true) => format!("webhook {name}: is not paused"),
            (WebhookAction::Resend { .. }, true) => {
                format!(
                    "webhook {name}: has not read any result from this time on yet, so it sends all of them"
                )
            }
            (WebhookAction::Resend { .. }, false) => format!(
                "webhook {name}: workers would send results again, with the same webhook-id as before \
                 ({} of all kinds; the count ends at 10,000)",
                counted(self.results, "result")
            ),
            (WebhookAction::Remove, _) => format!(
                "webhook {name}: its consumer group would be deleted; {} would never be sent",
                counted(self.unsent, "result")
            ),
        }
    }
}

impl ReportText for WebhookChangeReport {
    fn text(&self) -> String {
        let Self { name, action, is_changed } = self;
        let done = match (action, is_changed) {
            (_, false) => "nothing was changed",
            (WebhookAction::Pause, true) => "is paused; workers begin no new request after a second",
            (WebhookAction::Resume, true) => "is not paused any more",
            (WebhookAction::Resend { .. }, true) => "workers send the results again",
            (WebhookAction::Remove, true) => "its consumer group is deleted",
        };
        format!("webhook {name}: {done}")
    }
}
