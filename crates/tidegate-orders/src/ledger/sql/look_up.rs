//! The queries with which the ledger reads orders.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::TryStreamExt;
use sqlx::{AssertSqlSafe, Either, MySqlConnection, Row, mysql::MySqlRow};

use super::{BEGIN, ROLLBACK, list, numbers};
use crate::{
    ledger::{
        Incoming,
        verdict::{Known, Refusal, SaleTerms},
    },
    lists::MOST_LISTED,
    order::{OrderId, Slot, UserId, VoucherId},
    row_state::CANCELLED,
};

/// Whether the vouchers of a batch are locked when it is looked up. If not, the write must check the decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ledger) enum Stocks {
    Locked,
    AsTheyAre,
}

/// The amount that is looked up, from less to more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::ledger) enum Depth {
    /// The vouchers that exist, with their stocks.
    Vouchers,
    /// Also the live orders of the users, and earlier refusals. These show nearly every order that comes twice.
    Users,
    /// Also the order ids: of cancelled orders, and of ids that belong to another user or voucher.
    Ids,
}

/// The last committed contents of a row that another session has locked. Every write of orders changes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ledger) struct LockedRow {
    pub stock: Option<i64>,
    pub refusals: Option<i64>,
}

/// Reads what [`crate::ledger::verdict::decide`] needs, in one round trip. If the vouchers are locked, it locks them in
/// ascending order, and the transaction stays open.
pub(in crate::ledger) async fn look_up(
    connection: &mut MySqlConnection,
    part: &[&Incoming],
    stocks: Stocks,
    depth: Depth,
) -> sqlx::Result<Known> {
    let mut queries = Queries::default();
    if stocks == Stocks::Locked {
        queries.add(BEGIN.to_owned(), |_, _| Ok(()));
    }
    queries.add_stocks(part, stocks);
    if depth >= Depth::Users {
        queries.add(taken_by_users(part), read_user_row);
        queries.add(refusals_of_ids(part), read_refusal_row);
    }
    if depth >= Depth::Ids {
        queries.add(rows_of_ids(part), read_id_row);
    }
    queries.run(connection).await
}

/// The vouchers among these whose rows are locked at this moment, with the last committed contents. Does not wait for
/// locks.
pub(in crate::ledger) async fn locked_vouchers(
    connection: &mut MySqlConnection,
    vouchers: &[VoucherId],
) -> sqlx::Result<BTreeMap<VoucherId, LockedRow>> {
    let mut sql = BEGIN.to_owned();
    for vouchers in vouchers.chunks(MOST_LISTED) {
        let select = format!(
            "SELECT CAST(voucher_id AS SIGNED), CAST(stock AS SIGNED), CAST(refusals AS SIGNED) \
             FROM tb_seckill_voucher FORCE INDEX (PRIMARY) WHERE voucher_id IN ({})",
            list(vouchers)
        );
        sql = format!("{sql};{select};{select} FOR UPDATE SKIP LOCKED");
    }
    sql = format!("{sql};{ROLLBACK}");
    let mut locked = BTreeMap::new();
    let mut answer = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_many(connection);
    let mut result = 0;
    while let Some(part) = answer.try_next().await? {
        match part {
            Either::Left(_) => result += 1,
            Either::Right(row) => {
                let Ok(voucher) = VoucherId::try_from(row.try_get::<i64, _>(0)?) else { continue };
                // After the BEGIN come pairs of results: the rows that exist, then those that are free.
                if result % 2 == 1 {
                    locked.insert(voucher, LockedRow { stock: row.try_get(1)?, refusals: row.try_get(2)? });
                } else {
                    locked.remove(&voucher);
                }
            }
        }
    }
    Ok(locked)
}

type RowReader<T> = fn(&mut T, &MySqlRow) -> sqlx::Result<()>;

/// Queries for one round trip, and the function that reads the rows of each.
pub(super) struct Queries<T> {
    sql: String,
    readers: Vec<RowReader<T>>,
}

impl<T> Default for Queries<T> {
    fn default() -> Self {
        Self { sql: String::new(), readers: Vec::new() }
    }
}

impl<T: Default> Queries<T> {
    pub(super) fn add(&mut self, query: String, reader: RowReader<T>) {
        if !self.sql.is_empty() {
            self.sql.push(';');
        }
        self.sql.push_str(&query);
        self.readers.push(reader);
    }

    pub(super) async fn run(self, connection: &mut MySqlConnection) -> sqlx::Result<T> {
        let mut known = T::default();
        let mut answers = sqlx::raw_sql(AssertSqlSafe(self.sql)).fetch_many(connection);
        let mut readers = self.readers.iter();
        let mut reader = readers.next();
        while let Some(part) = answers.try_next().await? {
            match (part, reader) {
                (Either::Left(_), _) => reader = readers.next(),
                (Either::Right(row), Some(read)) => read(&mut known, &row)?,
                (Either::Right(_), None) => {}
            }
        }
        Ok(known)
    }
}

impl Queries<Known> {
    fn add_stocks(&mut self, part: &[&Incoming], stocks: Stocks) {
        let vouchers: BTreeSet<VoucherId> = part.iter().map(|incoming| incoming.order.voucher).collect();
        let vouchers: Vec<VoucherId> = vouchers.into_iter().collect();
        let lock = match stocks {
            Stocks::Locked => " ORDER BY voucher_id FOR UPDATE",
            Stocks::AsTheyAre => "",
        };
        // By the primary key even if the table is small: otherwise the whole table would be read, and locked.
        for vouchers in vouchers.chunks(MOST_LISTED) {
            self.add(
                format!(
                    "SELECT CAST(voucher_id AS SIGNED), CAST(stock AS SIGNED), CAST(refusals AS SIGNED), \
                     CAST(pay_within AS SIGNED), limits_since FROM tb_seckill_voucher FORCE INDEX (PRIMARY) \
                     WHERE voucher_id IN ({}) AND stock IS NOT NULL{lock}",
                    list(vouchers)
                ),
                read_voucher_row,
            );
        }
    }
}

/// The slots that the users of a batch hold, by the unique key, which holds the order ids, too.
fn taken_by_users(part: &[&Incoming]) -> String {
    let pairs: BTreeSet<(VoucherId, UserId)> =
        part.iter().map(|incoming| (incoming.order.voucher, incoming.order.user)).collect();
    format!(
        "SELECT CAST(o.voucher_id AS SIGNED), CAST(o.user_id AS SIGNED), CAST(o.slot AS SIGNED), CAST(o.id AS SIGNED) \
         FROM {} tb_voucher_order o FORCE INDEX (uk_voucher_user_slot) \
         ON o.voucher_id = n.voucher AND o.user_id = n.user WHERE o.slot IS NOT NULL",
        numbers(
            "n",
            "voucher BIGINT PATH '$[0]', user BIGINT PATH '$[1]'",
            &list(pairs.iter().map(|(voucher, user)| format!("[{voucher},{user}]")))
        )
    )
}

fn rows_of_ids(part: &[&Incoming]) -> String {
    format!(
        "SELECT CAST(o.id AS SIGNED), CAST(o.user_id AS SIGNED), CAST(o.voucher_id AS SIGNED), \
         CAST({CANCELLED} AS SIGNED) FROM {} tb_voucher_order o FORCE INDEX (PRIMARY) ON o.id = n.id",
        ids(part)
    )
}

fn refusals_of_ids(part: &[&Incoming]) -> String {
    format!(
        "SELECT r.order_id, r.user_id, r.voucher_id, r.reason \
         FROM {} tidegate_refusal r FORCE INDEX (PRIMARY) ON r.order_id = n.id",
        ids(part)
    )
}

/// The ids of a batch, ascending, as a table to join with.
pub(super) fn ids<'a>(part: impl IntoIterator<Item = &'a &'a Incoming>) -> String {
    let ids: BTreeSet<OrderId> = part.into_iter().map(|incoming| incoming.order.id).collect();
    numbers("n", "id BIGINT PATH '$'", &list(ids))
}

fn read_voucher_row(known: &mut Known, row: &MySqlRow) -> sqlx::Result<()> {
    if let Ok(voucher) = VoucherId::try_from(row.try_get::<i64, _>(0)?) {
        known.stocks.insert(voucher, row.try_get(1)?);
        known.refused_of.insert(voucher, row.try_get(2)?);
        let terms = SaleTerms { pay_within_s: row.try_get(3)?, limits_since_ms: row.try_get(4)? };
        if terms != SaleTerms::default() {
            known.terms.insert(voucher, terms);
        }
    }
    Ok(())
}

fn read_user_row(known: &mut Known, row: &MySqlRow) -> sqlx::Result<()> {
    let (voucher, user, id) =
        (row.try_get::<i64, _>(0)?, row.try_get::<i64, _>(1)?, row.try_get::<i64, _>(3)?);
    if let Ok(id) = OrderId::try_from(id) {
        known.ids.insert(id, (user, voucher));
    }
    let slot_key =
        (VoucherId::try_from(voucher), UserId::try_from(user), Slot::try_from(row.try_get::<i64, _>(2)?));
    if let (Ok(voucher), Ok(user), Ok(slot)) = slot_key {
        known.slot_keys.insert((voucher, user, slot), id);
    }
    Ok(())
}

fn read_id_row(known: &mut Known, row: &MySqlRow) -> sqlx::Result<()> {
    if let Ok(id) = OrderId::try_from(row.try_get::<i64, _>(0)?) {
        known.ids.insert(id, (row.try_get(1)?, row.try_get(2)?));
        if row.try_get::<i64, _>(3)? == 1 {
            known.cancelled.insert(id);
        }
    }
    Ok(())
}

fn read_refusal_row(known: &mut Known, row: &MySqlRow) -> sqlx::Result<()> {
    if let Ok(id) = OrderId::try_from(row.try_get::<i64, _>(0)?) {
        let refusal = Refusal::from_word(row.try_get(3)?);
        known.refusals.insert(id, (row.try_get(1)?, row.try_get(2)?, refusal));
    }
    Ok(())
}
