//! What the ledger reads and writes for events. Whatever outsiders wrote goes into statements as the bytes of its text in
//! hexadecimal digits, so that no character of it means anything.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write,
    str::FromStr,
};

use sqlx::{MySqlConnection, Row as _, mysql::MySqlRow};
use tidegate_stream::EntryId;

use super::{Packet, list, look_up::Queries, numbers, write::insert_without_slot};
use crate::{
    event::{Event, EventKind, EventOutcome, EventText, History, PastEvent, Row, Step},
    ledger::event_verdict::{EventChanges, KnownEvents, OrderChange},
    order::{OrderId, Subject, UserId, VoucherId},
};

/// Reads all of it, in one round trip and without a lock.
pub(in crate::ledger) async fn look_up_events(
    connection: &mut MySqlConnection,
    subjects: &[Subject],
) -> sqlx::Result<KnownEvents> {
    let ids: BTreeSet<OrderId> = subjects.iter().map(|(order, ..)| *order).collect();
    let pairs: BTreeSet<(VoucherId, UserId)> =
        subjects.iter().map(|(_, user, voucher)| (*voucher, *user)).collect();
    let pairs = list(pairs.iter().map(|(voucher, user)| format!("[{voucher},{user}]")));
    let pairs = numbers("n", "voucher BIGINT PATH '$[0]', user BIGINT PATH '$[1]'", &pairs);
    let mut queries = Queries::default();
    add_histories(&mut queries, &ids);
    queries.add(
        format!(
            "SELECT CAST(o.voucher_id AS SIGNED), CAST(o.user_id AS SIGNED), CAST(o.id AS SIGNED) \
             FROM {pairs} tb_voucher_order o FORCE INDEX (uk_voucher_user_slot) \
             ON o.voucher_id = n.voucher AND o.user_id = n.user WHERE o.slot IS NOT NULL"
        ),
        read_live,
    );
    queries.add(
        format!(
            "SELECT u.order_id, u.user_id, u.voucher_id \
             FROM {} tidegate_unpaid_order u FORCE INDEX (PRIMARY) ON u.order_id = n.id",
            numbers("n", "id BIGINT PATH '$'", &list(&ids))
        ),
        read_time_limit,
    );
    read_known(connection, queries).await
}

/// What happened to these orders so far, of those that there are, by their primary keys: one round trip, without a lock.
pub(in crate::ledger) async fn look_up_histories(
    connection: &mut MySqlConnection,
    orders: &BTreeSet<OrderId>,
) -> sqlx::Result<HashMap<OrderId, History>> {
    let mut queries = Queries::default();
    add_histories(&mut queries, orders);
    Ok(read_known(connection, queries).await?.histories)
}

/// Which events of these orders are recorded, by the entries that brought them: one round trip, by the primary key, without a
/// lock.
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

/// The rows, the refusals and the events of orders.
fn add_histories(queries: &mut Queries<KnownEvents>, orders: &BTreeSet<OrderId>) {
    let ids = numbers("n", "id BIGINT PATH '$'", &list(orders));
    queries.add(
        format!(
            "SELECT CAST(o.id AS SIGNED), CAST(o.user_id AS SIGNED), CAST(o.voucher_id AS SIGNED), \
             CAST(o.quantity AS SIGNED), CAST(COALESCE(o.status, 1) AS SIGNED), CAST(o.slot IS NOT NULL AS SIGNED), \
             CAST(IF(o.entry_id IS NULL, UNIX_TIMESTAMP(o.create_time) * 1000, NULL) AS SIGNED) \
             FROM {ids} tb_voucher_order o FORCE INDEX (PRIMARY) ON o.id = n.id"
        ),
        read_row,
    );
    queries.add(
        format!(
            "SELECT r.order_id, r.user_id, r.voucher_id \
             FROM {ids} tidegate_refusal r FORCE INDEX (PRIMARY) ON r.order_id = n.id"
        ),
        read_refusal,
    );
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

fn read_row(known: &mut KnownEvents, row: &MySqlRow) -> sqlx::Result<()> {
    let Some(history) = history(known, row)? else { return Ok(()) };
    history.row = Some(Row {
        user: row.try_get(1)?,
        voucher: row.try_get(2)?,
        quantity: row.try_get(3)?,
        status: row.try_get(4)?,
        has_slot: row.try_get::<i64, _>(5)? == 1,
    });
    // A zero date says nothing.
    history.written_by_another_ms = row.try_get::<Option<i64>, _>(6)?.filter(|ms| *ms > 0);
    Ok(())
}

fn read_refusal(known: &mut KnownEvents, row: &MySqlRow) -> sqlx::Result<()> {
    if let Some(history) = history(known, row)? {
        history.refused = Some((row.try_get(1)?, row.try_get(2)?));
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

fn read_time_limit(known: &mut KnownEvents, row: &MySqlRow) -> sqlx::Result<()> {
    if let Ok(id) = OrderId::try_from(row.try_get::<i64, _>(0)?) {
        known.with_time_limit.insert(id, (row.try_get(1)?, row.try_get(2)?));
    }
    Ok(())
}

/// The changes of some events in one round trip, without the commit. Orders whose rows are not as they were looked up end it
/// in an error that [`crate::ledger::fault::mismatch`] knows, and so does an event that another worker has written meanwhile.
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
    if !changes.moved.is_empty() {
        packet.add(|sql| move_orders(sql, &changes.moved));
        packet.fail_if(format_args!("ROW_COUNT() <> {}", changes.moved.len()));
    }
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

/// Ascending, one index look-up a row. The conditions are the guard: a row that somebody else has changed stays as it is.
fn move_orders(sql: &mut String, moved: &BTreeMap<OrderId, OrderChange>) {
    let rows = list(moved.iter().map(|(id, change)| {
        let OrderChange { from, to, had_slot, frees_slot } = change;
        format!("[{id},{from},{to},{},{}]", i64::from(*had_slot), i64::from(*frees_slot))
    }));
    let columns = "id BIGINT PATH '$[0]', was INT PATH '$[1]', becomes INT PATH '$[2]', had_slot INT PATH '$[3]', \
                   frees INT PATH '$[4]'";
    let _ = write!(
        sql,
        "UPDATE {} tb_voucher_order o FORCE INDEX (PRIMARY) ON o.id = n.id \
         SET o.status = n.becomes, o.slot = IF(n.frees = 1, NULL, o.slot) \
         WHERE COALESCE(o.status, 1) = n.was AND (o.slot IS NOT NULL) = n.had_slot",
        numbers("n", columns, &rows)
    );
}

fn insert_events(sql: &mut String, recorded: &[(&Event, PastEvent)]) {
    let text = |text: &Option<EventText>| text.as_ref().map_or_else(|| "NULL".to_owned(), hexadecimal);
    let status = |status: Option<i64>| status.map_or_else(|| "NULL".to_owned(), |status| status.to_string());
    let rows = list(recorded.iter().map(|(event, past)| {
        format!(
            "({},{},'{}','{}',{},{},{},{},{},{},{},{},'{}')",
            event.order,
            past.number,
            event.kind,
            past.outcome.word(),
            event.user,
            event.voucher,
            text(&event.reference),
            text(&past.payment),
            text(&event.reason),
            status(past.step.and_then(|step| step.from)),
            status(past.step.map(|step| step.to)),
            past.released,
            past.entry,
        )
    }));
    let columns = "order_id,step,event,outcome,user_id,voucher_id,ref,payment,reason,from_status,to_status,released,entry_id";
    let _ = write!(sql, "INSERT INTO tidegate_event ({columns}) VALUES {rows}");
}

fn hexadecimal(text: &EventText) -> String {
    let mut sql = "_utf8mb4 0x".to_owned();
    for byte in text.as_str().bytes() {
        let _ = write!(sql, "{byte:02x}");
    }
    sql
}

/// By ascending order, as whoever asks for unpaid orders changes these rows.
fn delete_time_limits(sql: &mut String, orders: &BTreeSet<OrderId>) {
    let _ = write!(
        sql,
        "DELETE u FROM {} tidegate_unpaid_order u FORCE INDEX (PRIMARY) ON u.order_id = n.id",
        numbers("n", "id BIGINT PATH '$'", &list(orders))
    );
}

/// Comes last, by ascending voucher: everybody waits for the row of a voucher on sale.
fn return_units(sql: &mut String, units: &BTreeMap<VoucherId, i64>) {
    let rows = list(units.iter().map(|(voucher, units)| format!("[{voucher},{units}]")));
    let _ = write!(
        sql,
        "UPDATE {} tb_seckill_voucher v FORCE INDEX (PRIMARY) ON v.voucher_id = n.id SET v.stock = v.stock + n.units",
        numbers("n", "id BIGINT PATH '$[0]', units BIGINT PATH '$[1]'", &rows)
    );
}
