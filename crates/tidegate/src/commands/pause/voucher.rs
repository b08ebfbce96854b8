//! Pausing and resuming the sale of one voucher.

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_orders::{
    Gate, Keys, VoucherId,
    gate::{GateError, Pause, Scope},
    sale,
};

use tidegate_stream::readable;

use super::gate;
use crate::{
    config::Settings,
    connect,
    exit::Exit,
    operator::{Change, ChangeArgs, Job, Next, Plan, Report},
};

const NO_STOCK: &str = "Redis has no stock of it; nothing was changed";

/// What was found and, then, what was done.
#[derive(Debug, Serialize)]
struct Answer {
    voucher: VoucherId,
    /// `paused`, `paused_before`, `resumed`, `not_paused` or `no_stock`; of a dry run `would_pause` or `would_resume`.
    outcome: &'static str,
    /// Units left in Redis.
    stock: Option<i64>,
    #[serde(skip)]
    sentence: String,
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
    let (outcome, sentence) = match (found.pause, &found.stock) {
        (Pause::Paused(Scope::Own), _) => ("paused_before", "its sale was paused before".to_owned()),
        (Pause::Paused(Scope::All), _) => (
            "would_pause",
            "its sale is paused with all others, and would stay paused when they go on".to_owned(),
        ),
        (Pause::Running, Ok(None)) => ("no_stock", NO_STOCK.to_owned()),
        (Pause::Running, Ok(Some(_))) => ("would_pause", "its sale would be paused".to_owned()),
        // Nobody can buy it now, but somebody will mend that key.
        (Pause::Running, Err(wrong)) => {
            ("would_pause", format!("its sale would be paused; its stock cannot be read: {wrong}"))
        }
    };
    let plan = Answer { voucher, outcome, stock: found.stock.ok().flatten(), sentence };
    let work = async |plan: Answer, _job: &Job| {
        gate.pause(plan.voucher, Scope::Own).await.context("Failed to pause the sale")?;
        Ok(Answer { outcome: "paused", sentence: "its sale is paused".to_owned(), ..plan })
    };
    Change::new(settings, args).run(plan, work).await
}

/// Ends the pause of a sale, however it was paused.
pub async fn resume(settings: &Settings, voucher: VoucherId, args: &ChangeArgs) -> anyhow::Result<Exit> {
    let (gate, found) = look(settings, voucher).await?;
    let (outcome, sentence) = match (found.pause, &found.stock) {
        (Pause::Paused(_), _) => ("would_resume", "its sale would go on".to_owned()),
        (Pause::Running, Ok(None)) => ("no_stock", NO_STOCK.to_owned()),
        (Pause::Running, Ok(Some(_))) => ("not_paused", "its sale was not paused".to_owned()),
        (Pause::Running, Err(wrong)) => {
            ("not_paused", format!("its sale was not paused; its stock cannot be read: {wrong}"))
        }
    };
    let plan = Answer { voucher, outcome, stock: found.stock.ok().flatten(), sentence };
    let work = async |plan: Answer, _job: &Job| {
        gate.resume(plan.voucher, Scope::Own).await.context("Failed to end the pause of the sale")?;
        Ok(Answer { outcome: "resumed", sentence: "its sale is not paused any more".to_owned(), ..plan })
    };
    Change::new(settings, args).run(plan, work).await
}

/// What a pause needs to know.
struct Sale {
    /// Or why it cannot be read: the key holds something else than a number.
    stock: Result<Option<i64>, String>,
    pause: Pause,
}

/// Reads no more than that: what else is wrong with a voucher must not be in the way of whoever stops its sale.
async fn look(settings: &Settings, voucher: VoucherId) -> anyhow::Result<(Gate, Sale)> {
    let redis = connect::redis(settings).await?;
    let gate = gate(settings, &redis);
    let stock = match sale::read_stock(&redis, &Keys::new(settings.keys.clone()), voucher).await {
        Ok(stock) => Ok(stock),
        Err(error) => match GateError::from(error) {
            GateError::Refused(wrong) => Err(readable(wrong.details())),
            error => return Err(error).context("Failed to read the stock in Redis"),
        },
    };
    let pause = gate.read_pauses(&[voucher]).await.pop().unwrap_or(Ok(Pause::Running));
    let pause = pause.context("Failed to read the pause in Redis")?;
    Ok((gate, Sale { stock, pause }))
}
