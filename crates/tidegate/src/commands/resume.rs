//! `tidegate resume`: an operator ends what `tidegate pause` began.

use anyhow::Context;
use clap::Args;
use fred::clients::Pool;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_orders::{
    Gate, Keys, VoucherId,
    gate::{GateError, Pause, Scope},
    sale,
};

use super::pause::{all::Changed, gate, names, voucher};
use crate::{
    config::Settings,
    connect,
    exit::Exit,
    fleet_pause::{self, FleetPause},
    operator::{Change, ChangeArgs, Ending, Job, Next, Plan, Progress, Report},
    output::counted,
};

/// Vouchers that are read in one round trip.
const STEP: usize = 100;

const EXAMPLES: &str = "\
Examples:
  tidegate resume
  tidegate resume --workers
  tidegate resume --voucher 7 --yes

Alone, it ends what `tidegate pause` and `tidegate pause --workers` began. A voucher that was paused by its own name stays
paused, also when it was among all others: say --voucher for that. Does nothing where nothing is paused. Exits with 1 where only
such vouchers are left, where Redis does not know the voucher, or where somebody paused the workers anew meanwhile.";

/// What `tidegate resume` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ResumeArgs {
    /// Only this voucher, however it was paused
    #[arg(long, value_name = "ID")]
    voucher: Option<VoucherId>,
    /// Only the workers
    #[arg(long, conflicts_with = "voucher")]
    workers: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

/// What was found.
#[derive(Debug, Default, Serialize)]
struct Found {
    /// The pause of all workers; it would end.
    workers: Option<FleetPause>,
    /// Vouchers that were paused together; they would go on.
    vouchers: Vec<VoucherId>,
    /// Vouchers that were paused by their own names; they stay paused.
    stay_paused: Vec<VoucherId>,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Resumed {
    /// `resumed`, `not_paused`, or `refused`: somebody has paused them anew meanwhile; `unknown`, where Redis did not
    /// answer.
    workers: &'static str,
    #[serde(flatten)]
    changed: Changed,
    stay_paused: Vec<VoucherId>,
}

impl Plan for Found {
    fn text(&self) -> String {
        let workers = self.workers.as_ref();
        let workers = workers.map(|pause| format!("the workers, paused {}, would go on", pause.origin()));
        let vouchers = (!self.vouchers.is_empty()).then(|| {
            format!("{} would go on: {}", counted(self.vouchers.len() as u64, "sale"), names(&self.vouchers))
        });
        let parts: Vec<String> =
            [workers, vouchers, stay_paused(&self.stay_paused)].into_iter().flatten().collect();
        if parts.is_empty() { "nothing is paused".to_owned() } else { parts.join("\n") }
    }

    fn next(&self) -> Next {
        let workers = self.workers.as_ref().map(|_| "the workers".to_owned());
        let sales = self.vouchers.len() as u64;
        let sales = (sales > 0).then(|| counted(sales, "sale"));
        let what: Vec<String> = [workers, sales].into_iter().flatten().collect();
        match what.is_empty() {
            true if self.stay_paused.is_empty() => Next::Nothing(Exit::Ok),
            true => Next::Nothing(Exit::No),
            false => Next::Ask(format!("Go on with {}?", what.join(" and "))),
        }
    }
}

impl Report for Resumed {
    fn text(&self) -> String {
        let workers = match self.workers {
            "resumed" => Some("the workers go on within a second".to_owned()),
            "refused" => Some("the workers: somebody has changed their pause meanwhile".to_owned()),
            "unknown" => Some("the workers: Redis did not say whether they go on".to_owned()),
            _ => None,
        };
        let vouchers = &self.changed.vouchers;
        let sales = (!vouchers.is_empty())
            .then(|| format!("{} on: {}", going(vouchers.len() as u64), names(vouchers)));
        let parts: Vec<String> =
            [workers, sales, stay_paused(&self.stay_paused)].into_iter().flatten().collect();
        if parts.is_empty() {
            return format!("no sale goes on{}", self.changed.failures());
        }
        format!("{}{}", parts.join("\n"), self.changed.failures())
    }

    fn counts(&self) -> Json {
        json!({
            "workers": u8::from(self.workers == "resumed"),
            "vouchers": self.changed.vouchers.len(),
            "failed": self.changed.failed.len(),
        })
    }

    fn ending(&self) -> Ending {
        if self.workers == "refused" { Ending::Refused } else { self.changed.ending() }
    }
}

fn going(sales: u64) -> String {
    format!("{} {}", counted(sales, "sale"), if sales == 1 { "goes" } else { "go" })
}

fn stay_paused(vouchers: &[VoucherId]) -> Option<String> {
    let named = names(vouchers);
    (!vouchers.is_empty())
        .then(|| format!("paused by name, until tidegate resume --voucher ID is typed for each: {named}"))
}

/// Ends pauses.
///
/// # Errors
/// When Redis cannot be reached or does not answer.
pub async fn run(settings: &Settings, args: &ResumeArgs) -> anyhow::Result<Exit> {
    if let Some(voucher) = args.voucher {
        return voucher::resume(settings, voucher, &args.change).await;
    }
    let (redis, keys) = (connect::redis(settings).await?, Keys::new(settings.keys.clone()));
    let gate = gate(settings, &redis);
    let mut plan = Found {
        workers: FleetPause::read(&redis, &keys).await.context("Failed to look at the workers' pause")?,
        ..Found::default()
    };
    if !args.workers {
        find_paused(&redis, &keys, &gate, &mut plan).await.context("Failed to look for paused vouchers")?;
    }
    let report = Resumed {
        workers: if plan.workers.is_some() { "unknown" } else { "not_paused" },
        changed: Changed::default(),
        stay_paused: plan.stay_paused.clone(),
    };
    let work = async |plan: Found, done: &mut Resumed, job: &Job| {
        if let Some(pause) = &plan.workers {
            let ended = fleet_pause::end(&redis, &keys, pause).await;
            done.workers = if ended.context("Failed to resume the workers")? { "resumed" } else { "refused" };
        }
        let resume = async |voucher| gate.resume(voucher, Scope::All).await;
        done.changed.all(&plan.vouchers, job, resume).await.context("Failed to go on with all sales")
    };
    Change::new(settings, &args.change).run_in_steps(plan, report, work).await
}

async fn find_paused(redis: &Pool, keys: &Keys, gate: &Gate, plan: &mut Found) -> anyhow::Result<()> {
    let progress = Progress::new();
    progress.expect(sale::count_keys(redis).await?, "keys looked at");
    let known = sale::find_known(redis, keys, |keys| progress.add(keys)).await?;
    for step in known.chunks(STEP) {
        for (voucher, pause) in step.iter().zip(gate.read_pauses(step).await) {
            match pause {
                Ok(Pause::Paused(Scope::All)) => plan.vouchers.push(*voucher),
                Ok(Pause::Paused(Scope::Own)) => plan.stay_paused.push(*voucher),
                Err(error @ GateError::Unreachable(_)) => return Err(error.into()),
                // A key of another type holds no pause.
                Ok(Pause::Running) | Err(_) => {}
            }
        }
    }
    Ok(())
}
