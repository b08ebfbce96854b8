//! `tidegate consumers remove`: removes dead consumers, after others have taken what they hold.

use std::time::Duration;

use anyhow::Context;
use clap::{ArgGroup, Args};
use fred::clients::Pool;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_orders::{Keys, keys::process_of};
use tidegate_stream::{Offer, Retirer};
use tokio::time::{Instant, sleep};

use crate::{
    config::Settings,
    connect,
    exit::Exit,
    handover::{Handover, Offering, looks},
    moment,
    operator::{Change, ChangeArgs, End, Ending, Job, Next, Plan, Report},
    output::counted,
    pending::printable,
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
        match (self.kept.is_empty(), self.kept.iter().all(|kept| kept.alive)) {
            (true, _) => Ending::Done,
            (false, true) => Ending::Refused,
            (false, false) => Ending::Left,
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
    let work = async |plan: Outlook, done: &mut Removed, job: &Job| {
        job.progress.expect(plan.pending, "entries");
        let end = Instant::now() + args.wait;
        let mut consumers = Vec::new();
        for member in &plan.consumers {
            let mut handing = Handing { consumer: &member.name, young: 0, lives: false };
            removal.offer(&mut handing, done, job).await?;
            consumers.push(handing);
        }
        for handing in &mut consumers {
            removal.wait_until_empty(handing, end, done, job).await?;
            if !job.is_stopped() && removal.remove(handing.consumer).await? {
                done.removed.push(handing.consumer.to_owned());
                continue;
            }
            match removal.roster().await?.find(handing.consumer) {
                Some(left) => {
                    let (pending, alive) = (left.pending, left.alive);
                    done.kept.push(Kept { consumer: handing.consumer.to_owned(), pending, alive });
                }
                // Somebody else has removed it meanwhile.
                None => done.removed.push(handing.consumer.to_owned()),
            }
        }
        Ok(if job.is_stopped() && !done.kept.is_empty() { End::Stopped } else { End::Whole })
    };
    Change::new(settings, &args.change).run_in_steps(plan, Removed::default(), work).await
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

/// A consumer whose entries are handed over.
struct Handing<'a> {
    consumer: &'a str,
    /// Entries that were too young for it, when it was looked at last.
    young: u64,
    lives: bool,
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

    /// Offers what the consumer holds.
    async fn offer(&self, handing: &mut Handing<'_>, done: &mut Removed, job: &Job) -> anyhow::Result<()> {
        handing.young = 0;
        let told = |step: &Offer| {
            handing.young += step.young;
            done.handed_over += step.offered;
        };
        handing.lives = self.handover.offer(handing.consumer, false, job, told).await? == Offering::Lives;
        Ok(())
    }

    /// Waits until the consumer holds nothing, or the time is over, and offers what was too young for it before.
    async fn wait_until_empty(
        &self,
        handing: &mut Handing<'_>,
        end: Instant,
        done: &mut Removed,
        job: &Job,
    ) -> anyhow::Result<()> {
        let mut looks = looks();
        while self.handover.holds_anything(handing.consumer).await? {
            if handing.lives || job.is_stopped() || Instant::now() >= end {
                break;
            }
            if handing.young > 0 {
                self.offer(handing, done, job).await?;
            }
            job.stop.run_until_cancelled(sleep(looks.next_wait())).await;
        }
        Ok(())
    }

    /// False: it lives, holds something, or is not there.
    async fn remove(&self, consumer: &str) -> anyhow::Result<bool> {
        let heartbeat = self.keys.heartbeat(process_of(consumer));
        let removed = self.retirer.remove(consumer, heartbeat).await;
        removed.with_context(|| format!("Failed to remove {consumer}"))
    }
}
