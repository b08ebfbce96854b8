//! `tidegate voucher show`: what both sides hold of a voucher, and what it means when they disagree.

use anyhow::Context;
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use tidegate_orders::{
    Gate, Keys, VoucherId,
    gate::VoucherState,
    vouchers::{self, VoucherRow},
};

use crate::{
    config::Settings,
    connect,
    exit::Exit,
    output::{OutputArgs, counted, table},
};

const EXAMPLES: &str = "\
Examples:
  tidegate voucher show --voucher 7
  tidegate voucher show --voucher 7 --json | jq .redis.stock

Exits with 1 where neither side knows the voucher.";

/// What `tidegate voucher show` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct VoucherShowArgs {
    /// The voucher
    #[arg(long, value_name = "ID")]
    voucher: VoucherId,
    #[command(flatten)]
    output: OutputArgs,
}

/// What `tidegate voucher show` prints.
#[derive(Debug, Serialize)]
struct BothSides {
    voucher: VoucherId,
    /// None where no key of it exists.
    redis: Option<RedisSide>,
    /// None where it has no row.
    mysql: Option<MySqlSide>,
    hints: Vec<String>,
}

#[derive(Debug, Serialize)]
struct RedisSide {
    stock: Option<i64>,
    buyers: u64,
    /// Orders with a journal entry, admitted or given back.
    journaled: u64,
    begin: Option<Timestamp>,
    end: Option<Timestamp>,
    paused: bool,
}

#[derive(Debug, Serialize)]
struct MySqlSide {
    stock: i64,
    initial_stock: Option<i64>,
    /// Cancelled ones included.
    orders: i64,
    begin: Option<Timestamp>,
    end: Option<Timestamp>,
}

/// Reads both sides.
///
/// # Errors
/// When a store cannot be reached.
pub async fn run(settings: &Settings, args: &VoucherShowArgs) -> anyhow::Result<Exit> {
    let (redis, mysql) = tokio::try_join!(connect::redis(settings), connect::mysql(settings))?;
    let gate = Gate::new(redis, Keys::new(settings.keys.clone()), settings.stream.name.as_str());
    let sale = gate.read_voucher(args.voucher).await.context("Failed to read the voucher in Redis")?;
    let row = vouchers::find(&mysql, args.voucher).await.context("Failed to read the voucher in MySQL")?;
    let orders = vouchers::count_orders(&mysql, args.voucher).await.context("Failed to count its orders")?;
    let mut sides = BothSides {
        voucher: args.voucher,
        redis: redis_side(&sale),
        mysql: row.map(|row| mysql_side(&row, orders)),
        hints: Vec::new(),
    };
    sides.hints = hints(&sides);
    args.output.print(&sides, render)?;
    Ok(if sides.redis.is_none() && sides.mysql.is_none() { Exit::No } else { Exit::Ok })
}

fn redis_side(sale: &VoucherState) -> Option<RedisSide> {
    let side = RedisSide {
        stock: sale.stock,
        buyers: sale.buyers,
        journaled: sale.journaled,
        begin: sale.window.begin,
        end: sale.window.end,
        paused: sale.pause.is_paused(),
    };
    let is_empty = side.stock.is_none()
        && side.buyers + side.journaled == 0
        && side.begin.or(side.end).is_none()
        && !side.paused;
    (!is_empty).then_some(side)
}

fn mysql_side(row: &VoucherRow, orders: i64) -> MySqlSide {
    let moment = |ms: Option<i64>| ms.and_then(|ms| Timestamp::from_millisecond(ms).ok());
    MySqlSide {
        stock: row.stock,
        initial_stock: row.initial_stock,
        orders,
        begin: moment(row.begin_ms),
        end: moment(row.end_ms),
    }
}

/// What a difference between the sides means.
fn hints(sides: &BothSides) -> Vec<String> {
    let voucher = sides.voucher;
    let mut hints = Vec::new();
    let stock = sides.redis.as_ref().and_then(|redis| redis.stock);
    match (stock, &sides.mysql) {
        (None, None) => hints.push(format!("it is unknown; put it on sale: tidegate voucher load --voucher {voucher} --stock UNITS")),
        (None, Some(mysql)) => hints.push(format!(
            "Redis has no stock of it, so every order is refused; unless it was on sale before: \
             tidegate voucher load --voucher {voucher} --stock {}",
            mysql.stock
        )),
        (Some(_), None) => {
            hints.push("MySQL has no row of it, so every order will be a dead letter (unknown voucher)".to_owned());
        }
        (Some(redis), Some(mysql)) if redis > mysql.stock => hints.push(format!(
            "Redis has {} more than MySQL: orders for what is too much are admitted, then refused as out of stock",
            counted(redis - mysql.stock, "unit")
        )),
        (Some(redis), Some(mysql)) if redis < mysql.stock => hints.push(format!(
            "Redis has {} less than MySQL: on the way (tidegate status), or lost (tidegate audit)",
            counted(mysql.stock - redis, "unit")
        )),
        (Some(_), Some(_)) => {}
    }
    if let (Some(redis), Some(mysql)) = (&sides.redis, &sides.mysql)
        && redis
            .end
            .is_some_and(|end| mysql.end.is_some_and(|other| (end.as_second() - other.as_second()).abs() > 1))
    {
        hints.push("the two sides disagree on when the sale ends; Redis decides who is admitted".to_owned());
    }
    if sides.redis.as_ref().is_some_and(|redis| redis.paused) {
        hints.push("its sale is paused".to_owned());
    }
    hints
}

fn render(sides: &BothSides) -> String {
    let (redis, mysql) = (sides.redis.as_ref(), sides.mysql.as_ref());
    let voucher = format!("voucher {}", sides.voucher);
    let mut table = table(&[&voucher, "Redis", "MySQL"]);
    table.add_row([
        "stock",
        &or_dash(redis.and_then(|side| side.stock)),
        &or_dash(mysql.map(|side| side.stock)),
    ]);
    table.add_row(["initial stock", "", &or_dash(mysql.and_then(|side| side.initial_stock))]);
    table.add_row([
        "buyers / orders",
        &or_dash(redis.map(|side| side.buyers)),
        &or_dash(mysql.map(|side| side.orders)),
    ]);
    table.add_row(["journal entries", &or_dash(redis.map(|side| side.journaled)), ""]);
    table.add_row([
        "begin",
        &or_dash(redis.and_then(|side| side.begin)),
        &or_dash(mysql.and_then(|side| side.begin)),
    ]);
    table.add_row([
        "end",
        &or_dash(redis.and_then(|side| side.end)),
        &or_dash(mysql.and_then(|side| side.end)),
    ]);
    let hints = sides.hints.iter().map(|hint| format!("\n- {hint}")).collect::<String>();
    format!("{table}\n{hints}")
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}
