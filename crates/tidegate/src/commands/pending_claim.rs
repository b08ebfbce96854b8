//! `tidegate pending claim`: hands what a consumer holds over to the workers that live, at once.

use std::{collections::BTreeSet, time::Duration};

use clap::{ArgGroup, Args};
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_orders::Keys;
use tidegate_stream::{EntryId, Offer};
use tokio::time::{Instant, sleep};

use crate::{
    config::Settings,
    connect,
    exit::Exit,
    handover::{Handover, Offered, Offering, looks},
    moment,
    operator::{Change, ChangeArgs, End, Ending, Job, Next, Plan, Report},
    output::counted,
    pending::printable,
    roster::{Member, Roster},
};

const EXAMPLES: &str = "\
Examples:
  tidegate pending claim --dead --dry-run
  tidegate pending claim --dead --yes --wait 1m
  tidegate pending claim --consumer shop-7-0 --consumer shop-7-1

Workers claim what has lain untouched for worker.claim_idle_ms. This command offers it to them
now: the next scan of any lane takes it, within worker.claim_every_ms. Until then, the entries
belong to their old consumer. No failure and no delivery is counted. Nothing is lost if no
living worker reads the stream.

An entry that was in hand less than worker.lock_lease_ms ago is left, because the locks of its
worker may still stand. Type the command again later. This does not apply to entries that were
set aside.

A consumer whose process lives is refused: it works on what it holds, or tries it again. --force
offers its entries all the same. Use it for a lane that hangs, or that a restart with fewer
lanes has left behind. What such a lane has in hand is handled twice, which writes no order
twice.

--wait waits until all entries were taken, and exits with 1 if they were not. Ctrl-C ends it
with 6.";

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
#[derive(Debug, Default, Serialize)]
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
    #[serde(skip)]
    taken_within_s: f64,
    #[serde(skip)]
    young_for_s: f64,
}

impl Claimed {
    fn add(&mut self, step: &Offer) {
        self.offered += step.offered;
        self.young += step.young;
        self.gone += step.gone;
        if let Some(now) = self.consumers.last_mut() {
            now.offered += step.offered;
            now.before += step.before;
            now.young += step.young;
            now.gone += step.gone;
        }
    }
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
        let is_any_left = self.young > 0 || self.left.is_some_and(|left| left > 0);
        match (is_any_left, self.consumers.iter().any(|consumer| consumer.lives)) {
            (true, _) => Ending::Left,
            (false, true) => Ending::Refused,
            (false, false) => Ending::Done,
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
    let report = Claimed {
        workers_live: plan.workers_live,
        taken_within_s: plan.taken_within_s,
        young_for_s: settings.worker.lock_lease.as_secs_f64(),
        ..Claimed::default()
    };
    let work = async |plan: Outlook, done: &mut Claimed, job: &Job| {
        job.progress.expect(plan.pending, "entries");
        for member in &plan.consumers {
            done.consumers.push(Offered { consumer: member.name.clone(), ..Offered::default() });
            match handover.offer(&member.name, args.force, job, |step| done.add(step)).await? {
                Offering::Whole => {}
                Offering::Lives => done.consumers.last_mut().into_iter().for_each(|now| now.lives = true),
                Offering::Stopped => return Ok(End::Stopped),
            }
        }
        let Some(wait) = args.wait else { return Ok(End::Whole) };
        wait_until_taken(&handover, &plan.consumers, wait, job).await?;
        let mut left = 0;
        for member in &plan.consumers {
            left += handover.on_offer(&member.name).await?;
        }
        done.left = Some(left);
        Ok(if left > 0 && job.is_stopped() { End::Stopped } else { End::Whole })
    };
    Change::new(settings, &args.change).run_in_steps(plan, report, work).await
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

/// Waits until nothing of theirs is on offer, or the time is over, or the job is stopped.
async fn wait_until_taken(
    handover: &Handover,
    consumers: &[Member],
    wait: Duration,
    job: &Job,
) -> anyhow::Result<()> {
    let (end, mut looks) = (Instant::now() + wait, looks());
    for member in consumers {
        // Workers take the oldest first: what was taken needs no second look.
        let mut first = EntryId::MIN;
        while let Some(offered) = handover.first_on_offer(&member.name, first).await? {
            first = offered;
            if job.is_stopped() || Instant::now() >= end {
                return Ok(());
            }
            job.stop.run_until_cancelled(sleep(looks.next_wait())).await;
        }
    }
    Ok(())
}
