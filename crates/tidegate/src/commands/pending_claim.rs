//! `tidegate pending claim`: hands what a consumer holds over to the workers that live, at once.

use std::{collections::BTreeSet, time::Duration};

use clap::{ArgGroup, Args};
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_orders::Keys;
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
  tidegate pending claim --dead --dry-run
  tidegate pending claim --dead --yes --wait 1m
  tidegate pending claim --consumer shop-7-0 --consumer shop-7-1

Workers claim what has lain untouched for worker.claim_idle_ms. This makes them claim it now: the entries are offered, and
the next scan of any lane takes them, within worker.claim_every_ms. Until then they belong to their old consumer; no failure
and no delivery is counted, and nothing is lost if no living worker reads the stream. An entry that was delivered less than
worker.lock_lease_ms ago is left: the locks of its worker may still stand. Type it again later.

A consumer whose process lives is refused: it works on what it holds. --force offers it all the same, for a lane that hangs
or that a restart with fewer lanes has left behind; what is in hand just then is handled twice, which writes no order twice.

With --wait it waits until all were taken, and exits with 1 where they were not. Ctrl-C ends it with 6.";

/// What `tidegate pending claim` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("whose").required(true).args(["consumers", "dead"]))]
pub struct PendingClaimArgs {
    /// Whose entries; may stand more than once
    #[arg(long = "consumer", value_name = "NAME")]
    consumers: Vec<String>,
    /// Those of all consumers whose process has no heartbeat
    #[arg(long)]
    dead: bool,
    /// Even of a consumer whose process lives, and what was delivered a moment ago
    #[arg(long, requires = "consumers")]
    force: bool,
    /// Wait until workers have taken them, but no longer than this, such as 1m
    #[arg(long, value_name = "SPAN", value_parser = moment::parse_span)]
    wait: Option<Duration>,
    #[command(flatten)]
    change: ChangeArgs,
}

/// What was found.
#[derive(Debug, Serialize)]
struct Outlook {
    /// Whose entries are meant.
    consumers: Vec<Member>,
    /// Names that the group does not have.
    unknown: Vec<String>,
    /// Entries that they hold.
    pending: u64,
    /// Consumers whose process lives: refused.
    living: Vec<String>,
    forced: bool,
    /// Somebody lives who could take them.
    workers_live: bool,
    /// How long a worker may take to look, at most.
    taken_within_s: f64,
}

impl Plan for Outlook {
    fn text(&self) -> String {
        if !self.unknown.is_empty() {
            return format!("The group has no consumer {}.", printable(&self.unknown.join(", ")));
        }
        if self.is_refused() {
            return format!(
                "{} lives and works on what it holds, so nothing is done. If a lane of it hangs or is not there any \
                 more, say --force; to take over from a living process, stop it (SIGTERM): it finishes what it has in \
                 hand.",
                printable(&self.living.join(", "))
            );
        }
        if self.pending == 0 {
            let dead =
                if self.consumers.is_empty() { "No consumer is dead: nothing" } else { "They hold nothing" };
            return format!("{dead} to claim.");
        }
        let each = self.consumers.iter().filter(|member| member.pending > 0);
        let each: Vec<String> = each
            .map(|member| format!("{}: {}", printable(&member.name), counted(member.pending, "entry")))
            .collect();
        let forced = if self.living.is_empty() {
            String::new()
        } else {
            let living = printable(&self.living.join(", "));
            format!("\n{living} lives: what it has in hand just now will be handled twice.")
        };
        format!("{}{forced}\n{}", each.join("\n"), outlook(self.workers_live, self.taken_within_s))
    }

    fn next(&self) -> Next {
        if !self.unknown.is_empty() || self.is_refused() {
            return Next::Nothing(Exit::No);
        }
        match self.pending {
            0 => Next::Nothing(Exit::Ok),
            pending => Next::Ask(format!("Offer {} to all workers?", counted(pending, "entry"))),
        }
    }
}

impl Outlook {
    fn is_refused(&self) -> bool {
        !self.living.is_empty() && !self.forced
    }
}

fn outlook(workers_live: bool, within_s: f64) -> String {
    if workers_live {
        format!("Workers that live take what is offered within about {within_s:.0} s, as fast as they write.")
    } else {
        "No living worker reads the stream: what is offered waits until one starts.".to_owned()
    }
}

/// What was done.
#[derive(Debug, Serialize)]
struct Claimed {
    consumers: Vec<Offered>,
    offered: u64,
    /// Delivered a moment ago, and left.
    young: u64,
    /// Without payload.
    gone: u64,
    /// Still on offer at the end; None: it was not waited for.
    left: Option<u64>,
    workers_live: bool,
    stopped: bool,
    #[serde(skip)]
    taken_within_s: f64,
    #[serde(skip)]
    young_for_s: f64,
    #[serde(skip)]
    go_on: String,
}

impl Report for Claimed {
    fn text(&self) -> String {
        let mut lines = vec![format!("{} offered to all workers.", counted(self.offered, "entry"))];
        let lives = self.consumers.iter().filter(|consumer| consumer.lives);
        lines.extend(lives.map(|consumer| {
            format!("{} lives by now: the rest of its entries was left to it.", printable(&consumer.consumer))
        }));
        if self.young > 0 {
            lines.push(format!(
                "{} left: delivered less than {:.0} s ago, the locks of their worker may still stand. Type it again \
                 later.",
                counted(self.young, "entry"),
                self.young_for_s
            ));
        }
        if self.gone > 0 {
            lines.push(format!(
                "{} without payload left: workers acknowledge them, and say so in their log.",
                counted(self.gone, "entry")
            ));
        }
        lines.push(match self.left {
            Some(0) => "Workers have taken all of them.".to_owned(),
            Some(left) => format!("{} not taken yet.", counted(left, "entry")),
            None => outlook(self.workers_live, self.taken_within_s),
        });
        lines.join("\n")
    }

    fn counts(&self) -> Json {
        json!({ "offered": self.offered, "young": self.young, "gone": self.gone })
    }

    fn ending(&self) -> Ending {
        if self.stopped {
            return Ending::Stopped { go_on: self.go_on.clone() };
        }
        let is_all_taken = self.left.is_none_or(|left| left == 0);
        if self.young == 0 && is_all_taken && self.consumers.iter().all(|consumer| !consumer.lives) {
            Ending::Done
        } else {
            Ending::Refused
        }
    }
}

/// Offers the entries.
///
/// # Errors
/// When Redis cannot be reached, or the key holds no stream.
pub async fn run(settings: &Settings, args: &PendingClaimArgs) -> anyhow::Result<Exit> {
    let redis = connect::redis(settings).await?;
    let (keys, names) = (Keys::new(settings.keys.clone()), settings.stream_names());
    let roster = Roster::read(&redis, &keys, &names).await?;
    let plan = look(settings, args, &roster);
    let handover = Handover::new(&redis, settings);
    let work = async |plan: Outlook, job: &Job| {
        job.progress.expect(plan.pending, "entries");
        let mut consumers = Vec::new();
        for member in &plan.consumers {
            consumers.push(handover.offer(&member.name, args.force, job).await?);
        }
        let left = match args.wait {
            Some(wait) => Some(wait_until_taken(&handover, &consumers, wait, job).await?),
            None => None,
        };
        let sum = |count: fn(&Offered) -> u64| consumers.iter().map(count).sum();
        Ok(Claimed {
            offered: sum(|consumer| consumer.offered),
            young: sum(|consumer| consumer.young),
            gone: sum(|consumer| consumer.gone),
            stopped: job.is_stopped() && left.is_none_or(|left| left > 0),
            left,
            workers_live: plan.workers_live,
            taken_within_s: plan.taken_within_s,
            young_for_s: settings.worker.lock_lease.as_secs_f64(),
            go_on: go_on(args),
            consumers,
        })
    };
    Change::new(settings, &args.change).run(plan, work).await
}

fn look(settings: &Settings, args: &PendingClaimArgs, roster: &Roster) -> Outlook {
    let named: BTreeSet<&String> = args.consumers.iter().collect();
    let is_meant = |member: &&Member| if args.dead { !member.alive } else { named.contains(&member.name) };
    let consumers: Vec<Member> = roster.members.iter().filter(is_meant).cloned().collect();
    let living = consumers.iter().filter(|member| member.alive && member.pending > 0);
    Outlook {
        unknown: named.into_iter().filter(|name| roster.find(name).is_none()).cloned().collect(),
        pending: consumers.iter().map(|member| member.pending).sum(),
        living: living.map(|member| member.name.clone()).collect(),
        forced: args.force,
        workers_live: roster.has_life(),
        taken_within_s: (settings.worker.claim_every + settings.worker.block).as_secs_f64(),
        consumers,
    }
}

async fn wait_until_taken(
    handover: &Handover,
    consumers: &[Offered],
    wait: Duration,
    job: &Job,
) -> anyhow::Result<u64> {
    let end = Instant::now() + wait;
    loop {
        let mut left = 0;
        for consumer in consumers {
            left += handover.on_offer(&consumer.consumer).await?;
        }
        if left == 0 || job.is_stopped() || Instant::now() >= end {
            return Ok(left);
        }
        tokio::select! {
            () = sleep(LOOK_EVERY) => {}
            () = job.stop.cancelled() => {}
        }
    }
}

fn go_on(args: &PendingClaimArgs) -> String {
    let mut words = vec!["tidegate pending claim".to_owned()];
    words.extend(args.consumers.iter().map(|name| format!("--consumer {}", shell_word(name))));
    words.extend(args.dead.then(|| "--dead".to_owned()));
    words.extend(args.force.then(|| "--force".to_owned()));
    words.extend(args.wait.map(|wait| format!("--wait {}ms", wait.as_millis())));
    words.join(" ")
}
