//! `tidegate voucher load`: puts a voucher on sale, in MySQL first, because that is the authority.

use anyhow::Context;
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value as Json, json};
use sqlx::MySqlPool;
use tidegate_orders::{
    Gate, Keys, VoucherId,
    gate::{LoadReply, SaleWindow, VoucherState},
    vouchers::{self, Inserted, NewVoucher, VoucherRow},
};

use crate::{
    config::Settings,
    connect,
    exit::{Exit, WrongUsage},
    moment,
    operator::{Change, ChangeArgs, Ending, Job, Next, Plan, Report},
    output::counted,
};

/// The sale is on already, just as wanted, and nothing was sold yet.
const LOADED_BEFORE: &str = "loaded_before";

/// What the gate's script can count with.
pub const MAX_STOCK: i64 = 9_999_999_999_999;
/// Why MySQL refuses more units than its column takes: an INT, unless somebody has changed that.
pub const COLUMN_TOO_SMALL: &str = "the column in MySQL cannot hold so many units";

const EXAMPLES: &str = "\
Examples:
  tidegate voucher load --voucher 7 --stock 1000
  tidegate voucher load --voucher 7 --stock 1000 --begin \"2026-11-20 10:00\" --end \"2026-11-20 12:00\"
  tidegate voucher load --voucher 7 --stock 1000 --begin 2026-11-20T10:00:00Z

Writes the MySQL row, then the Redis keys. Exits with 1, changing nothing, where the voucher is or was on sale on
either side. Asks only where it would write over what an ended sale left, or over other times in MySQL. If it fails
half-way, the same command again completes it; if it was done and nobody bought since, it says so and exits with 0.";

/// What `tidegate voucher load` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct VoucherLoadArgs {
    /// The voucher
    #[arg(long, value_name = "ID")]
    voucher: VoucherId,
    /// Units to sell
    #[arg(long, value_name = "UNITS", value_parser = clap::value_parser!(i64).range(1..=MAX_STOCK))]
    stock: i64,
    /// The sale begins: RFC 3339, local time or Unix milliseconds; now by default
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    begin: Option<Timestamp>,
    /// The sale ends, likewise; never by default
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    end: Option<Timestamp>,
    #[command(flatten)]
    change: ChangeArgs,
}

/// What was found and, then, what was done.
#[derive(Debug, Serialize)]
struct Answer {
    voucher: VoucherId,
    stock: i64,
    begin: Option<Timestamp>,
    end: Option<Timestamp>,
    /// `loaded`, `loaded_paused`, `loaded_before` or `refused`; of a dry run `would_load`.
    outcome: &'static str,
    /// Why it was refused.
    reason: Option<String>,
    /// What it would write over.
    overwrites: Option<String>,
}

impl Plan for Answer {
    fn text(&self) -> String {
        render(self)
    }

    fn next(&self) -> Next {
        match (&self.reason, &self.overwrites) {
            _ if self.outcome == LOADED_BEFORE => Next::Nothing(Exit::Ok),
            (Some(_), _) => Next::Nothing(Exit::No),
            (None, None) => Next::Go,
            (None, Some(_)) => Next::Ask(format!("Load voucher {} all the same?", self.voucher)),
        }
    }
}

impl Report for Answer {
    fn text(&self) -> String {
        render(self)
    }

    fn counts(&self) -> Json {
        json!({ "units": if self.reason.is_none() { self.stock } else { 0 } })
    }

    fn ending(&self) -> Ending {
        if self.reason.is_none() { Ending::Done } else { Ending::Refused }
    }
}

/// Loads the voucher, or says why not.
///
/// # Errors
/// When a store cannot be reached or refuses.
pub async fn run(settings: &Settings, args: &VoucherLoadArgs) -> anyhow::Result<Exit> {
    check_window(args, Timestamp::now())?;
    let (redis, mysql) = tokio::try_join!(connect::redis(settings), connect::mysql(settings))?;
    let gate = Gate::new(redis, Keys::new(settings.keys.clone()), settings.stream.name.as_str());
    let plan = look(&gate, &mysql, args).await?;
    let work = async |plan: Answer, _job: &Job| {
        Ok(match load(&gate, &mysql, args).await? {
            Ok(outcome) => Answer { outcome, ..plan },
            Err(reason) => Answer { outcome: "refused", reason: Some(reason), ..plan },
        })
    };
    Change::new(settings, &args.change).run(plan, work).await
}

fn render(answer: &Answer) -> String {
    let Answer { voucher, stock, overwrites, .. } = answer;
    match (&answer.reason, answer.outcome) {
        (Some(reason), _) => {
            format!("voucher {voucher}: refused, {reason}\nSee: tidegate voucher show --voucher {voucher}")
        }
        (None, "would_load") => {
            let overwrites = overwrites.iter().map(|what| format!(", over {what}")).collect::<String>();
            format!("voucher {voucher}: would be loaded with {}{overwrites}", counted(*stock, "unit"))
        }
        (None, LOADED_BEFORE) => {
            format!(
                "voucher {voucher}: is loaded with {}, just so; nothing was changed",
                counted(*stock, "unit")
            )
        }
        (None, "loaded_paused") => {
            format!("voucher {voucher}: loaded with {stock} units; its sale was paused and still is")
        }
        (None, _) => format!("voucher {voucher}: loaded with {stock} units"),
    }
}

fn check_window(args: &VoucherLoadArgs, now: Timestamp) -> Result<(), WrongUsage> {
    match (args.begin, args.end) {
        (Some(begin), Some(end)) if begin >= end => {
            Err(WrongUsage("--begin must lie before --end".to_owned()))
        }
        (_, Some(end)) if end <= now => Err(WrongUsage("--end lies in the past".to_owned())),
        _ => Ok(()),
    }
}

async fn look(gate: &Gate, mysql: &MySqlPool, args: &VoucherLoadArgs) -> anyhow::Result<Answer> {
    let sale = gate.read_voucher(args.voucher).await.context("Failed to read the voucher in Redis")?;
    let row = vouchers::find(mysql, args.voucher).await.context("Failed to read the voucher in MySQL")?;
    // Cancelled ones of a voucher that was never on sale may be there: `tidegate dead cancel` leaves them.
    let orders = vouchers::count_live_orders(mysql, args.voucher).await;
    let orders = orders.context("Failed to count its orders")?;
    let now = Timestamp::now();
    let window = SaleWindow { begin: args.begin, end: args.end };
    let is_untouched = sale.buyers + sale.journaled == 0 && orders == 0;
    let loaded_before = is_untouched && is_loaded(&sale, row.as_ref(), args.stock, window);
    let reason = match loaded_before {
        true => None,
        false => refusal(&sale, row.as_ref(), orders, args.stock, now),
    };
    Ok(Answer {
        voucher: args.voucher,
        stock: args.stock,
        begin: args.begin,
        end: args.end,
        outcome: match (loaded_before, &reason) {
            (true, _) => LOADED_BEFORE,
            (false, Some(_)) => "refused",
            (false, None) => "would_load",
        },
        reason,
        overwrites: overwrites(&sale, row.as_ref(), window, now).filter(|_| !loaded_before),
    })
}

/// Whether both sides are as this load leaves them, with nothing sold.
fn is_loaded(sale: &VoucherState, row: Option<&VoucherRow>, stock: i64, window: SaleWindow) -> bool {
    let row = row.is_some_and(|row| row.stock == stock && row.initial_stock == Some(stock));
    row && sale.stock == Some(stock) && is_same(sale.window, window)
}

/// To the millisecond, which is what Redis keeps.
fn is_same(one: SaleWindow, other: SaleWindow) -> bool {
    let ms =
        |window: SaleWindow| [window.begin, window.end].map(|bound| bound.map(Timestamp::as_millisecond));
    ms(one) == ms(other)
}

/// Why the voucher must not be loaded; None where both sides are free, or hold what a load left that died half-way.
fn refusal(
    sale: &VoucherState,
    row: Option<&VoucherRow>,
    orders: i64,
    stock: i64,
    now: Timestamp,
) -> Option<String> {
    let is_over = sale.window.end.is_some_and(|end| end <= now);
    if let Some(left) = sale.stock.filter(|_| !is_over) {
        return Some(format!(
            "it is on sale in Redis with {left} units left; for more or fewer: tidegate voucher add, tidegate voucher \
             take"
        ));
    }
    let ended = is_over || row.and_then(|row| row.end_ms).is_some_and(|end| end <= now.as_millisecond());
    if orders > 0 && !ended {
        return Some(format!(
            "MySQL holds {} of it, so it was on sale, and Redis lost its stock: see docs/runbook/redis-lost-data.md. \
             Another voucher id is for another sale only",
            counted(orders, "order")
        ));
    }
    if sale.buyers > 0 {
        return Some(format!(
            "Redis holds {} of it, so it was on sale; a new sale takes another voucher id",
            counted(sale.buyers, "buyer")
        ));
    }
    if orders > 0 {
        return Some(format!(
            "MySQL holds {} of it, so it was on sale; a new sale takes another voucher id",
            counted(orders, "order")
        ));
    }
    let row = row?;
    if row.stock != stock || row.initial_stock.is_some_and(|initial| initial != stock) {
        return Some(format!(
            "MySQL holds it with a stock of {}; load it with --stock {}",
            row.stock, row.stock
        ));
    }
    None
}

/// What is there and would be lost by loading; None where that is nothing, or what a load left that died half-way.
fn overwrites(
    sale: &VoucherState,
    row: Option<&VoucherRow>,
    window: SaleWindow,
    now: Timestamp,
) -> Option<String> {
    if let Some(left) = sale.stock {
        return Some(format!("an ended sale that has {} left in Redis", counted(left, "unit")));
    }
    let row = row?;
    let second = |moment: Timestamp| moment.as_millisecond().div_euclid(1000);
    let ends_otherwise = row.end_ms.map(|ms| ms.div_euclid(1000)) != window.end.map(second);
    // Without a moment to begin, a load writes the present one.
    let begins_otherwise = row.begin_ms.is_some_and(|ms| match window.begin {
        Some(begin) => ms.div_euclid(1000) != second(begin),
        None => ms > now.as_millisecond(),
    });
    (ends_otherwise || begins_otherwise).then(|| "the times of its row in MySQL, which are others".to_owned())
}

/// The row, then the keys. The inner error is why it was refused after all: somebody else was at work.
async fn load(
    gate: &Gate,
    mysql: &MySqlPool,
    args: &VoucherLoadArgs,
) -> anyhow::Result<Result<&'static str, String>> {
    let ms = |moment: Option<Timestamp>| moment.map(Timestamp::as_millisecond);
    let new = NewVoucher {
        voucher: args.voucher,
        stock: args.stock,
        begin_ms: ms(args.begin),
        end_ms: ms(args.end),
    };
    let inserted = vouchers::insert(mysql, &new).await.context("Failed to write the voucher to MySQL")?;
    match inserted {
        Inserted::New => {}
        Inserted::TooMany => return Ok(Err(COLUMN_TOO_SMALL.to_owned())),
        Inserted::Existed => {
            let adopted =
                vouchers::adopt(mysql, &new).await.context("Failed to write the voucher to MySQL")?;
            if !adopted {
                return Ok(Err("its row in MySQL was changed at this very moment".to_owned()));
            }
        }
    }
    let window = SaleWindow { begin: args.begin, end: args.end };
    let reply = gate.load(args.voucher, args.stock.unsigned_abs(), window).await;
    let reply =
        reply.context("Failed to load the voucher into Redis; its MySQL row is there, run this again")?;
    Ok(match reply {
        LoadReply::Loaded => Ok("loaded"),
        LoadReply::LoadedPaused => Ok("loaded_paused"),
        LoadReply::OnSale => judge_again(gate, args, window).await?,
    })
}

/// Of a sale that is on although it was not a moment ago. The client sends a command again whose reply was lost, so this
/// may be what the first one did; since its row in MySQL is ours, no other load can have begun the sale that we wanted.
async fn judge_again(
    gate: &Gate,
    args: &VoucherLoadArgs,
    window: SaleWindow,
) -> anyhow::Result<Result<&'static str, String>> {
    let sale = gate.read_voucher(args.voucher).await.context("Failed to read the voucher in Redis")?;
    // Some may be sold by now.
    let is_ours = sale.stock.is_some_and(|left| left <= args.stock) && is_same(sale.window, window);
    Ok(match (is_ours, sale.pause.is_paused()) {
        (true, false) => Ok("loaded"),
        (true, true) => Ok("loaded_paused"),
        (false, _) => Err("it is on sale in Redis, since this very moment".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use tidegate_orders::gate::Pause;

    use super::*;

    fn sale(stock: Option<i64>, buyers: u64, end_ms: Option<i64>) -> VoucherState {
        let end = end_ms.map(|ms| Timestamp::from_millisecond(ms).unwrap());
        let window = SaleWindow { begin: None, end };
        VoucherState { stock, buyers, window, pause: Pause::Running, journaled: 0 }
    }

    fn row(stock: i64, initial_stock: Option<i64>) -> VoucherRow {
        let voucher = VoucherId::try_from(7).unwrap();
        VoucherRow { voucher, stock, initial_stock, begin_ms: None, end_ms: None }
    }

    fn is_refused(sale: VoucherState, row: Option<&VoucherRow>, orders: i64) -> bool {
        refusal(&sale, row, orders, 100, Timestamp::from_millisecond(1_000).unwrap()).is_some()
    }

    #[test]
    fn a_voucher_that_is_or_was_on_sale_on_either_side_is_refused() {
        assert!(is_refused(sale(Some(100), 0, None), None, 0), "on sale in Redis");
        assert!(is_refused(sale(Some(0), 0, Some(2_000)), None, 0), "sold out is on sale");
        assert!(is_refused(sale(None, 3, None), None, 0), "buyers are left of it");
        assert!(is_refused(sale(None, 0, None), Some(&row(100, None)), 1), "it has orders");
        assert!(is_refused(sale(None, 0, None), Some(&row(99, None)), 0), "another stock");
        assert!(is_refused(sale(None, 0, None), Some(&row(100, Some(200))), 0), "a stock that was sold from");
    }

    #[test]
    fn what_a_load_left_is_known_by_its_stocks_and_its_window() {
        let window = SaleWindow { begin: None, end: Some(Timestamp::from_millisecond(2_000).unwrap()) };
        let left = |stock, end_ms, row: Option<&VoucherRow>| {
            is_loaded(&sale(Some(stock), 0, end_ms), row, 100, window)
        };
        let ours = row(100, Some(100));
        assert!(left(100, Some(2_000), Some(&ours)));
        assert!(!left(99, Some(2_000), Some(&ours)) && !left(100, None, Some(&ours)));
        assert!(!left(100, Some(2_000), None) && !left(100, Some(2_000), Some(&row(100, None))));
    }

    #[test]
    fn only_what_would_be_lost_is_asked_about() {
        let moment = |ms| Timestamp::from_millisecond(ms).unwrap();
        let over = |sale: &VoucherState, row: Option<&VoucherRow>, window: SaleWindow| {
            overwrites(sale, row, window, moment(5_000)).is_some()
        };
        let (nothing, open) = (sale(None, 0, None), SaleWindow::default());
        assert!(!over(&nothing, None, open), "a new voucher");
        assert!(over(&sale(Some(5), 0, Some(1_000)), None, open), "the rest of an ended sale");
        let mut begun = row(100, Some(100));
        begun.begin_ms = Some(4_000);
        assert!(!over(&nothing, Some(&begun), open), "a load that died half-way");
        let window = SaleWindow { begin: Some(moment(4_000)), end: Some(moment(9_500)) };
        assert!(over(&nothing, Some(&begun), window), "it ends otherwise");
        begun.end_ms = Some(9_000);
        assert!(!over(&nothing, Some(&begun), window), "MySQL keeps whole seconds");
        assert!(over(&nothing, Some(&begun), open), "its end would be lost");
        begun.begin_ms = Some(6_000);
        assert!(over(&nothing, Some(&begun), window), "it begins otherwise");
    }

    #[test]
    fn a_new_voucher_and_one_whose_load_died_half_way_are_not() {
        assert!(!is_refused(sale(None, 0, None), None, 0));
        assert!(!is_refused(sale(None, 0, None), Some(&row(100, Some(100))), 0));
        assert!(!is_refused(sale(None, 0, None), Some(&row(100, None)), 0), "a row of the tutorial's");
        assert!(!is_refused(sale(Some(5), 0, Some(1_000)), None, 0), "its sale is over, nobody bought");
    }
}
