//! The orders that the stream or the dead letters still name, because these may come again. Each needs 8 bytes.

use tidegate_compare::Job;
use tidegate_orders::{DeadLetters, OrderId, wire::FieldNames};
use tidegate_stream::{EntryId, Letter, StreamError, StreamInspector};

/// The entries of a page.
const PAGE: u16 = 1_000;

#[derive(Debug, Default)]
pub(super) struct NamedOrders {
    orders: Vec<i64>,
    /// The time before which data may be pruned, in Unix seconds by MySQL's clock. It is read first, so that data that
    /// is added during the run is not old, however long the run takes.
    pub(super) before_s: i64,
}

impl NamedOrders {
    /// Reads all entries that exist now, including acknowledged ones, because an operator may replay them. None: it was
    /// stopped.
    pub(super) async fn read(
        inspector: &StreamInspector,
        dead: &DeadLetters,
        fields: &FieldNames,
        before_s: i64,
        job: &Job,
    ) -> Result<Option<Self>, StreamError> {
        let mut orders = Vec::new();
        // The letters are read before the stream, because they may be requeued in the meantime, and after it, because
        // entries may be buried.
        let seen = read_letters(dead, fields, EntryId::MIN, &mut orders).await?;
        let stream = &inspector.names().stream;
        job.progress.expect(inspector.length(stream).await?, "entries");
        let mut pages = inspector.entry_pages(stream, (EntryId::MIN, EntryId::MAX), PAGE);
        while let Some(page) = pages.next(u64::MAX).await? {
            orders.extend(page.iter().filter_map(|entry| fields.peek(entry).id).map(OrderId::get));
            job.progress.add(page.len() as u64);
            if job.is_stopped() {
                return Ok(None);
            }
        }
        read_letters(dead, fields, seen, &mut orders).await?;
        orders.sort_unstable();
        orders.dedup();
        Ok(Some(Self { orders, before_s }))
    }

    pub(super) fn has(&self, order: i64) -> bool {
        self.orders.binary_search(&order).is_ok()
    }
}

/// Adds the orders of the letters after this one. It returns the last letter that was read.
async fn read_letters(
    dead: &DeadLetters,
    fields: &FieldNames,
    mut after: EntryId,
    orders: &mut Vec<i64>,
) -> Result<EntryId, StreamError> {
    loop {
        let page: Vec<Letter> = dead.page((after, EntryId::MAX), PAGE).await?;
        let Some(last) = page.last() else { return Ok(after) };
        after = last.id;
        let named = page.iter().filter_map(|letter| fields.peek(&letter.entry()).id);
        orders.extend(named.map(OrderId::get));
    }
}
