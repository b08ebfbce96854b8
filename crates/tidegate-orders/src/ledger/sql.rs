//! Every SQL statement of the ledger. Lock order: order rows sorted by their unique key, then stocks by
//! ascending voucher, last, because the row of a voucher on sale is the one that everybody waits for.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{Display, Write},
};

use futures_util::TryStreamExt;
use sqlx::{AssertSqlSafe, MySqlConnection, Row};

use super::{
    Incoming,
    verdict::{Changes, Known, Refusal, seat, units_by_voucher},
};
use crate::order::{Order, OrderId, Quantity, Slot, UserId, VoucherId};

pub(super) const BEGIN: &str = "START TRANSACTION";
pub(super) const COMMIT: &str = "COMMIT";
pub(super) const ROLLBACK: &str = "ROLLBACK";
/// A durable write, and every table, column and grant that a batch needs: with one of them missing, a probe that
/// succeeds would end an outage that goes on.
pub(super) const PROBE: &str = "UPDATE tidegate_probe SET at = CURRENT_TIMESTAMP(3) WHERE id = 1;\
    SELECT id, user_id, voucher_id, quantity, slot, status, entry_id FROM tb_voucher_order LIMIT 0;\
    SELECT order_id, user_id, voucher_id, quantity, reason, entry_id FROM tidegate_refusal LIMIT 0;\
    INSERT INTO tb_voucher_order (id, user_id, voucher_id, quantity, slot, entry_id) \
        SELECT 1, 1, 1, 1, 1, '' FROM DUAL WHERE FALSE;\
    INSERT INTO tidegate_refusal (order_id, user_id, voucher_id, quantity, reason, entry_id) \
        SELECT 1, 1, 1, 1, '', '' FROM DUAL WHERE FALSE;\
    UPDATE tb_seckill_voucher SET stock = stock, refusals = refusals WHERE FALSE";

/// The tutorial's number for a cancelled order.
const CANCELLED: u8 = 4;

/// What a row takes, at most, in the text of an INSERT.
const ROW_CHARS: usize = 128;
/// What a voucher takes, at most, in the text of an UPDATE of many.
const STOCK_CHARS: usize = 32;

/// Runs statements that are separated by semicolons, in one round trip; the first error ends them.
pub(super) async fn run(connection: &mut MySqlConnection, statements: String) -> sqlx::Result<()> {
    sqlx::raw_sql(AssertSqlSafe(statements)).execute(connection).await?;
    Ok(())
}

/// As [`run`]; answers with how many results and rows came.
pub(super) async fn run_counting(
    connection: &mut MySqlConnection,
    statements: String,
) -> sqlx::Result<(usize, usize)> {
    let mut answer = sqlx::raw_sql(AssertSqlSafe(statements)).fetch_many(connection);
    let (mut results, mut rows) = (0, 0);
    while let Some(part) = answer.try_next().await? {
        if part.is_left() { results += 1 } else { rows += 1 }
    }
    Ok((results, rows))
}

/// What a whole [`swift_batch`] answers with: START TRANSACTION, INSERT, UPDATE, SELECT and its row, COMMIT.
pub(super) const SWIFT_ANSWER: (usize, usize) = (5, 1);

/// A whole batch, sorted by seat, in one round trip: nobody waits for a voucher's row longer than the server needs.
/// Ends in an error, before its COMMIT, unless every voucher was there, unrefused, with stock enough; the error is
/// one of [`super::fault::needs_care`], as is that of a row that is there already.
pub(super) fn swift_batch(sorted: &[&Incoming], units: &[(VoucherId, i64)]) -> String {
    let mut sql = String::with_capacity(500 + sorted.len() * ROW_CHARS + units.len() * STOCK_CHARS);
    sql.push_str(BEGIN);
    sql.push(';');
    insert_orders(&mut sql, sorted);
    // `refusals = 0`: where an order was refused before, the careful way looks up which.
    let unrefused = "refusals = 0";
    let _ = match units {
        [(voucher, units)] => write!(
            sql,
            ";UPDATE tb_seckill_voucher SET stock = stock - {units} \
             WHERE voucher_id = {voucher} AND stock >= {units} AND {unrefused}"
        ),
        // One statement, however many vouchers: a fifth of the time that one for each takes. The join goes through
        // them in the order in which they stand here, ascending. By the index, or it would go through a small table
        // for each of them, and lock in another order, and vouchers that nobody asked for.
        many => write!(
            sql,
            ";UPDATE JSON_TABLE('[{}]', '$[*]' COLUMNS (id BIGINT PATH '$[0]', units BIGINT PATH '$[1]')) taken \
             STRAIGHT_JOIN tb_seckill_voucher v FORCE INDEX (PRIMARY) ON v.voucher_id = taken.id \
             SET v.stock = v.stock - taken.units WHERE v.stock >= taken.units AND v.{unrefused}",
            list(many.iter().map(|(voucher, units)| format!("[{voucher},{units}]")))
        ),
    };
    // The largest BIGINT UNSIGNED, and one more if a voucher was not found: out of range, which ends the packet.
    let _ = write!(sql, ";SELECT {} + (ROW_COUNT() <> {});{COMMIT}", u64::MAX, units.len());
    sql
}

/// The writes of the careful way, with their COMMIT: the locks that it holds make them certain.
pub(super) fn careful_writes(changes: &Changes) -> String {
    let created = sorted_by_seat(changes.created.iter().copied());
    let mut sql = String::new();
    if !created.is_empty() {
        insert_orders(&mut sql, &created);
        sql.push(';');
    }
    if !changes.refused.is_empty() {
        let rows = changes.refused.iter().map(|(Incoming { order, entry }, refusal)| {
            let (id, user, voucher, quantity) = (order.id, order.user, order.voucher, order.quantity);
            format!("({id},{user},{voucher},{quantity},'{}','{entry}')", refusal.word())
        });
        let _ = write!(
            sql,
            "INSERT INTO tidegate_refusal (order_id,user_id,voucher_id,quantity,reason,entry_id) VALUES {};",
            list(rows)
        );
    }
    let taken = units_by_voucher(&created).into_iter();
    let mut stocks: BTreeMap<VoucherId, (i64, u64)> =
        taken.map(|(voucher, units)| (voucher, (units, 0))).collect();
    for (incoming, _) in &changes.refused {
        stocks.entry(incoming.order.voucher).or_default().1 += 1;
    }
    for (voucher, (units, refusals)) in stocks {
        let _ = write!(
            sql,
            "UPDATE tb_seckill_voucher SET stock = stock - {units}, refusals = refusals + {refusals} \
             WHERE voucher_id = {voucher};"
        );
    }
    sql + COMMIT
}

/// Cancelled rows, with their COMMIT: they hold an id, and neither a slot nor units, so no stock changes.
pub(super) fn cancelled_writes<'a>(orders: impl IntoIterator<Item = &'a Incoming>) -> String {
    let rows = sorted_by_seat(orders).into_iter().map(|Incoming { order, entry }| {
        let Order { id, user, voucher, quantity, .. } = order;
        format!("({id},{user},{voucher},{quantity},NULL,{CANCELLED},'{entry}')")
    });
    let rows = list(rows);
    if rows.is_empty() {
        return COMMIT.to_owned();
    }
    format!(
        "INSERT INTO tb_voucher_order (id,user_id,voucher_id,quantity,slot,status,entry_id) VALUES {rows};{COMMIT}"
    )
}

/// In the order in which rows are written, so that transactions wait for each other and never in a circle.
pub(super) fn sorted_by_seat<'a>(orders: impl IntoIterator<Item = &'a Incoming>) -> Vec<&'a Incoming> {
    let mut sorted: Vec<&Incoming> = orders.into_iter().collect();
    sorted.sort_unstable_by_key(|incoming| seat(&incoming.order));
    sorted
}

/// Columns that hold their default in all rows are left out: every value costs the server time.
fn insert_orders(sql: &mut String, sorted: &[&Incoming]) {
    let plain = |order: &Order| order.quantity == Quantity::ONE && order.slot == Slot::FIRST;
    let is_plain = sorted.iter().all(|incoming| plain(&incoming.order));
    sql.push_str("INSERT INTO tb_voucher_order (id,user_id,voucher_id,");
    sql.push_str(if is_plain { "entry_id) VALUES " } else { "quantity,slot,entry_id) VALUES " });
    let mut digits = itoa::Buffer::new();
    for (at, Incoming { order, entry }) in sorted.iter().enumerate() {
        sql.push_str(if at == 0 { "(" } else { ",(" });
        let numbers =
            [order.id.get(), order.user.get(), order.voucher.get(), order.quantity.get(), order.slot.get()];
        for number in &numbers[..if is_plain { 3 } else { 5 }] {
            sql.push_str(digits.format(*number));
            sql.push(',');
        }
        let _ = write!(sql, "'{entry}')");
    }
}

/// Whether the vouchers of a batch are locked while it is looked up: what is decided holds only then.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stocks {
    Locked,
    AsTheyAre,
}

/// Reads all that [`super::verdict::decide`] needs; vouchers are locked ascending.
pub(super) async fn look_up(
    connection: &mut MySqlConnection,
    part: &[Incoming],
    stocks: Stocks,
) -> sqlx::Result<Known> {
    let vouchers: BTreeSet<VoucherId> = part.iter().map(|incoming| incoming.order.voucher).collect();
    let ids: BTreeSet<OrderId> = part.iter().map(|incoming| incoming.order.id).collect();
    let mut known = Known::default();

    let lock = match stocks {
        Stocks::Locked => " FOR UPDATE",
        Stocks::AsTheyAre => "",
    };
    let sql = format!(
        "SELECT CAST(voucher_id AS SIGNED), CAST(stock AS SIGNED) FROM tb_seckill_voucher \
         WHERE voucher_id IN ({}) AND stock IS NOT NULL ORDER BY voucher_id{lock}",
        list(&vouchers)
    );
    for row in rows(connection, sql).await? {
        if let Ok(voucher) = VoucherId::try_from(row.try_get::<i64, _>(0)?) {
            known.stocks.insert(voucher, row.try_get(1)?);
        }
    }

    let sql = format!(
        "SELECT CAST(id AS SIGNED), CAST(user_id AS SIGNED), CAST(voucher_id AS SIGNED), \
         CAST(slot IS NULL AND COALESCE(status, 1) IN (4, 6) AS SIGNED) FROM tb_voucher_order WHERE id IN ({})",
        list(&ids)
    );
    for row in rows(connection, sql).await? {
        if let Ok(id) = OrderId::try_from(row.try_get::<i64, _>(0)?) {
            known.ids.insert(id, (row.try_get(1)?, row.try_get(2)?));
            if row.try_get::<i64, _>(3)? == 1 {
                known.cancelled.insert(id);
            }
        }
    }

    let sql = format!(
        "SELECT order_id, user_id, voucher_id, reason FROM tidegate_refusal WHERE order_id IN ({})",
        list(&ids)
    );
    for row in rows(connection, sql).await? {
        if let Ok(id) = OrderId::try_from(row.try_get::<i64, _>(0)?) {
            let refusal = Refusal::from_word(row.try_get(3)?);
            known.refusals.insert(id, (row.try_get(1)?, row.try_get(2)?, refusal));
        }
    }

    for row in rows(connection, taken_seats(part)).await? {
        let seat = (
            VoucherId::try_from(row.try_get::<i64, _>(0)?),
            UserId::try_from(row.try_get::<i64, _>(1)?),
            Slot::try_from(row.try_get::<i64, _>(2)?),
        );
        if let (Ok(voucher), Ok(user), Ok(slot)) = seat {
            known.seats.insert((voucher, user, slot));
        }
    }
    Ok(known)
}

/// One range of the unique key a voucher. (`(a,b,c) IN (...)` would be a full scan on MariaDB.)
fn taken_seats(part: &[Incoming]) -> String {
    let mut users: BTreeMap<VoucherId, BTreeSet<UserId>> = BTreeMap::new();
    for incoming in part {
        users.entry(incoming.order.voucher).or_default().insert(incoming.order.user);
    }
    let ranges: Vec<String> = users
        .iter()
        .map(|(voucher, users)| format!("(voucher_id = {voucher} AND user_id IN ({}))", list(users)))
        .collect();
    format!(
        "SELECT CAST(voucher_id AS SIGNED), CAST(user_id AS SIGNED), CAST(slot AS SIGNED) \
         FROM tb_voucher_order WHERE slot IS NOT NULL AND ({})",
        ranges.join(" OR ")
    )
}

async fn rows(connection: &mut MySqlConnection, sql: String) -> sqlx::Result<Vec<sqlx::mysql::MySqlRow>> {
    sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(connection).await
}

fn list(items: impl IntoIterator<Item: Display>) -> String {
    let mut text = String::new();
    for (at, item) in items.into_iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let _ = write!(text, "{comma}{item}");
    }
    text
}
