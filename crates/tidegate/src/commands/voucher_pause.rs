//! `tidegate voucher pause` and `tidegate voucher resume`: an operator stops a sale, and ends that.

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_orders::{
    Gate, Keys, VoucherId,
    gate::{Pause, Scope, VoucherState},
};

use crate::{
    config::Settings,
    connect,
    exit::Exit,
    operator::{Change, ChangeArgs, Job, Next, Plan, Report},
};

const PAUSE_EXAMPLES: &str = "\
Examples:
  tidegate voucher pause --voucher 7
  tidegate voucher pause --voucher 7 --json

Whoever asks for an order is refused with reply 7 from now on; what was admitted is written. Pausing twice does no harm.
Exits with 1, changing nothing, where Redis has no stock of the voucher.";

const RESUME_EXAMPLES: &str = "\
Examples:
  tidegate voucher resume --voucher 7
  tidegate voucher resume --voucher 7 --json

Does nothing where the sale is not paused. Exits with 1 where Redis does not know the voucher.";

/// What `tidegate voucher pause` takes.
#[derive(Args, Debug)]
#[command(after_help = PAUSE_EXAMPLES)]
pub struct VoucherPauseArgs {
    /// The voucher
    #[arg(long, value_name = "ID")]
    voucher: VoucherId,
    #[command(flatten)]
    change: ChangeArgs,
}

/// What `tidegate voucher resume` takes.
#[derive(Args, Debug)]
#[command(after_help = RESUME_EXAMPLES)]
pub struct VoucherResumeArgs {
    /// The voucher
    #[arg(long, value_name = "ID")]
    voucher: VoucherId,
    #[command(flatten)]
    change: ChangeArgs,
}

/// What was found and, then, what was done.
#[derive(Debug, Serialize)]
struct Answer {
    voucher: VoucherId,
    /// `paused`, `paused_before`, `resumed`, `not_paused` or `no_stock`; of a dry run `would_pause` or `would_resume`.
    outcome: &'static str,
    /// Units left in Redis.
    stock: Option<i64>,
    #[serde(skip)]
    sentence: &'static str,
}

impl Plan for Answer {
    fn text(&self) -> String {
        format!("voucher {}: {}", self.voucher, self.sentence)
    }

    fn next(&self) -> Next {
        match self.outcome {
            // A sale that goes wrong must be stopped at once, and going on with it can be undone: nobody is asked.
            "would_pause" | "would_resume" => Next::Go,
            "no_stock" => Next::Nothing(Exit::No),
            _ => Next::Nothing(Exit::Ok),
        }
    }
}

impl Report for Answer {
    fn text(&self) -> String {
        Plan::text(self)
    }

    fn counts(&self) -> Json {
        json!({ "vouchers": 1 })
    }
}

/// Stops the sale.
///
/// # Errors
/// When Redis cannot be reached or does not answer.
pub async fn pause(settings: &Settings, args: &VoucherPauseArgs) -> anyhow::Result<Exit> {
    let (gate, sale) = look(settings, args.voucher).await?;
    let (outcome, sentence) = match (sale.pause, sale.stock) {
        (Pause::Paused(_), _) => ("paused_before", "its sale was paused before"),
        (Pause::Running, None) => ("no_stock", "Redis has no stock of it; nothing was changed"),
        (Pause::Running, Some(_)) => ("would_pause", "its sale would be paused"),
    };
    let plan = Answer { voucher: args.voucher, outcome, stock: sale.stock, sentence };
    let work = async |plan: Answer, _job: &Job| {
        gate.pause(plan.voucher, Scope::Own).await.context("Failed to pause the sale")?;
        Ok(Answer { outcome: "paused", sentence: "its sale is paused", ..plan })
    };
    Change::new(settings, &args.change).run(plan, work).await
}

/// Ends the pause of a sale.
///
/// # Errors
/// When Redis cannot be reached or does not answer.
pub async fn resume(settings: &Settings, args: &VoucherResumeArgs) -> anyhow::Result<Exit> {
    let (gate, sale) = look(settings, args.voucher).await?;
    let (outcome, sentence) = match (sale.pause, sale.stock) {
        (Pause::Paused(_), _) => ("would_resume", "its sale would go on"),
        (Pause::Running, None) => ("no_stock", "Redis has no stock of it; nothing was changed"),
        (Pause::Running, Some(_)) => ("not_paused", "its sale was not paused"),
    };
    let plan = Answer { voucher: args.voucher, outcome, stock: sale.stock, sentence };
    let work = async |plan: Answer, _job: &Job| {
        gate.resume(plan.voucher, Scope::Own).await.context("Failed to end the pause of the sale")?;
        Ok(Answer { outcome: "resumed", sentence: "its sale is not paused any more", ..plan })
    };
    Change::new(settings, &args.change).run(plan, work).await
}

async fn look(settings: &Settings, voucher: VoucherId) -> anyhow::Result<(Gate, VoucherState)> {
    let redis = connect::redis(settings).await?;
    let gate = Gate::new(redis, Keys::new(settings.keys.clone()), settings.stream.name.as_str());
    let sale = gate.read_voucher(voucher).await.context("Failed to read the voucher in Redis")?;
    Ok((gate, sale))
}
