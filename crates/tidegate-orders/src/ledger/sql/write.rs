//! The statements with which the ledger writes orders.

use std::fmt::Write;

use tidegate_stream::EntryId;

use super::{Packet, list, look_up::ids, numbers};
use crate::{
    ledger::{
        Incoming,
        verdict::{Changes, StockChange},
    },
    order::{Order, OrderId, Quantity, Slot, UserId, Uses, VoucherId},
    partition::Partition,
    row_state::status,
    unpaid_orders::NOW_MS,
};

/// The most characters that a row takes in the text of an INSERT.
const ROW_CHARS: usize = 128;

/// The conditions that the write itself checks, because its verdicts were not decided under the locks of the vouchers.
/// A failed check, or a row that exists already, ends the packet before its commit. [`crate::ledger::fault::mismatch`]
/// knows these errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ledger) enum Guard {
    /// Checks nothing: the vouchers are locked, and their transaction is open.
    Locked,
    /// Every voucher must exist, with stock and terms as assumed, and without an earlier refusal.
    Unrefused,
    /// Like [`Guard::Unrefused`], but a voucher may have refusals, and none of the orders may have been refused before.
    NotThese,
    /// Like [`Guard::NotThese`]. Earlier refusals were looked up when the vouchers of the batch had this number of them
    /// together, so they are checked again only if the number has changed.
    NotSince(i64),
}

/// The changes of a batch in one round trip, without the commit. The voucher's row is changed last, so that other
/// writers wait for it no longer than the server needs.
pub(in crate::ledger) fn write(changes: &Changes, guard: Guard, partition: &Partition) -> Packet {
    let mut packet = Packet::with_capacity(800 + (changes.created.len() + changes.refused.len()) * ROW_CHARS);
    if guard != Guard::Locked {
        packet.begin();
    }
    let refusals_before = match guard {
        _ if changes.created.is_empty() => None,
        Guard::Locked | Guard::Unrefused => None,
        Guard::NotThese => {
            // Counted before the refusals are checked: a refusal that comes in between makes the count differ in the
            // end.
            packet.add(|sql| {
                let _ = write!(sql, "SELECT {} INTO @tidegate_refusals", refusals_of(&changes.stocks));
            });
            packet.fail_if(any_refused(changes));
            Some("@tidegate_refusals".to_owned())
        }
        Guard::NotSince(refusals) => Some(refusals.to_string()),
    };
    if !changes.created.is_empty() {
        packet.add(|sql| insert_orders(sql, &changes.created));
    }
    if !changes.limited.is_empty() {
        packet.add(|sql| insert_uses(sql, &changes.limited));
    }
    if !changes.timed.is_empty() {
        packet.add(|sql| {
            let _ = write!(sql, "SELECT {NOW_MS} INTO @tidegate_now");
        });
        packet.add(|sql| insert_time_limits(sql, &changes.timed, partition));
    }
    if !changes.refused.is_empty() {
        packet.add(|sql| insert_refusals(sql, changes));
    }
    if !changes.stocks.is_empty() {
        packet.add(|sql| change_stocks(sql, &changes.stocks, guard));
        if guard != Guard::Locked {
            packet.fail_if(format_args!("ROW_COUNT() <> {}", changes.stocks.len()));
        }
    }
    // From here on this transaction holds the vouchers' rows, so these answers hold until the commit.
    if let Some(before) = refusals_before {
        packet.fail_if(format_args!(
            "IF({} <> {before} + {}, {}, 0)",
            refusals_of(&changes.stocks),
            changes.refused.len(),
            any_refused(changes)
        ));
    }
    if guard != Guard::Locked && !changes.refused.is_empty() {
        packet.fail_if(format_args!(
            "EXISTS (SELECT 1 FROM {} tb_voucher_order o FORCE INDEX (PRIMARY) ON o.id = n.id)",
            ids(changes.refused.iter().map(|(incoming, _)| incoming))
        ));
    }
    packet
}

fn any_refused(changes: &Changes) -> String {
    format!(
        "EXISTS (SELECT 1 FROM {} tidegate_refusal r FORCE INDEX (PRIMARY) ON r.order_id = n.id)",
        ids(&changes.created)
    )
}

/// The number of refusals of the vouchers of a batch, as a subquery.
fn refusals_of(stocks: &[(VoucherId, StockChange)]) -> String {
    match stocks {
        [(voucher, _)] => {
            format!(
                "(SELECT CAST(SUM(refusals) AS SIGNED) FROM tb_seckill_voucher WHERE voucher_id = {voucher})"
            )
        }
        many => format!(
            "(SELECT CAST(SUM(v.refusals) AS SIGNED) FROM {} \
             tb_seckill_voucher v FORCE INDEX (PRIMARY) ON v.voucher_id = n.id)",
            numbers("n", "id BIGINT PATH '$'", &list(many.iter().map(|(voucher, _)| voucher)))
        ),
    }
}

/// The condition that a voucher `v` is as assumed in `n`.
const AS_ASSUMED: &str = "v.stock >= n.units AND v.stock < n.below \
                          AND COALESCE(CAST(v.pay_within AS SIGNED), -1) = n.within AND COALESCE(v.limits_since, -1) = n.since";

/// Takes units from the stocks, and counts refusals. Unless the vouchers are locked, it changes only those that are as
/// assumed.
fn change_stocks(sql: &mut String, stocks: &[(VoucherId, StockChange)], guard: Guard) {
    let _ = match stocks {
        [(voucher, StockChange { units, refused, below, terms })] => {
            let _ = write!(
                sql,
                "UPDATE tb_seckill_voucher SET stock = stock - {units}, refusals = refusals + {refused} \
                 WHERE voucher_id = {voucher}"
            );
            let number =
                |number: Option<i64>| number.map_or_else(|| "NULL".to_owned(), |number| number.to_string());
            let (within, since) = (number(terms.pay_within_s), number(terms.limits_since_ms));
            let as_assumed = format!(
                "stock >= {units} AND stock < {below} AND pay_within <=> {within} AND limits_since <=> {since}"
            );
            match guard {
                Guard::Locked => Ok(()),
                Guard::Unrefused => write!(sql, " AND {as_assumed} AND refusals = 0"),
                Guard::NotThese | Guard::NotSince(_) => write!(sql, " AND {as_assumed}"),
            }
        }
        // One statement for all vouchers takes a fifth of the time of one for each. The join goes through them in this
        // order, ascending, and by the index. Otherwise it would read a small table for each of them, in another order,
        // and lock vouchers that are not in the batch.
        many => {
            let rows = list(many.iter().map(|(voucher, change)| {
                let StockChange { units, refused, below, terms } = change;
                let within = terms.pay_within_s.unwrap_or(-1);
                let since = terms.limits_since_ms.unwrap_or(-1);
                format!("[{voucher},{units},{refused},{below},{within},{since}]")
            }));
            let _ = write!(
                sql,
                "UPDATE {} tb_seckill_voucher v FORCE INDEX (PRIMARY) ON v.voucher_id = n.id \
                 SET v.stock = v.stock - n.units, v.refusals = v.refusals + n.refused",
                numbers(
                    "n",
                    "id BIGINT PATH '$[0]', units BIGINT PATH '$[1]', refused BIGINT PATH '$[2]', \
                     below BIGINT PATH '$[3]', within BIGINT PATH '$[4]', since BIGINT PATH '$[5]'",
                    &rows
                )
            );
            match guard {
                Guard::Locked => Ok(()),
                Guard::Unrefused => write!(sql, " WHERE {AS_ASSUMED} AND v.refusals = 0"),
                Guard::NotThese | Guard::NotSince(_) => write!(sql, " WHERE {AS_ASSUMED}"),
            }
        }
    };
}

fn insert_refusals(sql: &mut String, changes: &Changes) {
    let rows = changes.refused.iter().map(|(Incoming { order, entry }, refusal)| {
        let (id, user, voucher, quantity) = (order.id, order.user, order.voucher, order.quantity);
        format!("({id},{user},{voucher},{quantity},'{}','{entry}')", refusal.word())
    });
    let _ = write!(
        sql,
        "INSERT INTO tidegate_refusal (order_id,user_id,voucher_id,quantity,reason,entry_id) VALUES {}",
        list(rows)
    );
}

/// Inserts cancelled rows. They hold an id, and neither a slot nor units, so no stock changes.
pub(in crate::ledger) fn cancelled_rows<'a>(
    orders: impl IntoIterator<Item = &'a Incoming>,
) -> Option<String> {
    let mut orders: Vec<&Incoming> = orders.into_iter().collect();
    orders.sort_unstable_by_key(|incoming| incoming.order.id);
    let rows = orders.iter().map(|Incoming { order, entry }| {
        let Order { id, user, voucher, quantity, .. } = order;
        (*id, *user, *voucher, quantity.get(), status::CANCELLED, *entry)
    });
    (!orders.is_empty()).then(|| insert_without_slot(rows))
}

/// Inserts rows that hold an id, and neither a slot nor units: id, user, voucher, quantity, status, entry.
pub(super) fn insert_without_slot(
    rows: impl IntoIterator<Item = (OrderId, UserId, VoucherId, i64, i64, EntryId)>,
) -> String {
    let rows = list(rows.into_iter().map(|(id, user, voucher, quantity, status, entry)| {
        format!("({id},{user},{voucher},{quantity},NULL,{status},'{entry}')")
    }));
    let columns = "id,user_id,voucher_id,quantity,slot,status,entry_id";
    format!("INSERT INTO tb_voucher_order ({columns}) VALUES {rows}")
}

/// Inserts orders, without the columns that have their default in all rows: every value costs the server time.
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

/// Replaces the rows of what orders used of limits. A row may remain from an order that was deleted since; it does no
/// harm.
fn insert_uses(sql: &mut String, limited: &[(&Incoming, &Uses)]) {
    sql.push_str("REPLACE INTO tidegate_limit_use (voucher_id,order_id,uses) VALUES ");
    for (at, (Incoming { order, .. }, uses)) in limited.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let _ = write!(sql, "{comma}({},{},'{uses}')", order.voucher, order.id);
    }
}

/// Replaces the rows of the times by which orders must be paid, by the clock of the server. A row may remain from an
/// order that was deleted since; it does no harm.
fn insert_time_limits(sql: &mut String, timed: &[(&Incoming, i64)], partition: &Partition) {
    let rows = list(timed.iter().map(|(Incoming { order, .. }, within_s)| {
        let (id, user, voucher, within_ms) = (order.id, order.user, order.voucher, within_s * 1000);
        let code = partition.code_of(voucher);
        format!("({id},{user},{voucher},@tidegate_now+{within_ms},@tidegate_now+{within_ms},{code})")
    }));
    let columns = "order_id,user_id,voucher_id,due_ms,ask_ms,partition_code";
    let _ = write!(sql, "REPLACE INTO tidegate_unpaid_order ({columns}) VALUES {rows}");
}
