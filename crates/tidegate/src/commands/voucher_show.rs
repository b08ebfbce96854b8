//! The command `tidegate voucher show`: the state of a voucher in both stores, and the meaning of each difference.

use std::time::Duration;

use clap::Args;
use comfy_table::Table;
use jiff::Timestamp;
use serde::Serialize;
use tidegate_compare::text::{counted, span};
use tidegate_operations::{
    Stores,
    vouchers::show::{self, DeadLetterCounts, VoucherMismatch, VoucherSides},
};
use tidegate_orders::{
    VoucherId,
    records::{manual_sql::insert_voucher, vouchers::VoucherUnits},
};

use crate::{
    exit::Exit,
    output::{OutputArgs, table},
    scope::{PartitionCommand, Scope},
};

const EXAMPLES: &str = "\
Examples:
  tidegate voucher show --voucher 7
  tidegate voucher show --voucher 7 --json | jq .redis.stock

The groups of units are:
  offered             by Redis
  in flight           taken in Redis, and in no order of MySQL yet
  unpaid, paid, used  in orders with this status
  refunding           in orders whose payment is being refunded
  released            by orders that ended
  on hand             loaded minus used
The view tidegate_voucher_units in MySQL has the same columns.

Exits with 1 if neither store knows the voucher.";

/// The arguments of `tidegate voucher show`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct VoucherShowArgs {
    /// The voucher to show
    #[arg(long, value_name = "ID")]
    pub voucher: VoucherId,
    #[command(flatten)]
    output: OutputArgs,
}

/// The result of `tidegate voucher show`.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    sides: VoucherSides,
    in_flight: Option<i64>,
    hints: Vec<String>,
}

impl PartitionCommand for VoucherShowArgs {
    fn scope(&self) -> Scope<'_> {
        Scope::Voucher(self.voucher)
    }

    /// Reads both stores.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let (redis, mysql) = stores.both().await?;
        let sides = show::read(stores.settings(), (redis, mysql), self.voucher).await?;
        let differences = sides.differences(Timestamp::now());
        let hints = differences.into_iter().map(|difference| hint(&sides, difference)).collect();
        let shown = Shown { in_flight: sides.in_flight(), sides, hints };
        self.output.print(&shown, render)?;
        Ok(if shown.sides.is_unknown() { Exit::No } else { Exit::Ok })
    }
}

fn pay_within(within_s: i64) -> String {
    match u64::try_from(within_s) {
        Ok(within_s) if within_s > 0 => span(Duration::from_secs(within_s)),
        _ => "no limit".to_owned(),
    }
}

/// The meaning of a difference between the stores, and what to type.
fn hint(sides: &VoucherSides, difference: VoucherMismatch) -> String {
    let voucher = sides.voucher;
    let no_stock = "Redis has no stock of it";
    match difference {
        VoucherMismatch::Unknown => unknown(sides),
        VoucherMismatch::NotLoaded { stock } => format!(
            "{no_stock}, so every order is refused; put it on sale: tidegate voucher load --voucher {voucher} --stock \
             {stock}"
        ),
        VoucherMismatch::Delisted { is_unfinished: true, .. } => format!(
            "it is delisted in MySQL, and not in Redis: complete that with tidegate voucher delist --voucher {voucher}"
        ),
        VoucherMismatch::Delisted { has_keys: true, .. } => {
            "it is delisted: its sale is over for good. Workers remove its keys \
             once both stores agree (reconcile.remove_delisted_after_s); see docs/delist.md"
                .to_owned()
        }
        VoucherMismatch::Delisted { .. } => {
            "it is delisted: its sale is over for good, and its keys are removed. Events of \
             its orders change MySQL only; see docs/delist.md"
                .to_owned()
        }
        VoucherMismatch::SaleOver { orders } => {
            format!(
                "{no_stock}, and MySQL {}; its sale is over, so nothing is to be done",
                orders_text(orders)
            )
        }
        VoucherMismatch::StockLost { orders } => format!(
            "{no_stock}, so every order is refused, and MySQL has {}: it was on sale, and Redis lost it. tidegate \
             voucher load cannot help; see docs/runbook/redis-lost-data.md",
            orders_text(orders)
        ),
        VoucherMismatch::NoRow { left, is_taken } => without_row(sides, left, is_taken),
        VoucherMismatch::MoreInRedis { units } => format!(
            "Redis has {} more than MySQL: orders for these units are admitted, then refused as out of stock",
            counted(units, "unit")
        ),
        VoucherMismatch::LessInRedis { units } => format!(
            "Redis has {} less than MySQL: in flight (tidegate status), or lost (tidegate audit)",
            counted(units, "unit")
        ),
        VoucherMismatch::Contradictory { units } => format!(
            "{} in orders whose slot and status contradict each other; tidegate audit --voucher {voucher} names them, see \
             docs/runbook/audit-fails.md#orders-are-neither-live-nor-cancelled",
            are(units)
        ),
        VoucherMismatch::Unaccounted { units } => format!(
            "the loaded units, less the unsold ones and those of orders, leave {}: a person or another program changed rows \
             or the stock; see docs/runbook/stock-is-wrong.md#the-stock-in-mysql-is-wrong",
            counted(units, "unit")
        ),
        VoucherMismatch::OtherEnd => {
            "the two stores disagree on when the sale ends; Redis decides who is admitted".to_owned()
        }
        VoucherMismatch::Paused => "its sale is paused".to_owned(),
    }
}

fn are(units: i64) -> String {
    format!("{} {}", counted(units, "unit"), if units == 1 { "is" } else { "are" })
}

fn orders_text(orders: i64) -> String {
    counted(orders, "order")
}

fn letters_text(dead: &DeadLetterCounts) -> String {
    let verb = if dead.letters == 1 { "is" } else { "are" };
    let more = if dead.at_least { " or more" } else { "" };
    format!("there {verb} {}{more}", counted(dead.letters, "dead letter"))
}

/// The hint if neither store sells the voucher. Its dead letters come from a producer that takes no units in Redis.
fn unknown(VoucherSides { voucher, dead, stock_key, .. }: &VoucherSides) -> String {
    let load = format!("tidegate voucher load --voucher {voucher} --stock UNITS");
    if dead.letters == 0 {
        return format!("it is unknown; put it on sale: {load}");
    }
    let which = format!("--reason unknown_voucher --voucher {voucher}");
    format!(
        "it is unknown, and {} of it, whose orders took no units in Redis. If they are to be written: {load}; \
         tidegate dead requeue {which}; then redis DECRBY {stock_key} {}, or Redis offers these units once more. If not: \
         tidegate dead cancel {which}",
        letters_text(dead),
        dead.units
    )
}

/// The hint if Redis sells the voucher, and MySQL has no row. The row needs the loaded stock: the unsold and the sold
/// units.
fn without_row(
    VoucherSides { voucher, dead, stock_key, .. }: &VoucherSides,
    left: i64,
    is_taken: bool,
) -> String {
    let insert = |stock: i64| insert_voucher(*voucher, stock);
    let has_none = "MySQL has no row of it, so every order will be a dead letter (unknown voucher)";
    if dead.letters == 0 {
        return format!("{has_none}. Its row needs a stock of all loaded units: {}", insert(left));
    }
    let are = format!("{} with orders for {} of it", letters_text(dead), counted(dead.units, "unit"));
    let requeue = format!("tidegate dead requeue --reason unknown_voucher --voucher {voucher}");
    if is_taken {
        return format!(
            "{has_none}; {are}, which were taken in Redis. Its row needs the unsold units and the units of these letters as \
             its stock: {}; then {requeue}",
            insert(left + dead.units)
        );
    }
    format!(
        "{has_none}; {are}, which were not taken in Redis. Its row needs the stock of Redis: {}; then {requeue}; then \
         redis DECRBY {stock_key} {}, or Redis offers these units once more",
        insert(left),
        dead.units
    )
}

fn render(Shown { sides, in_flight, hints }: &Shown) -> String {
    let (redis, mysql) = (sides.redis.as_ref(), sides.mysql.as_ref());
    let voucher = format!("voucher {}", sides.voucher);
    let mut table = table(&[&voucher, "Redis", "MySQL"]);
    table.add_row([
        "stock",
        &or_dash(redis.and_then(|side| side.stock)),
        &or_dash(mysql.map(|side| side.stock)),
    ]);
    table.add_row(["initial stock", "", &or_dash(mysql.and_then(|side| side.initial_stock))]);
    if let Some(within_s) = mysql.and_then(|side| side.pay_within_s) {
        table.add_row(["to be paid within", "", &pay_within(within_s)]);
    }
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
    let delisted = (redis.and_then(|side| side.delisted), mysql.and_then(|side| side.delisted));
    if delisted != (None, None) {
        table.add_row(["delisted", &or_dash(delisted.0), &or_dash(delisted.1)]);
    }
    let hints = hints.iter().map(|hint| format!("\n- {hint}")).collect::<String>();
    let units = mysql.map(|mysql| units_table(&mysql.units, redis.and_then(|side| side.stock), *in_flight));
    format!("{table}\n{}{hints}", units.map(|units| format!("\n{units}\n")).unwrap_or_default())
}

/// The table of units, by their place.
fn units_table(units: &VoucherUnits, offered: Option<i64>, in_flight: Option<i64>) -> Table {
    let mut table = table(&[
        "units",
        "loaded",
        "offered",
        "in flight",
        "unpaid",
        "paid",
        "used",
        "refunding",
        "released",
        "on hand",
    ]);
    table.add_row([
        String::new(),
        or_dash(units.loaded),
        or_dash(offered),
        or_dash(in_flight),
        units.unpaid.to_string(),
        units.paid.to_string(),
        units.used.to_string(),
        units.refunding.to_string(),
        units.released.to_string(),
        or_dash(units.on_hand),
    ]);
    table
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}
