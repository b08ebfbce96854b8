//! What MySQL holds, each table read once, by statements of the tests' own.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{AssertSqlSafe, MySqlPool, Row as _, mysql::MySqlRow};

/// The rows of the tables, as far as they concern some vouchers.
#[derive(Default)]
pub struct MysqlFacts {
    pub vouchers: BTreeMap<i64, VoucherRow>,
    /// By order id.
    pub orders: BTreeMap<i64, OrderRow>,
    /// By order id.
    pub refusals: BTreeMap<i64, Refusal>,
    /// By order id, in the order of their steps. Those of all vouchers: an event may name another one than
    /// its order.
    pub events: BTreeMap<i64, Vec<EventRow>>,
    /// What orders use of limits, by order id.
    pub uses: BTreeMap<i64, String>,
    /// Orders that have to be paid in time.
    pub time_limits: BTreeSet<i64>,
    /// When a limit was set, in Unix milliseconds: by its owner, such as `voucher:7`, and its number.
    pub limits_set_ms: BTreeMap<(String, String), i64>,
    /// Who has limits, such as `voucher:7`.
    pub limited: BTreeSet<String>,
    /// The vouchers of the regions of each campaign.
    pub regions: BTreeMap<i64, BTreeSet<i64>>,
}

/// A row of `tb_seckill_voucher`.
#[derive(Clone, Copy, Debug)]
pub struct VoucherRow {
    /// None: the voucher was taken over, and nobody knows how many units it had.
    pub loaded: Option<i64>,
    pub left: Option<i64>,
    /// Its producers keep no journal in Redis.
    pub is_without_journal: bool,
    /// Its sale has begun, and is not over.
    pub is_on_sale: bool,
    /// Its sale was ended for good, and its keys may be removed.
    pub is_delisted: bool,
    /// Entries after this, in Unix milliseconds, must say what they used of limits.
    pub limits_since_ms: Option<i64>,
}

/// A row of `tb_voucher_order`.
#[derive(Clone, Debug)]
pub struct OrderRow {
    pub user: i64,
    pub voucher: i64,
    pub quantity: i64,
    pub slot: Option<i64>,
    pub status: i64,
    /// The entry of the stream that it came from; None: another program wrote it, or the order was cancelled
    /// unwritten.
    pub entry: Option<String>,
}

/// A row of `tidegate_refusal`.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub user: i64,
    pub voucher: i64,
    pub reason: String,
}

/// A row of `tidegate_event`.
#[derive(Clone, Debug)]
pub struct EventRow {
    pub step: i64,
    pub event: String,
    pub outcome: String,
    pub voucher: i64,
    pub reference: Option<String>,
    pub from: Option<i64>,
    pub to: Option<i64>,
    pub released: i64,
    pub entry: String,
}

impl OrderRow {
    pub fn is_live(&self) -> bool {
        self.slot.is_some()
    }
}

impl EventRow {
    /// It did something, or found it done: whoever brings it again changes nothing.
    pub fn is_done(&self) -> bool {
        self.outcome == "applied" || self.outcome == "refund_due"
    }

    /// It ended its order, or kept it from being written.
    pub fn has_ended(&self) -> bool {
        self.outcome == "applied" && matches!(self.event.as_str(), "cancelled" | "expired" | "refunded")
    }
}

impl MysqlFacts {
    /// Reads what concerns these vouchers; None: all.
    pub async fn read(pool: &MySqlPool, vouchers: Option<&BTreeSet<i64>>) -> Self {
        let mut facts = Self::of_orders(pool, vouchers).await;
        let of_vouchers = condition(vouchers);
        let sql = "SELECT CAST(voucher_id AS SIGNED), CAST(initial_stock AS SIGNED), CAST(stock AS SIGNED), \
                   CAST(COALESCE(keeps_journal, 1) = 0 AS SIGNED), CAST(delisted_at IS NULL \
                   AND COALESCE(begin_time <= NOW(), 1) AND COALESCE(end_time > NOW(), 1) AS SIGNED), \
                   limits_since, CAST(delisted_at IS NOT NULL AS SIGNED) FROM tb_seckill_voucher";
        for row in rows(pool, format!("{sql} WHERE {of_vouchers}")).await {
            let voucher = VoucherRow {
                loaded: row.get(1),
                left: row.get(2),
                is_without_journal: row.get::<i64, _>(3) == 1,
                is_on_sale: row.get::<i64, _>(4) == 1,
                limits_since_ms: row.get(5),
                is_delisted: row.get::<i64, _>(6) == 1,
            };
            facts.vouchers.insert(row.get(0), voucher);
        }
        let sql = "SELECT order_id, CAST(step AS SIGNED), event, outcome, voucher_id, ref, \
                   CAST(from_status AS SIGNED), CAST(to_status AS SIGNED), CAST(released AS SIGNED), \
                   entry_id FROM tidegate_event ORDER BY order_id, step";
        for row in rows(pool, sql.to_owned()).await {
            facts.events.entry(row.get(0)).or_default().push(event(&row));
        }
        let sql = "SELECT order_id, CONVERT(uses USING utf8mb4) FROM tidegate_limit_use WHERE";
        let uses = rows(pool, format!("{sql} {of_vouchers}")).await;
        facts.uses = uses.iter().map(|row| (row.get(0), row.get(1))).collect();
        let sql = format!("SELECT order_id FROM tidegate_unpaid_order WHERE {of_vouchers}");
        facts.time_limits = rows(pool, sql).await.iter().map(|row| row.get(0)).collect();
        let sql = "SELECT CONCAT(owner_kind, ':', owner_id), CAST(number AS CHAR), \
                   CAST(UNIX_TIMESTAMP(set_at) * 1000 AS SIGNED), CAST(removed_at IS NULL AS SIGNED) \
                   FROM tidegate_limit";
        let limits = rows(pool, sql.to_owned()).await;
        facts.limits_set_ms = limits.iter().map(|row| ((row.get(0), row.get(1)), row.get(2))).collect();
        let in_force = limits.iter().filter(|row| row.get::<i64, _>(3) == 1);
        facts.limited = in_force.map(|row| row.get(0)).collect();
        for row in rows(pool, "SELECT campaign_id, voucher_id FROM tidegate_campaign".to_owned()).await {
            facts.regions.entry(row.get(0)).or_default().insert(row.get(1));
        }
        facts
    }

    /// Reads orders and refusals only.
    pub async fn of_orders(pool: &MySqlPool, vouchers: Option<&BTreeSet<i64>>) -> Self {
        let of_vouchers = condition(vouchers);
        let sql = "SELECT CAST(id AS SIGNED), CAST(user_id AS SIGNED), CAST(voucher_id AS SIGNED), \
                   CAST(quantity AS SIGNED), CAST(slot AS SIGNED), CAST(COALESCE(status, 1) AS SIGNED), \
                   entry_id FROM tb_voucher_order";
        let orders = rows(pool, format!("{sql} WHERE {of_vouchers}")).await;
        let sql = "SELECT order_id, user_id, voucher_id, reason FROM tidegate_refusal";
        let refusals = rows(pool, format!("{sql} WHERE {of_vouchers}")).await;
        let refusal = |row: &MySqlRow| Refusal { user: row.get(1), voucher: row.get(2), reason: row.get(3) };
        Self {
            orders: orders.iter().map(|row| (row.get(0), order(row))).collect(),
            refusals: refusals.iter().map(|row| (row.get(0), refusal(row))).collect(),
            ..Self::default()
        }
    }
}

fn condition(vouchers: Option<&BTreeSet<i64>>) -> String {
    let list = |vouchers: &BTreeSet<i64>| {
        // A list must not be empty, and 0 is no voucher.
        let ids: Vec<String> = vouchers.iter().chain([&0]).map(i64::to_string).collect();
        format!("voucher_id IN ({})", ids.join(","))
    };
    vouchers.map_or("TRUE".to_owned(), list)
}

async fn rows(pool: &MySqlPool, sql: String) -> Vec<MySqlRow> {
    sqlx::query(AssertSqlSafe(sql)).fetch_all(pool).await.expect("MySQL answers")
}

fn order(row: &MySqlRow) -> OrderRow {
    OrderRow {
        user: row.get(1),
        voucher: row.get(2),
        quantity: row.get(3),
        slot: row.get(4),
        status: row.get(5),
        entry: row.get(6),
    }
}

fn event(row: &MySqlRow) -> EventRow {
    EventRow {
        step: row.get(1),
        event: row.get(2),
        outcome: row.get(3),
        voucher: row.get(4),
        reference: row.get(5),
        from: row.get(6),
        to: row.get(7),
        released: row.get(8),
        entry: row.get(9),
    }
}
