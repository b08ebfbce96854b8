//! The statements with which the ledger reads and writes events. Texts from outside go into statements as the bytes of
//! the text in hexadecimal digits, so that no character of them has a meaning in SQL.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write,
    str::FromStr,
};

use sqlx::{MySqlConnection, Row as _, mysql::MySqlRow};
use tidegate_stream::EntryId;

use super::{Packet, list, look_up::Queries, numbers, table_of_numbers, write::insert_without_slot};
use crate::{
    event::{Event, EventKind, EventOutcome, EventText, History, PastEvent, Row, Step},
    ledger::event_verdict::{EventChanges, KnownEvents, OrderChange},
    lists::MOST_LISTED,
    order::{OrderId, OrderIdentity, UserId, VoucherId},
};

/// Reads what is known about orders, and which live orders these users have, in one round trip and without a lock.
pub(in crate::ledger) async fn look_up_events(
    connection: &mut MySqlConnection,
    orders: &BTreeSet<OrderId>,
    with_live_orders_of: &[OrderIdentity],
) -> sqlx::Result<KnownEvents> {
    let mut queries = Queries::default();
    add_histories(&mut queries, orders);
    let pairs: BTreeSet<(VoucherId, UserId)> =
        with_live_orders_of.iter().map(|(_, user, voucher)| (*voucher, *user)).collect();
    if !pairs.is_empty() {
        let pairs = list(pairs.iter().map(|(voucher, user)| format!("[{voucher},{user}]")));
        let pairs = numbers("n", "voucher BIGINT PATH '$[0]', user BIGINT PATH '$[1]'", &pairs);
        queries.add(
            format!(
                "SELECT CAST(o.voucher_id AS SIGNED), CAST(o.user_id AS SIGNED), CAST(o.id AS SIGNED) \
                 FROM {pairs} tb_voucher_order o FORCE INDEX (uk_voucher_user_slot) \
                 ON o.voucher_id = n.voucher AND o.user_id = n.user WHERE o.slot IS NOT NULL"
            ),
            read_live,
        );
    }
    read_known(connection, queries).await
}

/// Reads the histories of the orders that exist among these, by their primary keys: one round trip, without a lock.
pub(in crate::ledger) async fn look_up_histories(
    connection: &mut MySqlConnection,
    orders: &BTreeSet<OrderId>,
) -> sqlx::Result<HashMap<OrderId, History>> {
    let mut queries = Queries::default();
    add_histories(&mut queries, orders);
    Ok(read_known(connection, queries).await?.histories)
}

/// Reads which events of these orders are recorded, with the entries that brought them: one round trip, by the primary
/// key, without a lock.
pub(in crate::ledger) async fn look_up_recorded(
    connection: &mut MySqlConnection,
    orders: &BTreeSet<OrderId>,
) -> sqlx::Result<HashMap<OrderId, Vec<(Option<EventKind>, EntryId)>>> {
    let mut queries = Queries::<HashMap<OrderId, Vec<(Option<EventKind>, EntryId)>>>::default();
    queries.add(
        format!(
            "SELECT e.order_id, CAST(e.event AS CHAR), CAST(e.entry_id AS CHAR) \
             FROM {} tidegate_event e FORCE INDEX (PRIMARY) ON e.order_id = n.id",
            numbers("n", "id BIGINT PATH '$'", &list(orders))
        ),
        |recorded, row| {
            let Ok(order) = OrderId::try_from(row.try_get::<i64, _>(0)?) else { return Ok(()) };
            let kind = EventKind::from_word(row.try_get::<&str, _>(1)?.as_bytes());
            let entry = EntryId::from_str(row.try_get(2)?).unwrap_or_default();
            recorded.entry(order).or_default().push((kind, entry));
            Ok(())
        },
    );
    queries.run(connection).await
}

/// Adds the queries for the rows, refusals, time limits and events of orders. One query reads all but the events,
/// because each table of numbers to join with costs as much as the look-up.
fn add_histories(queries: &mut Queries<KnownEvents>, orders: &BTreeSet<OrderId>) {
    let ids = list(orders);
    queries.add(
        format!(
            "SELECT n.id, CAST(o.user_id AS SIGNED), CAST(o.voucher_id AS SIGNED), \
             CAST(o.quantity AS SIGNED), CAST(COALESCE(o.status, 1) AS SIGNED), CAST(o.slot IS NOT NULL AS SIGNED), \
             CAST(IF(o.id IS NOT NULL AND o.entry_id IS NULL, UNIX_TIMESTAMP(o.create_time) * 1000, NULL) AS SIGNED), \
             CAST(o.id IS NOT NULL AS SIGNED), r.user_id, r.voucher_id, u.user_id, u.voucher_id \
             FROM {} LEFT JOIN tb_voucher_order o FORCE INDEX (PRIMARY) ON o.id = n.id \
             LEFT JOIN tidegate_refusal r FORCE INDEX (PRIMARY) ON r.order_id = n.id \
             LEFT JOIN tidegate_unpaid_order u FORCE INDEX (PRIMARY) ON u.order_id = n.id",
            table_of_numbers("n", "id BIGINT PATH '$'", &ids)
        ),
        read_order,
    );
    let ids = numbers("n", "id BIGINT PATH '$'", &ids);
    queries.add(
        format!(
            "SELECT e.order_id, CAST(e.step AS SIGNED), CAST(e.event AS CHAR), CAST(e.outcome AS CHAR), \
             CAST(e.ref AS CHAR), CAST(e.payment AS CHAR), CAST(e.reason AS CHAR), CAST(e.from_status AS SIGNED), \
             CAST(e.to_status AS SIGNED), CAST(e.released AS SIGNED), CAST(e.entry_id AS CHAR), \
             CAST(UNIX_TIMESTAMP(e.at) * 1000 AS SIGNED) \
             FROM {ids} tidegate_event e FORCE INDEX (PRIMARY) ON e.order_id = n.id"
        ),
        read_event,
    );
}

async fn read_known(
    connection: &mut MySqlConnection,
    queries: Queries<KnownEvents>,
) -> sqlx::Result<KnownEvents> {
    let mut known = queries.run(connection).await?;
    for history in known.histories.values_mut() {
        history.events.sort_unstable_by_key(|past| past.number);
    }
    Ok(known)
}

fn history<'k>(known: &'k mut KnownEvents, row: &MySqlRow) -> sqlx::Result<Option<&'k mut History>> {
    let id = OrderId::try_from(row.try_get::<i64, _>(0)?).ok();
    Ok(id.map(|id| known.histories.entry(id).or_default()))
}

fn read_order(known: &mut KnownEvents, row: &MySqlRow) -> sqlx::Result<()> {
    let Ok(id) = OrderId::try_from(row.try_get::<i64, _>(0)?) else { return Ok(()) };
    let (is_there, refused, limited): (i64, Option<i64>, Option<i64>) =
        (row.try_get(7)?, row.try_get(8)?, row.try_get(10)?);
    if let Some(user) = limited {
        known.with_time_limit.insert(id, (user, row.try_get(11)?));
    }
    if is_there == 0 && refused.is_none() {
        return Ok(());
    }
    let history = known.histories.entry(id).or_default();
    if let Some(user) = refused {
        history.refused = Some((user, row.try_get(9)?));
    }
    if is_there == 1 {
        history.row = Some(Row {
            user: row.try_get(1)?,
            voucher: row.try_get(2)?,
            quantity: row.try_get(3)?,
            status: row.try_get(4)?,
            has_slot: row.try_get::<i64, _>(5)? == 1,
        });
        // A zero date is no time.
        history.written_by_another_ms = row.try_get::<Option<i64>, _>(6)?.filter(|ms| *ms > 0);
    }
    Ok(())
}

fn read_event(known: &mut KnownEvents, row: &MySqlRow) -> sqlx::Result<()> {
    let Some(history) = history(known, row)? else { return Ok(()) };
    let text = |at: usize| -> sqlx::Result<Option<EventText>> {
        Ok(row.try_get::<Option<&str>, _>(at)?.and_then(|text| text.parse().ok()))
    };
    let (from, to): (Option<i64>, Option<i64>) = (row.try_get(7)?, row.try_get(8)?);
    let number = u32::try_from(row.try_get::<i64, _>(1)?).unwrap_or_default();
    history.recorded_ms.extend(row.try_get::<Option<i64>, _>(11)?.map(|at_ms| (number, at_ms)));
    history.events.push(PastEvent {
        number,
        kind: EventKind::from_word(row.try_get::<&str, _>(2)?.as_bytes()),
        outcome: EventOutcome::from_word(row.try_get(3)?),
        reference: text(4)?,
        payment: text(5)?,
        reason: text(6)?,
        step: to.map(|to| Step { from, to }),
        released: row.try_get(9)?,
        entry: EntryId::from_str(row.try_get(10)?).unwrap_or_default(),
    });
    Ok(())
}

fn read_live(known: &mut KnownEvents, row: &MySqlRow) -> sqlx::Result<()> {
    let key = (VoucherId::try_from(row.try_get::<i64, _>(0)?), UserId::try_from(row.try_get::<i64, _>(1)?));
    if let ((Ok(voucher), Ok(user)), Ok(id)) = (key, OrderId::try_from(row.try_get::<i64, _>(2)?)) {
        known.live.entry((voucher, user)).or_default().insert(id);
    }
    Ok(())
}

/// The changes of some events in one round trip, without the commit. If the row of an order has changed since the
/// look-up, or another worker has written an event meanwhile, the packet ends in an error.
/// [`crate::ledger::fault::mismatch`] knows that error.
pub(in crate::ledger) fn write_events(changes: &EventChanges<'_>) -> Packet {
    let mut packet = Packet::default();
    packet.begin();
    if !changes.cancelled_before.is_empty() {
        let rows = changes
            .cancelled_before
            .iter()
            .map(|(id, (event, entry, status))| (*id, event.user, event.voucher, 1, *status, *entry));
        packet.add_text(&insert_without_slot(rows));
    }
    move_orders(&mut packet, &changes.moved);
    if !changes.recorded.is_empty() {
        packet.add(|sql| insert_events(sql, &changes.recorded));
    }
    if !changes.time_limits_over.is_empty() {
        packet.add(|sql| delete_time_limits(sql, &changes.time_limits_over));
    }
    if !changes.units.is_empty() {
        packet.add(|sql| return_units(sql, &changes.units));
    }
    packet
}

/// Adds a statement for each list of orders with the same change, ascending, with one index look-up for each row. The
/// conditions are the guard: a row that another program has changed stays as it is. Joined with a table of numbers, an
/// order costs MariaDB 6.3 µs instead of 3.4.
fn move_orders(packet: &mut Packet, moved: &BTreeMap<OrderId, OrderChange>) {
    let mut alike: BTreeMap<OrderChange, Vec<OrderId>> = BTreeMap::new();
    for (order, change) in moved {
        alike.entry(*change).or_default().push(*order);
    }
    for (OrderChange { from, to, had_slot, frees_slot }, orders) in &alike {
        let slot = if *had_slot { "IS NOT NULL" } else { "IS NULL" };
        let frees = if *frees_slot { ", slot = NULL" } else { "" };
        for orders in orders.chunks(MOST_LISTED) {
            packet.add(|sql| {
                let _ = write!(
                    sql,
                    "UPDATE tb_voucher_order FORCE INDEX (PRIMARY) SET status = {to}{frees} \
                     WHERE id IN ({}) AND COALESCE(status, 1) = {from} AND slot {slot}",
                    list(orders)
                );
            });
            packet.fail_if(format_args!("ROW_COUNT() <> {}", orders.len()));
        }
    }
}

fn insert_events(sql: &mut String, recorded: &[(&Event, PastEvent)]) {
    let columns = "order_id,step,event,outcome,user_id,voucher_id,ref,payment,reason,from_status,to_status,released,entry_id";
    let _ = write!(sql, "INSERT INTO tidegate_event ({columns}) VALUES ");
    for (at, (event, past)) in recorded.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let _ =
            write!(sql, "{comma}({},{},'{}','{}'", event.order, past.number, event.kind, past.outcome.word());
        let _ = write!(sql, ",{},{}", event.user, event.voucher);
        for text in [&event.reference, &past.payment, &event.reason] {
            sql.push(',');
            match text {
                Some(text) => push_hexadecimal(sql, text),
                None => sql.push_str("NULL"),
            }
        }
        for status in [past.step.and_then(|step| step.from), past.step.map(|step| step.to)] {
            let _ = match status {
                Some(status) => write!(sql, ",{status}"),
                None => write!(sql, ",NULL"),
            };
        }
        let _ = write!(sql, ",{},'{}')", past.released, past.entry);
    }
}

fn push_hexadecimal(sql: &mut String, text: &EventText) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    sql.push_str("_utf8mb4 0x");
    for byte in text.as_str().bytes() {
        sql.extend([byte >> 4, byte & 15].map(|digit| char::from(DIGITS[usize::from(digit)])));
    }
}

/// Deletes time limits by ascending order id, as the sweeper changes these rows when it asks for unpaid orders.
fn delete_time_limits(sql: &mut String, orders: &BTreeSet<OrderId>) {
    let _ = write!(
        sql,
        "DELETE u FROM {} tidegate_unpaid_order u FORCE INDEX (PRIMARY) ON u.order_id = n.id",
        numbers("n", "id BIGINT PATH '$'", &list(orders))
    );
}

/// Returns units to vouchers. Comes last, by ascending voucher, because all writers wait for the row of a voucher on
/// sale.
fn return_units(sql: &mut String, units: &BTreeMap<VoucherId, i64>) {
    let rows = list(units.iter().map(|(voucher, units)| format!("[{voucher},{units}]")));
    let _ = write!(
        sql,
        "UPDATE {} tb_seckill_voucher v FORCE INDEX (PRIMARY) ON v.voucher_id = n.id SET v.stock = v.stock + n.units",
        numbers("n", "id BIGINT PATH '$[0]', units BIGINT PATH '$[1]'", &rows)
    );
}
