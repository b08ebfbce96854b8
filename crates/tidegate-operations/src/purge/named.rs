//! The orders that the stream or the dead letters still name: any of these may come again. 8 bytes each.

use tidegate_compare::Job;
use tidegate_orders::{DeadLetters, OrderId, wire::FieldNames};
use tidegate_stream::{EntryId, Letter, StreamError, StreamInspector};

/// Entries a page.
const PAGE: u16 = 1_000;

#[derive(Debug, Default)]
pub(super) struct NamedOrders {
    orders: Vec<i64>,
    /// What is older than that may go, in Unix seconds by MySQL's clock: told before anything was read, so whatever comes while
    /// a purge goes on is not old, however long that takes.
    pub(super) before_s: i64,
}

impl NamedOrders {
    /// Reads all that there is now, acknowledged entries as well: somebody may run them again. None: it was told to stop.
    pub(super) async fn read(
        inspector: &StreamInspector,
        dead: &DeadLetters,
        fields: &FieldNames,
        before_s: i64,
        job: &Job,
    ) -> Result<Option<Self>, StreamError> {
        let mut orders = Vec::new();
        // The letters before, because they may be put back meanwhile, and after, because entries may be buried.
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

/// Adds the orders of the letters after this one. Answers with the last that was read.
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
