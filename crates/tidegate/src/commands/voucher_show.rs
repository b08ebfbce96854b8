//! The command `tidegate voucher show`: the values of a voucher in both stores, and the meaning of each difference.

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
  offered             that Redis can still sell
  in flight           taken in Redis, and not written to MySQL yet
  unpaid, paid, used  in orders with this status
  refunding           in orders whose payment is being refunded
  released            of orders that were cancelled or refunded
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

/// The result of `tidegate voucher show`, as the command prints it as JSON.
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

/// The text about a difference between the stores: its meaning, and what to type.
fn hint(sides: &VoucherSides, difference: VoucherMismatch) -> String {
    let voucher = sides.voucher;
    let no_stock = "Redis has no stock of this voucher";
    match difference {
        VoucherMismatch::Unknown => unknown(sides),
        VoucherMismatch::NotLoaded { stock } => format!(
            "{no_stock}, so every order is refused; put it on sale: tidegate voucher load --voucher {voucher} --stock \
             {stock}"
        ),
        VoucherMismatch::Delisted { is_unfinished: true, .. } => format!(
            "the voucher is delisted only in MySQL. To complete this: tidegate voucher delist --voucher {voucher}"
        ),
        VoucherMismatch::Delisted { has_keys: true, .. } => {
            "the voucher is delisted, so it cannot be sold again. Workers remove its keys \
             when both stores agree (reconcile.remove_delisted_after_s); see docs/delist.md"
                .to_owned()
        }
        VoucherMismatch::Delisted { .. } => {
            "the voucher is delisted, so it cannot be sold again, and its keys are removed. Events of \
             its orders change only MySQL; see docs/delist.md"
                .to_owned()
        }
        VoucherMismatch::SaleOver { orders } => {
            format!(
                "{no_stock}, and MySQL {}; its sale is over, so you need not do anything",
                orders_text(orders)
            )
        }
        VoucherMismatch::StockLost { orders } => format!(
            "{no_stock}, so every order is refused, but MySQL has {}: Redis lost this sale. Do not use tidegate \
             voucher load; see docs/runbook/redis-lost-data.md",
            orders_text(orders)
        ),
        VoucherMismatch::NoRow { left, is_taken } => without_row(sides, left, is_taken),
        VoucherMismatch::MoreInRedis { units } => format!(
            "Redis has {} more than MySQL: orders for these units are admitted, then refused as out of stock",
            counted(units, "unit")
        ),
        VoucherMismatch::LessInRedis { units } => format!(
            "Redis has {} less than MySQL: these orders wait for workers (tidegate status) or are lost (tidegate audit)",
            counted(units, "unit")
        ),
        VoucherMismatch::Contradictory { units } => format!(
            "{} in orders whose status and slot contradict each other; tidegate audit --voucher {voucher} names the \
             orders; see docs/runbook/audit-fails.md#orders-are-neither-live-nor-cancelled",
            are(units)
        ),
        VoucherMismatch::Unaccounted { units } => format!(
            "the loaded units minus unsold units and units of orders give {}, not 0: a person or another program \
             changed rows or the stock; see docs/runbook/stock-is-wrong.md#the-stock-in-mysql-is-wrong",
            counted(units, "unit")
        ),
        VoucherMismatch::OtherEnd => {
            "the end of the sale differs between Redis and MySQL; admissions use the end in Redis".to_owned()
        }
        VoucherMismatch::Paused => "the sale of this voucher is paused".to_owned(),
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

/// The hint if neither store sells the voucher. A producer that takes no units in Redis can have caused dead letters.
fn unknown(VoucherSides { voucher, dead, stock_key, .. }: &VoucherSides) -> String {
    let load = format!("tidegate voucher load --voucher {voucher} --stock UNITS");
    if dead.letters == 0 {
        return format!("no store knows this voucher. To put it on sale: {load}");
    }
    let which = format!("--reason unknown_voucher --voucher {voucher}");
    format!(
        "no store knows this voucher, but {} for it. Their orders took no units in Redis. To write the orders: {load}; \
         tidegate dead requeue {which}; then redis DECRBY {stock_key} {}, or Redis offers these units again. To cancel \
         the orders: tidegate dead cancel {which}",
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
    let has_none = "MySQL has no row of this voucher, so every order becomes a dead letter (unknown_voucher)";
    if dead.letters == 0 {
        return format!(
            "{has_none}. Insert a row whose stock is the number of all loaded units: {}",
            insert(left)
        );
    }
    let are = format!("{} with orders for {}", letters_text(dead), counted(dead.units, "unit"));
    let requeue = format!("tidegate dead requeue --reason unknown_voucher --voucher {voucher}");
    if is_taken {
        return format!(
            "{has_none}; {are}, which were taken in Redis. Insert a row whose stock is the unsold units plus the units of \
             these letters: {}; then {requeue}",
            insert(left + dead.units)
        );
    }
    format!(
        "{has_none}; {are}, which were not taken in Redis. Insert a row with the stock of Redis: {}; then {requeue}; then \
         redis DECRBY {stock_key} {}, or Redis offers these units again",
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

/// The table of units by group: offered, in flight, in orders of each status, and released.
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
