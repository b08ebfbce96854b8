//! The life of orders over HTTP: events that the gate takes, results that it shows to followers and to buyers, and
//! webhooks that workers send.

mod events;
mod receiver;
mod results;
mod server_sent;
mod webhooks;

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use tidegate_lab::MysqlFlavour;

use super::{
    admission::{Sale, open_sale, through_gate},
    drain::{FILLED, until_settled},
    fixture::{Fixture, GROUP, STREAM, Tables},
    machine::Machine,
    orders::Orders,
    sizes,
    workers::{Shape, Workers},
};

/// Orders that are admitted, and workers that wait for them.
struct WaitingSale {
    orders: Orders,
    workers: Workers,
    last: String,
}

impl WaitingSale {
    /// Admits orders of one voucher in an empty system. Then starts a worker with these settings, which does not see
    /// the orders before [`WaitingSale::drain`].
    async fn open(fixture: &mut Fixture, count: usize, settings: &[(&str, &str)]) -> Result<Self> {
        fixture.clear_tables(Tables::Fresh, 1).await?;
        let gate = open_sale(fixture).await?;
        let orders = fixture.numbers.take(count, 1);
        through_gate(&gate, Sale::Open, &orders).await?;
        fixture.redis.call(&["XGROUP", "CREATE", STREAM, GROUP, "0"]).await?;
        let last = newest(fixture).await?;
        fixture.redis.call(&["RENAME", STREAM, FILLED]).await?;
        let (redis, mysql) = (fixture.redis_server.url(), [fixture.url(Tables::Fresh)]);
        let workers = Workers::start_with(&fixture.program, Shape::DEFAULT, &redis, &mysql, settings).await?;
        Ok(Self { orders, workers, last })
    }

    /// Gives the worker the orders, and waits until all are written and acknowledged. Returns how long that took.
    async fn drain(&self, fixture: &mut Fixture) -> Result<Duration> {
        let began = Instant::now();
        fixture.redis.call(&["RENAME", FILLED, STREAM]).await?;
        until_settled(&mut fixture.redis, &self.last, 0).await.with_context(|| self.workers.logs())?;
        Ok(began.elapsed())
    }

    /// Checks that each order has a row, and stops the worker.
    async fn end(self, fixture: &Fixture) -> Result<()> {
        let (written, orders) =
            (fixture.count_written(Tables::Fresh, &self.orders).await?, self.orders.len());
        ensure!(written == orders as i64, "{orders} orders, {written} written: {}", self.workers.logs());
        self.workers.stop().await
    }
}

/// Returns the id of the newest entry of the stream of orders.
async fn newest(fixture: &mut Fixture) -> Result<String> {
    let newest = fixture.redis.call(&["XREVRANGE", STREAM, "+", "-", "COUNT", "1"]).await?;
    let id = newest.items().first().and_then(|entry| entry.items().first());
    Ok(id.context("The stream is empty")?.text().to_owned())
}

/// Measures everything, and writes `http.md` into `folder`.
pub async fn measure(program: &Path, folder: &Path, scale: f64) -> Result<()> {
    let size = |usual: usize, least: usize| ((usual as f64 * scale) as usize).max(least);
    let (rounds, machine) = (sizes::rounds(3, scale), Machine::look());
    let mut fixture = Fixture::open(MysqlFlavour::MariaDb, program.to_owned()).await?;
    let server = fixture.describe().await?;
    let mut text = format!(
        "# Over HTTP\n\nMade by `just bench`, or `just bench http`: {} cores, {}, Linux {}, {}, {}, commit {}; other programs kept {:.0} \
         % of the cores busy just before. Medians of {rounds} alternating rounds. The servers, the gate, the worker, all callers and all \
         receivers share the cores.\n",
        machine.cores,
        machine.cpu,
        machine.kernel,
        server.redis,
        server.mysql,
        super::machine::commit(),
        100.0 * machine.busy_before,
    );
    text += &events::measure(&mut fixture, size(100_000, 2_000), rounds).await?;
    text += &results::measure(&mut fixture, size(100_000, 1_000), rounds).await?;
    text += &webhooks::measure(&mut fixture, size(10_000, 200), rounds).await?;
    fs::create_dir_all(folder).with_context(|| format!("Failed to make {}", folder.display()))?;
    fs::write(folder.join("http.md"), &text).context("Failed to write http.md")?;
    println!("\n{text}\nhttp.md is in {}", folder.display());
    Ok(())
}

/// Adds a row to a table.
fn row(text: &mut String, name: &str, values: &[String]) {
    let _ = writeln!(text, "| {name} | {} |", values.join(" | "));
}
