//! `tidegate consumers remove`: removes dead consumers, after others have taken what they hold.

use std::time::Duration;

use anyhow::Context;
use clap::{ArgGroup, Args};
use fred::clients::Pool;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_orders::{Keys, keys::process_of};
use tidegate_stream::Retirer;
use tokio::time::{Instant, sleep};

use crate::{
    config::Settings,
    connect,
    exit::Exit,
    handover::{Handover, LOOK_EVERY, Offered},
    moment,
    operator::{Change, ChangeArgs, Ending, Job, Next, Plan, Report},
    output::counted,
    pending::{printable, shell_word},
    roster::{Member, Roster},
};

const EXAMPLES: &str = "\
Examples:
  tidegate consumers remove --dead --dry-run
  tidegate consumers remove shop-7-0 shop-7-1
  tidegate consumers remove c1 --wait 5m --yes

First hands over what they hold, as `tidegate pending claim` does, and waits until workers have taken it; then each is removed,
in one step with a last look that it holds nothing and does not live. Whoever lives is refused. Where entries are pending and
no living worker reads the stream, nothing is done: start one. What could not be removed within --wait stays, with exit code 1, and nothing of
it is lost. Ctrl-C ends it with 6; the same command again goes on.

Workers remove dead, empty consumers by themselves after worker.retire_idle_ms.";

/// What `tidegate consumers remove` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("whom").required(true).args(["names", "dead"]))]
pub struct ConsumersRemoveArgs {
    /// Whom
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// All whose process has no heartbeat
    #[arg(long)]
    dead: bool,
    /// How long to wait until workers have taken what they hold
    #[arg(long, value_name = "SPAN", value_parser = moment::parse_span, default_value = "2m")]
    wait: Duration,
    #[command(flatten)]
    change: ChangeArgs,
}

/// What was found.
#[derive(Debug, Serialize)]
struct Outlook {
    group: String,
    /// Whom to remove.
    consumers: Vec<Member>,
    /// Names that the group does not have.
    unknown: Vec<String>,
    /// Those of them that live: refused.
    living: Vec<String>,
    /// Entries that they hold.
    pending: u64,
    workers_live: bool,
}

impl Plan for Outlook {
    fn text(&self) -> String {
        let Self { group, pending, .. } = self;
        if !self.unknown.is_empty() {
            return format!("Group {group} has no consumer {}.", printable(&self.unknown.join(", ")));
        }
        if !self.living.is_empty() {
            let living = printable(&self.living.join(", "));
            return format!("{living} lives, so nothing is done: stop its process (SIGTERM) first.");
        }
        if self.consumers.is_empty() {
            return format!("No consumer of group {group} is dead.");
        }
        let names: Vec<String> = self
            .consumers
            .iter()
            .map(|member| {
                format!("{}: {} pending", printable(&member.name), counted(member.pending, "entry"))
            })
            .collect();
        let names = names.join("\n");
        if self.is_stuck() {
            let pending = counted(*pending, "entry");
            return format!(
                "{names}\nNo living worker reads the stream and could take {pending}, so nothing is done: start one."
            );
        }
        names
    }

    fn next(&self) -> Next {
        if !self.unknown.is_empty() || !self.living.is_empty() || self.is_stuck() {
            return Next::Nothing(Exit::No);
        }
        if self.consumers.is_empty() {
            return Next::Nothing(Exit::Ok);
        }
        let first = match self.pending {
            0 => String::new(),
            pending => format!(", after workers have taken {}", counted(pending, "entry")),
        };
        let consumers = counted(self.consumers.len() as u64, "consumer");
        Next::Ask(format!("Remove {consumers} of group {}{first}?", self.group))
    }
}

impl Outlook {
    fn is_stuck(&self) -> bool {
        self.pending > 0 && !self.workers_live
    }
}

/// What was done.
#[derive(Debug, Default, Serialize)]
struct Removed {
    removed: Vec<String>,
    kept: Vec<Kept>,
    /// Entries that were offered to workers.
    handed_over: u64,
    stopped: bool,
    #[serde(skip)]
    go_on: String,
}

/// Who could not be removed.
#[derive(Debug, Serialize)]
struct Kept {
    consumer: String,
    pending: u64,
    alive: bool,
}

impl Report for Removed {
    fn text(&self) -> String {
        let mut lines = vec![format!("{} removed.", counted(self.removed.len() as u64, "consumer"))];
        if self.handed_over > 0 {
            lines.push(format!("{} handed over to workers.", counted(self.handed_over, "entry")));
        }
        lines.extend(self.kept.iter().map(|kept| {
            let consumer = printable(&kept.consumer);
            if kept.alive {
                return format!("{consumer} lives by now: it was not removed.");
            }
            let pending = counted(kept.pending, "entry");
            format!("{consumer} still has {pending} pending: it was not removed. See: tidegate pending list")
        }));
        lines.join("\n")
    }

    fn counts(&self) -> Json {
        json!({
            "removed": self.removed.len(),
            "kept": self.kept.len(),
            "handed_over": self.handed_over,
        })
    }

    fn ending(&self) -> Ending {
        match (self.kept.is_empty(), self.stopped) {
            (true, _) => Ending::Done,
            (false, true) => Ending::Stopped { go_on: self.go_on.clone() },
            (false, false) => Ending::Refused,
        }
    }
}

/// Removes consumers.
///
/// # Errors
/// When Redis cannot be reached, or the key holds no stream.
pub async fn run(settings: &Settings, args: &ConsumersRemoveArgs) -> anyhow::Result<Exit> {
    let redis = connect::redis(settings).await?;
    let removal = Removal {
        keys: Keys::new(settings.keys.clone()),
        handover: Handover::new(&redis, settings),
        // Whoever names it does not want to wait until it was not seen for an hour.
        retirer: Retirer::new(redis.clone(), settings.stream_names(), Duration::ZERO),
        redis,
        settings,
    };
    let plan = look(settings, args, &removal.roster().await?);
    let work = async |plan: Outlook, job: &Job| {
        job.progress.expect(plan.pending, "entries");
        let end = Instant::now() + args.wait;
        let mut done = Removed { go_on: go_on(args), ..Removed::default() };
        let mut offers = Vec::new();
        for member in &plan.consumers {
            offers.push(removal.handover.offer(&member.name, false, job).await?);
        }
        for (member, offer) in plan.consumers.iter().zip(offers) {
            done.handed_over += offer.offered + removal.wait_until_empty(offer, end, job).await?;
            if !job.is_stopped() && removal.remove(&member.name).await? {
                done.removed.push(member.name.clone());
                continue;
            }
            match removal.roster().await?.find(&member.name) {
                Some(left) => {
                    let (pending, alive) = (left.pending, left.alive);
                    done.kept.push(Kept { consumer: member.name.clone(), pending, alive });
                }
                // Somebody else has removed it meanwhile.
                None => done.removed.push(member.name.clone()),
            }
        }
        done.stopped = job.is_stopped();
        Ok(done)
    };
    Change::new(settings, &args.change).run(plan, work).await
}

fn look(settings: &Settings, args: &ConsumersRemoveArgs, roster: &Roster) -> Outlook {
    let is_meant =
        |member: &&Member| if args.dead { !member.alive } else { args.names.contains(&member.name) };
    let consumers: Vec<Member> = roster.members.iter().filter(is_meant).cloned().collect();
    let living = consumers.iter().filter(|member| member.alive);
    Outlook {
        group: settings.stream.group.clone(),
        unknown: args.names.iter().filter(|name| roster.find(name).is_none()).cloned().collect(),
        living: living.map(|member| member.name.clone()).collect(),
        pending: consumers.iter().map(|member| member.pending).sum(),
        workers_live: roster.has_life(),
        consumers,
    }
}

fn go_on(args: &ConsumersRemoveArgs) -> String {
    let names: Vec<String> = args.names.iter().map(|name| shell_word(name)).collect();
    let whom = if args.dead { "--dead".to_owned() } else { names.join(" ") };
    format!("tidegate consumers remove {whom}")
}

/// The steps of a removal.
struct Removal<'a> {
    redis: Pool,
    settings: &'a Settings,
    keys: Keys,
    handover: Handover,
    retirer: Retirer,
}

impl Removal<'_> {
    async fn roster(&self) -> anyhow::Result<Roster> {
        Roster::read(&self.redis, &self.keys, &self.settings.stream_names()).await
    }

    /// Waits until the consumer holds nothing, or the time is over, and offers what was too young for it before.
    /// Returns how many these were.
    async fn wait_until_empty(&self, mut last: Offered, end: Instant, job: &Job) -> anyhow::Result<u64> {
        let mut offered = 0;
        loop {
            let pending = self.roster().await?.find(&last.consumer).map_or(0, |member| member.pending);
            if pending == 0 || last.lives || job.is_stopped() || Instant::now() >= end {
                return Ok(offered);
            }
            if last.young > 0 {
                last = self.handover.offer(&last.consumer, false, job).await?;
                offered += last.offered;
            }
            tokio::select! {
                () = sleep(LOOK_EVERY) => {}
                () = job.stop.cancelled() => {}
            }
        }
    }

    /// False: it lives, holds something, or is not there.
    async fn remove(&self, consumer: &str) -> anyhow::Result<bool> {
        let heartbeat = self.keys.heartbeat(process_of(consumer));
        let removed = self.retirer.remove(consumer, heartbeat).await;
        removed.with_context(|| format!("Failed to remove {consumer}"))
    }
}
