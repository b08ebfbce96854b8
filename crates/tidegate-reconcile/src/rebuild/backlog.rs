//! The orders in the stream or among the dead letters that MySQL does not know.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use anyhow::Context;
use sqlx::MySqlPool;
use tidegate_compare::Job;
use tidegate_orders::{
    CausalReads, Order, OrderId, Records, VoucherId, dead_letters::buried_order,
    order_id::counter::KnownSequences, wire::FieldNames,
};
use tidegate_stream::{EntryId, Letter, StreamError, StreamInspector};

/// The largest number of entries in a page. It takes some milliseconds of Redis' only thread, which also admits
/// orders.
const PAGE: u16 = 2_000;

/// An order that Redis has admitted and that MySQL does not know, so that its units are missing in the stock of Redis
/// only.
#[derive(Clone, Debug)]
pub struct Unwritten {
    /// The values of the order as Redis admitted it.
    pub order: Order,
    /// The latest stream entry of the order.
    pub entry: EntryId,
    /// Whether the order is among the dead letters.
    pub is_dead: bool,
}

/// The reader of the stream and the dead letters during a rebuild. Each call continues where the previous call stopped.
/// The reader keeps only orders that MySQL does not know.
#[derive(Debug)]
pub struct UnwrittenOrders {
    inspector: StreamInspector,
    mysql: MySqlPool,
    causal_reads: Arc<CausalReads>,
    fields: FieldNames,
    read_to: EntryId,
    dead_read_to: EntryId,
    unwritten: HashMap<VoucherId, BTreeMap<OrderId, Unwritten>>,
    /// The sequence numbers of all order ids that were read.
    pub sequences: KnownSequences,
}

impl UnwrittenOrders {
    /// Creates a reader that has read no entry yet.
    pub fn new(
        inspector: StreamInspector,
        (mysql, causal_reads): (MySqlPool, Arc<CausalReads>),
        fields: FieldNames,
        sequences: KnownSequences,
    ) -> Self {
        let unwritten = HashMap::new();
        let (read_to, dead_read_to) = (EntryId::MIN, EntryId::MIN);
        Self { inspector, mysql, causal_reads, fields, read_to, dead_read_to, unwritten, sequences }
    }

    /// The id of the last stream entry that was read.
    pub const fn read_to(&self) -> EntryId {
        self.read_to
    }

    /// Reads the entries and dead letters that were added since the last call. First reads the stream, so that an entry
    /// that becomes a dead letter in the meantime is found in the stream.
    ///
    /// # Errors
    /// Fails if a store does not answer, or the MySQL node lags.
    pub async fn advance(&mut self, job: &Job) -> anyhow::Result<()> {
        let stream = self.inspector.names().stream.clone();
        let last = self.inspector.last_id(&stream).await.context("Failed to read the stream")?;
        let mut pages = self.inspector.entry_pages(&stream, (self.read_to, last), PAGE);
        while let Some(page) = pages.next(u64::MAX).await.context("Failed to read the stream")? {
            job.progress.add(page.len() as u64);
            let orders = page.iter().filter_map(|entry| Some((entry.id, self.fields.decode(entry).ok()?)));
            let orders = orders.collect();
            self.take(orders, false).await?;
        }
        self.read_to = last.max(self.read_to);
        self.read_dead().await
    }

    async fn read_dead(&mut self) -> anyhow::Result<()> {
        let dead = self.inspector.names().dead.clone();
        let last = self.inspector.last_id(&dead).await.context("Failed to read the dead letters")?;
        let mut pages = self.inspector.entry_pages(&dead, (self.dead_read_to, last), PAGE);
        while let Some(page) = pages.next(u64::MAX).await.context("Failed to read the dead letters")? {
            let orders = page.into_iter().filter_map(|entry| {
                let letter = Letter::parse(entry);
                Some((letter.burial.as_ref()?.entry, buried_order(&self.fields, &letter)?))
            });
            let orders = orders.collect();
            self.take(orders, true).await?;
        }
        self.dead_read_to = last.max(self.dead_read_to);
        Ok(())
    }

    async fn take(&mut self, orders: Vec<(EntryId, Order)>, is_dead: bool) -> anyhow::Result<()> {
        if orders.is_empty() {
            return Ok(());
        }
        self.causal_reads.catch_up(&self.mysql).await?;
        orders.iter().for_each(|(_, order)| self.sequences.note(order.id));
        let ids: Vec<OrderId> = orders.iter().map(|(_, order)| order.id).collect();
        let records = Records::new(&self.mysql, self.sequences.partition());
        let unknown = records.orders().unknown(&ids).await;
        let unknown: HashSet<OrderId> =
            unknown.context("Failed to look up orders in MySQL")?.into_iter().collect();
        for (entry, order) in orders.into_iter().filter(|(_, order)| unknown.contains(&order.id)) {
            let of_voucher = self.unwritten.entry(order.voucher).or_default();
            let known = of_voucher.entry(order.id).or_insert_with(|| {
                self.sequences.add_known(order.id);
                Unwritten { order, entry, is_dead }
            });
            (known.entry, known.is_dead) = (known.entry.max(entry), known.is_dead || is_dead);
        }
        Ok(())
    }

    /// A voucher's unwritten orders that the reader has found, but not yet given to its caller.
    pub fn orders(&self, voucher: VoucherId) -> Vec<Order> {
        let found = self.unwritten.get(&voucher).into_iter().flat_map(BTreeMap::values);
        found.map(|unwritten| unwritten.order.clone()).collect()
    }

    /// Returns a voucher's unwritten orders that were found since the last call, and removes these orders from the
    /// reader.
    pub fn drain(&mut self, voucher: VoucherId) -> Vec<Unwritten> {
        self.unwritten.remove(&voucher).map(|found| found.into_values().collect()).unwrap_or_default()
    }

    /// Returns the given entries that are undelivered or pending.
    ///
    /// # Errors
    /// Fails if Redis does not answer.
    pub async fn in_flight(&self, entries: &[EntryId]) -> Result<HashSet<EntryId>, StreamError> {
        let (Some(first), Some(last)) = (entries.iter().min(), entries.iter().max()) else {
            return Ok(HashSet::new());
        };
        // The boundary is read first: entries that are delivered later are beyond it, whatever happens to them.
        let delivered = self.inspector.group().last_delivered().await?.unwrap_or(EntryId::MIN);
        let mut open: HashSet<EntryId> = entries.iter().copied().filter(|entry| *entry > delivered).collect();
        let asked: HashSet<EntryId> = entries.iter().copied().collect();
        // The range ends at the last entry: the entries come in parts, and the whole list for each part would take too
        // long.
        let mut pages = self.inspector.group().pending_pages((first.previous(), *last), PAGE, None);
        while let Some(page) = pages.next().await? {
            open.extend(page.iter().map(|pending| pending.id).filter(|id| asked.contains(id)));
        }
        Ok(open)
    }
}
