//! `tidegate voucher show`: what both sides hold of a voucher, and what it means when they disagree.

use anyhow::Context;
use clap::Args;
use fred::clients::Pool;
use jiff::Timestamp;
use serde::Serialize;
use tidegate_orders::{
    Gate, Keys, VoucherId,
    gate::VoucherState,
    vouchers::{self, VoucherRow},
};
use tidegate_stream::EntryId;

use crate::{
    commands::dead,
    config::Settings,
    connect,
    exit::Exit,
    output::{OutputArgs, counted, table},
};

/// Dead letters that are looked at, at once and in all.
const LETTERS_A_PAGE: u16 = 500;
const MOST_LETTERS: usize = 10_000;

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
    /// Letters that say that MySQL does not know it; looked for only where it does not.
    dead: Dead,
    hints: Vec<String>,
    #[serde(skip)]
    stock_key: String,
}

/// Dead letters of the voucher.
#[derive(Debug, Default, Serialize)]
struct Dead {
    letters: u64,
    /// Units in their orders.
    units: i64,
    /// Not all letters were looked at.
    at_least: bool,
}

impl Dead {
    fn are(&self) -> String {
        let verb = if self.letters == 1 { "is" } else { "are" };
        let more = if self.at_least { " or more" } else { "" };
        format!("there {verb} {}{more}", counted(self.letters, "dead letter"))
    }
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
    let keys = Keys::new(settings.keys.clone());
    let gate = Gate::new(redis.clone(), keys.clone(), settings.stream.name.as_str());
    let sale = gate.read_voucher(args.voucher).await.context("Failed to read the voucher in Redis")?;
    let row = vouchers::find(&mysql, args.voucher).await.context("Failed to read the voucher in MySQL")?;
    let orders = vouchers::count_orders(&mysql, args.voucher).await.context("Failed to count its orders")?;
    let mut sides = BothSides {
        voucher: args.voucher,
        redis: redis_side(&sale),
        dead: if row.is_none() {
            dead_letters(settings, &redis, args.voucher).await?
        } else {
            Dead::default()
        },
        mysql: row.map(|row| mysql_side(&row, orders)),
        hints: Vec::new(),
        stock_key: keys.stock(args.voucher).as_str_lossy().into_owned(),
    };
    sides.hints = hints(&sides);
    args.output.print(&sides, render)?;
    Ok(if sides.redis.is_none() && sides.mysql.is_none() { Exit::No } else { Exit::Ok })
}

/// Looks at the oldest letters.
async fn dead_letters(settings: &Settings, redis: &Pool, voucher: VoucherId) -> anyhow::Result<Dead> {
    let letters = dead::door(settings, redis);
    let (mut after, mut looked_at, mut found) = (EntryId::MIN, 0, Dead::default());
    loop {
        let page = letters.page((after, EntryId::MAX), LETTERS_A_PAGE).await;
        let page = page.context("Failed to read the dead letters")?;
        let Some(last) = page.last() else { return Ok(found) };
        after = last.id;
        looked_at += page.len();
        for order in page.iter().filter_map(|letter| letters.order_of(letter).ok()) {
            if order.voucher == voucher {
                found.letters += 1;
                found.units += order.quantity.get();
            }
        }
        if looked_at >= MOST_LETTERS {
            found.at_least = true;
            return Ok(found);
        }
    }
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
        (None, None) => hints.push(unknown(sides)),
        (None, Some(mysql)) => hints.push(not_on_sale(voucher, mysql, Timestamp::now())),
        (Some(left), None) => hints.push(without_row(sides, left)),
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

/// Neither side sells it. Letters of it come from a producer that takes no units in Redis.
fn unknown(BothSides { voucher, dead, stock_key, .. }: &BothSides) -> String {
    let load = format!("tidegate voucher load --voucher {voucher} --stock UNITS");
    if dead.letters == 0 {
        return format!("it is unknown; put it on sale: {load}");
    }
    let which = format!("--reason unknown_voucher --voucher {voucher}");
    format!(
        "it is unknown, and {} of it, whose orders took no units in Redis. If they are to be written: {load}; \
         tidegate dead requeue {which}; then redis DECRBY {stock_key} {}, or Redis offers theirs once more. If not: \
         tidegate dead cancel {which}",
        dead.are(),
        dead.units
    )
}

/// MySQL has it, and Redis no stock.
fn not_on_sale(voucher: VoucherId, mysql: &MySqlSide, now: Timestamp) -> String {
    if mysql.orders == 0 {
        return format!(
            "Redis has no stock of it, so every order is refused; put it on sale: \
             tidegate voucher load --voucher {voucher} --stock {}",
            mysql.stock
        );
    }
    let orders = counted(mysql.orders, "order");
    if mysql.end.is_some_and(|end| end <= now) {
        return format!(
            "Redis has no stock of it, and MySQL {orders}; its sale is over, so nothing is to be done"
        );
    }
    format!(
        "Redis has no stock of it, so every order is refused, and MySQL has {orders}: it was on sale, and Redis lost it. \
         tidegate voucher load cannot help; see docs/runbook/redis-lost-data.md"
    )
}

/// Redis sells it, and MySQL has no row. The row needs what was loaded: what is left, and what was sold of it.
fn without_row(sides: &BothSides, left: i64) -> String {
    let BothSides { voucher, dead, stock_key, .. } = sides;
    let insert = |stock: i64| {
        format!(
            "INSERT INTO tb_seckill_voucher (voucher_id, stock, initial_stock, begin_time, end_time) VALUES ({voucher}, \
             {stock}, {stock}, NOW(), '2037-12-31 23:59:59')"
        )
    };
    let has_none = "MySQL has no row of it, so every order will be a dead letter (unknown voucher)";
    if dead.letters == 0 {
        return format!("{has_none}. Its row needs a stock of all that was loaded: {}", insert(left));
    }
    let are = format!("{} of it, with {}", dead.are(), counted(dead.units, "unit"));
    let requeue = format!("tidegate dead requeue --reason unknown_voucher --voucher {voucher}");
    if sides.redis.as_ref().is_some_and(|redis| redis.buyers + redis.journaled > 0) {
        let all = left + dead.units;
        return format!(
            "{has_none}; {are}, which were taken in Redis. Its row needs what is left and theirs: {}; then {requeue}",
            insert(all)
        );
    }
    format!(
        "{has_none}; {are}, which were not taken in Redis. Its row needs what Redis has: {}; then {requeue}; then \
         redis DECRBY {stock_key} {}, or Redis offers theirs once more",
        insert(left),
        dead.units
    )
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
