//! Pausing and resuming the sale of one voucher.

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_orders::{
    Gate, Keys, VoucherId,
    gate::{Pause, Scope},
    sale,
};

use super::gate;
use crate::{
    config::Settings,
    connect,
    exit::Exit,
    operator::{Change, ChangeArgs, Job, Next, Plan, Report},
};

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
            "would_pause" => Next::Ask(format!("Pause the sale of voucher {}?", self.voucher)),
            "would_resume" => Next::Ask(format!("Go on with the sale of voucher {}?", self.voucher)),
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
pub async fn pause(settings: &Settings, voucher: VoucherId, args: &ChangeArgs) -> anyhow::Result<Exit> {
    let (gate, found) = look(settings, voucher).await?;
    let (outcome, sentence) = match (found.pause, found.stock) {
        (Pause::Paused(Scope::Own), _) => ("paused_before", "its sale was paused before"),
        (Pause::Paused(Scope::All), _) => {
            ("would_pause", "its sale is paused with all others, and would stay paused when they go on")
        }
        (Pause::Running, None) => ("no_stock", "Redis has no stock of it; nothing was changed"),
        (Pause::Running, Some(_)) => ("would_pause", "its sale would be paused"),
    };
    let plan = Answer { voucher, outcome, stock: found.stock, sentence };
    let work = async |plan: Answer, _job: &Job| {
        gate.pause(plan.voucher, Scope::Own).await.context("Failed to pause the sale")?;
        Ok(Answer { outcome: "paused", sentence: "its sale is paused", ..plan })
    };
    Change::new(settings, args).run(plan, work).await
}

/// Ends the pause of a sale, however it was paused.
pub async fn resume(settings: &Settings, voucher: VoucherId, args: &ChangeArgs) -> anyhow::Result<Exit> {
    let (gate, found) = look(settings, voucher).await?;
    let (outcome, sentence) = match (found.pause, found.stock) {
        (Pause::Paused(_), _) => ("would_resume", "its sale would go on"),
        (Pause::Running, None) => ("no_stock", "Redis has no stock of it; nothing was changed"),
        (Pause::Running, Some(_)) => ("not_paused", "its sale was not paused"),
    };
    let plan = Answer { voucher, outcome, stock: found.stock, sentence };
    let work = async |plan: Answer, _job: &Job| {
        gate.resume(plan.voucher, Scope::Own).await.context("Failed to end the pause of the sale")?;
        Ok(Answer { outcome: "resumed", sentence: "its sale is not paused any more", ..plan })
    };
    Change::new(settings, args).run(plan, work).await
}

/// What a pause needs to know.
struct Sale {
    stock: Option<i64>,
    pause: Pause,
}

/// Reads no more than that: what else is wrong with a voucher must not be in the way of whoever stops its sale.
async fn look(settings: &Settings, voucher: VoucherId) -> anyhow::Result<(Gate, Sale)> {
    let redis = connect::redis(settings).await?;
    let gate = gate(settings, &redis);
    let stocks = sale::read_stocks(&redis, &Keys::new(settings.keys.clone()), &[voucher]).await;
    let stock = stocks.context("Failed to read the stock in Redis")?.pop().flatten();
    let pause = gate.read_pauses(&[voucher]).await.pop().unwrap_or(Ok(Pause::Running));
    let pause = pause.context("Failed to read the pause in Redis")?;
    Ok((gate, Sale { stock, pause }))
}
