//! Pausing the sales of all vouchers.

use anyhow::Context;
use fred::clients::Pool;
use futures_util::future::join_all;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_orders::{
    Gate, Keys, VoucherId,
    gate::{GateError, Pause, Scope},
    sale,
};

use super::{gate, names};
use crate::{
    config::Settings,
    connect,
    exit::Exit,
    operator::{Change, ChangeArgs, End, Ending, Job, Next, Plan, Progress, Report},
    output::counted,
};

/// Vouchers that are changed in one round trip; a signal is obeyed between two.
const STEP: usize = 100;

/// What was found.
#[derive(Debug, Serialize)]
struct Sales {
    /// These would be paused.
    running: Vec<VoucherId>,
    /// These are paused already, and stay as they are.
    paused_before: Vec<VoucherId>,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Paused {
    #[serde(flatten)]
    changed: Changed,
    paused_before: Vec<VoucherId>,
}

/// What became of many vouchers.
#[derive(Debug, Default, Serialize)]
pub struct Changed {
    /// They are as they should be now.
    pub vouchers: Vec<VoucherId>,
    /// Redis refused these.
    pub failed: Vec<FailedVoucher>,
}

/// A voucher that could not be changed.
#[derive(Debug, Serialize)]
pub struct FailedVoucher {
    voucher: VoucherId,
    error: String,
}

impl Plan for Sales {
    fn text(&self) -> String {
        let before = paused_before(&self.paused_before);
        if self.running.is_empty() {
            return format!("no voucher is on sale in Redis{before}");
        }
        let sales = counted(self.running.len() as u64, "sale");
        format!("{sales} would be paused: {}{before}", names(&self.running))
    }

    fn next(&self) -> Next {
        match self.running.len() as u64 {
            0 if self.paused_before.is_empty() => Next::Nothing(Exit::No),
            0 => Next::Nothing(Exit::Ok),
            sales => Next::Ask(format!("Pause {}?", counted(sales, "sale"))),
        }
    }
}

impl Report for Paused {
    fn text(&self) -> String {
        let sales = counted(self.changed.vouchers.len() as u64, "sale");
        let before = paused_before(&self.paused_before);
        format!("{sales} paused: {}{before}{}", names(&self.changed.vouchers), self.changed.failures())
    }

    fn counts(&self) -> Json {
        json!({ "vouchers": self.changed.vouchers.len(), "failed": self.changed.failed.len() })
    }

    fn ending(&self) -> Ending {
        self.changed.ending()
    }
}

impl Changed {
    /// Changes vouchers one after the other, some of them at a time, until a signal comes.
    ///
    /// # Errors
    /// When Redis does not answer any more. What it has answered by then is told.
    pub async fn all(
        &mut self,
        vouchers: &[VoucherId],
        job: &Job,
        change: impl AsyncFn(VoucherId) -> Result<bool, GateError>,
    ) -> Result<End, GateError> {
        job.progress.expect(vouchers.len() as u64, "vouchers");
        for step in vouchers.chunks(STEP) {
            if job.is_stopped() {
                return Ok(End::Stopped);
            }
            let answers = join_all(step.iter().map(|voucher| change(*voucher))).await;
            let mut outage = None;
            for (voucher, answer) in step.iter().zip(answers) {
                match answer {
                    Ok(true) => self.vouchers.push(*voucher),
                    // Somebody else has changed it meanwhile.
                    Ok(false) => {}
                    Err(error @ GateError::Unreachable(_)) => outage = Some(error),
                    Err(error) => {
                        self.failed.push(FailedVoucher { voucher: *voucher, error: error.to_string() });
                    }
                }
            }
            if let Some(error) = outage {
                return Err(error);
            }
            job.progress.add(step.len() as u64);
        }
        Ok(End::Whole)
    }

    /// The vouchers that could not be changed, in sentences.
    pub fn failures(&self) -> String {
        let failed = self.failed.iter();
        failed.map(|failed| format!("\nvoucher {}: {}", failed.voucher, failed.error)).collect()
    }

    /// How the command ended.
    pub fn ending(&self) -> Ending {
        if self.failed.is_empty() { Ending::Done } else { Ending::Refused }
    }
}

fn paused_before(vouchers: &[VoucherId]) -> String {
    match vouchers.len() as u64 {
        0 => String::new(),
        count => format!("\n{} paused before: {}", counted(count, "sale"), names(vouchers)),
    }
}

/// Stops the sales of all vouchers that have a stock in Redis.
pub async fn pause(settings: &Settings, args: &ChangeArgs) -> anyhow::Result<Exit> {
    let redis = connect::redis(settings).await?;
    let gate = gate(settings, &redis);
    let plan = look(&redis, settings, &gate).await.context("Failed to look for the vouchers in Redis")?;
    let report = Paused { changed: Changed::default(), paused_before: plan.paused_before.clone() };
    let work = async |plan: Sales, done: &mut Paused, job: &Job| {
        let pause = async |voucher| gate.pause(voucher, Scope::All).await;
        done.changed.all(&plan.running, job, pause).await.context("Failed to pause all sales")
    };
    Change::new(settings, args).run_in_steps(plan, report, work).await
}

async fn look(redis: &Pool, settings: &Settings, gate: &Gate) -> anyhow::Result<Sales> {
    let (keys, progress) = (Keys::new(settings.keys.clone()), Progress::new());
    progress.expect(sale::count_keys(redis).await?, "keys looked at");
    let loaded = sale::find_loaded(redis, &keys, |keys| progress.add(keys)).await?;
    let mut sales = Sales { running: Vec::new(), paused_before: Vec::new() };
    for step in loaded.chunks(STEP) {
        for (voucher, pause) in step.iter().zip(gate.read_pauses(step).await) {
            match pause {
                Ok(Pause::Paused(_)) => sales.paused_before.push(*voucher),
                Err(error @ GateError::Unreachable(_)) => return Err(error.into()),
                // What cannot be read is tried all the same: that tells why.
                Ok(Pause::Running) | Err(_) => sales.running.push(*voucher),
            }
        }
    }
    Ok(sales)
}
