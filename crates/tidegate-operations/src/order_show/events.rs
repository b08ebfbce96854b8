//! What happened to orders after they were placed, as MySQL has it.

use serde::{Serialize, Serializer};
use sqlx::{AssertSqlSafe, MySqlPool, mysql::MySqlRow, prelude::*};
use tidegate_orders::{
    EventKind,
    event::{EventOutcome, EventText, PastEvent, Step},
    order::OrderId,
    vouchers::VoucherError,
    wire::{FieldNames, Message},
};
use tidegate_stream::{EntryId, Letter};

use super::mysql_reader::{LOOKUP, as_text, listed};

// By the primary key; the server sorts none of it.
const EVENTS: &str = "SELECT order_id, CAST(step AS SIGNED), CAST(event AS CHAR), CAST(outcome AS CHAR), user_id, \
    voucher_id, CAST(ref AS CHAR), CAST(payment AS CHAR), CAST(reason AS CHAR), CAST(from_status AS SIGNED), \
    CAST(to_status AS SIGNED), CAST(released AS SIGNED), CAST(entry_id AS CHAR), \
    CAST(UNIX_TIMESTAMP(at) * 1000 AS SIGNED) FROM tidegate_event";

/// A row of `tidegate_event`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventRow {
    /// The order.
    pub order: OrderId,
    /// Which of its events, from 1.
    pub step: i64,
    /// What happened, in a word.
    pub event: String,
    /// `applied`, `unchanged`, `refund_due`, or why it was rejected.
    pub outcome: String,
    /// Whose order it is, as the event says.
    #[serde(serialize_with = "as_text")]
    pub user: i64,
    /// What was bought, as the event says.
    #[serde(serialize_with = "as_text")]
    pub voucher: i64,
    /// The outside's own id of it.
    #[serde(rename = "ref")]
    pub reference: Option<String>,
    /// Of a refund: the `ref` of the payment that is given back, as the event says or as it was the only one.
    pub payment: Option<String>,
    /// Why, in a word of the sender.
    pub reason: Option<String>,
    /// The status before; None: the order did not move, or had no row.
    pub from: Option<i64>,
    /// The status after; None: the order did not move.
    pub to: Option<i64>,
    /// Units that it gave back.
    pub released: i64,
    /// The entry that brought it.
    pub entry: String,
    /// When it was recorded, in Unix milliseconds.
    pub at_ms: Option<i64>,
}

/// A dead letter that says what happened to the order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BuriedEvent {
    /// The letter.
    #[serde(serialize_with = "as_text_of_entry")]
    pub letter: EntryId,
    /// When it was buried, in Unix milliseconds.
    pub at_ms: Option<i64>,
    /// Why, in a word.
    pub reason: Option<String>,
    /// What happened.
    pub event: EventKind,
    /// The outside's own id of it.
    #[serde(rename = "ref")]
    pub reference: Option<EventText>,
}

fn as_text_of_entry<S: Serializer>(id: &EntryId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

impl BuriedEvent {
    /// Reads a letter; None: it holds no event of this order that a worker can record.
    pub(super) fn of(fields: &FieldNames, letter: &Letter, order: OrderId) -> Option<Self> {
        let Ok(Message::Event(event)) = fields.decode_message(&letter.entry()) else { return None };
        let burial = letter.burial.as_ref();
        (event.order == order).then(|| Self {
            letter: letter.id,
            at_ms: burial.and_then(|burial| i64::try_from(burial.at_ms).ok()),
            reason: burial.map(|burial| burial.reason.clone()),
            event: event.kind,
            reference: event.reference,
        })
    }
}

impl EventRow {
    /// The row as the rules of events read it.
    pub(crate) fn past_event(&self) -> PastEvent {
        let text = |text: &Option<String>| -> Option<EventText> { text.as_ref()?.parse().ok() };
        PastEvent {
            number: u32::try_from(self.step).unwrap_or_default(),
            kind: EventKind::from_word(self.event.as_bytes()),
            reference: text(&self.reference),
            payment: text(&self.payment),
            reason: text(&self.reason),
            outcome: EventOutcome::from_word(&self.outcome),
            step: self.to.map(|to| Step { from: self.from, to }),
            released: self.released,
            entry: self.entry.parse().unwrap_or_default(),
        }
    }
}

/// The events of these orders, those of each in the order in which they were recorded.
///
/// # Errors
/// When MySQL does not answer or the tables are not ready.
pub async fn find_events(pool: &MySqlPool, orders: &[OrderId]) -> Result<Vec<EventRow>, VoucherError> {
    let mut found = Vec::new();
    for orders in orders.chunks(LOOKUP) {
        let sql = format!("{EVENTS} WHERE order_id IN ({}) ORDER BY order_id, step", listed(orders));
        let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(pool).await?;
        found.extend(
            rows.iter().filter_map(|row| event_row(row).transpose()).collect::<sqlx::Result<Vec<_>>>()?,
        );
    }
    Ok(found)
}

fn event_row(row: &MySqlRow) -> sqlx::Result<Option<EventRow>> {
    let Ok(order) = OrderId::try_from(row.try_get::<i64, _>(0)?) else { return Ok(None) };
    Ok(Some(EventRow {
        order,
        step: row.try_get(1)?,
        event: row.try_get(2)?,
        outcome: row.try_get(3)?,
        user: row.try_get(4)?,
        voucher: row.try_get(5)?,
        reference: row.try_get(6)?,
        payment: row.try_get(7)?,
        reason: row.try_get(8)?,
        from: row.try_get(9)?,
        to: row.try_get(10)?,
        released: row.try_get(11)?,
        entry: row.try_get(12)?,
        at_ms: row.try_get(13)?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order_show::OrderRecords;

    fn event(
        step: i64,
        (event, outcome): (&str, &str),
        reference: Option<&str>,
        payment: Option<&str>,
    ) -> EventRow {
        EventRow {
            order: 1.try_into().unwrap(),
            step,
            event: event.to_owned(),
            outcome: outcome.to_owned(),
            user: 9,
            voucher: 7,
            reference: reference.map(str::to_owned),
            payment: payment.map(str::to_owned),
            reason: None,
            from: None,
            to: None,
            released: 0,
            entry: format!("{step}-0"),
            at_ms: None,
        }
    }

    fn due(events: Vec<EventRow>) -> Vec<i64> {
        let records = OrderRecords { events, ..OrderRecords::default() };
        records.payments_due().map(|event| event.step).collect()
    }

    #[test]
    fn a_payment_is_due_until_it_was_given_back() {
        let second = event(2, ("paid", "refund_due"), Some("b"), None);
        let refunded = |step, outcome, payment| event(step, ("refunded", outcome), None, payment);
        assert_eq!(due(vec![event(1, ("paid", "applied"), Some("a"), None), second.clone()]), [2]);
        for (step, outcome, payment, expected) in [
            (3, "applied", Some("b"), &[][..]),
            (3, "unchanged", Some("b"), &[2]),
            (3, "applied", Some("a"), &[2]),
            // Of a payment without a ref.
            (3, "applied", None, &[2]),
            (3, "payment_needed", None, &[2]),
            (3, "payment_needed", Some("b"), &[2]),
        ] {
            let events = vec![second.clone(), refunded(step, outcome, payment)];
            assert_eq!(due(events), expected, "{step} {outcome} {payment:?}");
        }
        let without_ref = event(2, ("paid", "refund_due"), None, None);
        for (step, payment, expected) in [(3, None, &[][..]), (1, None, &[2]), (3, Some("a"), &[2])] {
            let events = vec![without_ref.clone(), refunded(step, "applied", payment)];
            assert_eq!(due(events), expected, "{step} {payment:?} of one without a ref");
        }
    }
}
