//! The repeated run of orders that MySQL lost, under their own ids, with all of their events.
//!
//! First the entries of a batch become pending again, all in one step. So they are in flight: if this process is
//! killed half-way, workers apply the rest in its order. If Redis released an order, only its events become pending: a
//! worker that finds the order before its cancelled row exists would write it.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use anyhow::Context;
use tidegate_compare::Job;
use tidegate_operations::{
    EntrySource, Stores,
    change::End,
    replay::{ChosenEntries, WarningKind},
    selection::{EntryFilter, EntrySelection, StreamPages},
};
use tidegate_orders::{
    Incoming, Ledger, Order, OrderId, RedisStore, Slot, VoucherId,
    ledger::{Cancellation, MissingRow},
    records::journal::UnderLimits,
    wire::{FieldNames, is_event, order_fields},
};
use tidegate_stream::{Entry, EntryId, Read, Stream, StreamInspector};

use super::{
    plan::{Again, Rerun},
    report::{RepairReport, Returned, ReturnedReason},
};

/// The consumer that holds the entries that are run again. No process has this name, so lanes claim the rest of its
/// entries.
const CONSUMER: &str = "reconcile-0";
/// The largest number of orders in one pass through the stream: about 30 MB.
const MOST_IN_PASS: usize = 200_000;
/// The number of entries that are read at once.
const PAGE: u16 = 2_000;
/// The margin in milliseconds by which an entry may be older than its order's admission. A producer may note an
/// admission before it appends, and this allows a minute.
const MARGIN_MS: u64 = 60_000;

/// The runner of lost orders.
#[derive(Debug)]
pub(super) struct LostOrders {
    inspector: StreamInspector,
    stream: Stream,
    redis: RedisStore,
    ledger: Ledger,
    chosen: ChosenEntries,
    fields: FieldNames,
    batch: usize,
}

/// The entries that the stream holds of an order.
#[derive(Debug, Default)]
struct Held {
    /// All entries, in the order of the stream.
    entries: Vec<EntryId>,
    /// The entries that are events, in the order of the stream.
    events: Vec<EntryId>,
    /// The first entry that is an order and no event.
    placed: Option<EntryId>,
    /// The entries that are unread or pending.
    in_flight: HashSet<EntryId>,
}

impl Held {
    /// The entries to run again. Events in flight follow by themselves when their order is back.
    fn again(&self, order: &Rerun) -> impl Iterator<Item = EntryId> {
        let all = match order.what {
            Again::Order | Again::Entries => &self.entries,
            Again::Events | Again::Released => &self.events,
        };
        all.iter().copied().filter(|entry| !self.in_flight.contains(entry))
    }

    /// Whether workers handle the order's entries now.
    fn is_in_flight(&self, order: &Rerun) -> bool {
        match order.what {
            Again::Order => self.in_flight.iter().any(|entry| self.events.binary_search(entry).is_err()),
            Again::Entries | Again::Events | Again::Released => !self.in_flight.is_empty(),
        }
    }
}

impl LostOrders {
    /// Connects to the entries of these stores. `ledger` looks the orders up.
    pub(super) async fn open(stores: &Stores, ledger: Ledger) -> anyhow::Result<Self> {
        let (settings, redis) = (stores.settings(), stores.redis().await?.clone());
        let source = EntrySource::open(settings, &redis).await?;
        Ok(Self {
            chosen: ChosenEntries::open(stores, &source).await?,
            inspector: source.inspector,
            stream: Stream::new(&redis, redis.inspector().names().clone()),
            ledger,
            fields: redis.keys().fields().clone(),
            batch: settings.fleet.batch,
            redis,
        })
    }

    /// Runs the orders of a voucher again, as many of them at once as a worker takes.
    pub(super) async fn run(
        &self,
        voucher: VoucherId,
        orders: &[Rerun],
        report: &mut RepairReport,
        job: &Job,
    ) -> anyhow::Result<End> {
        // Events that end orders in MySQL come first. Until then, the user's place is taken, and no later order of
        // that user can be written.
        let mut orders: Vec<&Rerun> = orders.iter().collect();
        orders.sort_by_key(|order| order.what.writes_orders());
        for orders in orders.chunks(MOST_IN_PASS) {
            let mut held = self.find(voucher, orders, job).await?;
            let of_a_kind =
                orders.chunk_by(|one, other| one.what.writes_orders() == other.what.writes_orders());
            for orders in of_a_kind.flat_map(|orders| orders.chunks(self.batch.max(1))) {
                if job.is_stopped() {
                    return Ok(End::Stopped);
                }
                let batch: Vec<(&Rerun, Held)> = orders
                    .iter()
                    .map(|order| (*order, held.remove(&order.order).unwrap_or_default()))
                    .collect();
                if self.run_batch(voucher, batch, report, job).await? == End::Stopped {
                    return Ok(End::Stopped);
                }
                job.progress.add(orders.len() as u64);
            }
        }
        Ok(End::Whole)
    }

    /// Reads the stream once, from the oldest admission on, and collects the entries of the orders.
    async fn find(
        &self,
        voucher: VoucherId,
        orders: &[&Rerun],
        job: &Job,
    ) -> anyhow::Result<HashMap<OrderId, Held>> {
        let users: HashMap<OrderId, _> = orders.iter().map(|order| (order.order, order.user)).collect();
        let first = orders.iter().map(|order| u64::try_from(order.admitted_ms?).ok()).min().flatten();
        let first = EntryId { ms: first.unwrap_or(0).saturating_sub(MARGIN_MS), seq: 0 };
        let delivered = self.inspector.group().last_delivered().await.context("Failed to read the group")?;
        let filter = EntryFilter { voucher: Some(voucher), user: None };
        let selection = EntrySelection::new((first, EntryId::MAX), filter)?;
        let mut pages = StreamPages::new(self.inspector.clone(), self.fields.clone(), selection);
        let mut found: HashMap<OrderId, Held> = HashMap::new();
        let mut owners: HashMap<EntryId, OrderId> = HashMap::new();
        while let Some(page) = pages.next(PAGE).await.context("Failed to read the stream in Redis")? {
            for entry in &page.entries {
                let peek = self.fields.peek(entry);
                // An event may name another user: that is recorded, too.
                let is_its = |id: &OrderId| {
                    let user = users.get(id).copied();
                    user.is_some() && (is_event(entry) || user == peek.user)
                };
                let Some(order) = peek.id.filter(is_its) else { continue };
                let held = found.entry(order).or_default();
                held.entries.push(entry.id);
                if delivered.is_none_or(|delivered| entry.id > delivered) {
                    held.in_flight.insert(entry.id);
                }
                match is_event(entry) {
                    true => held.events.push(entry.id),
                    false => held.placed = held.placed.or(Some(entry.id)),
                }
                owners.insert(entry.id, order);
            }
            if job.is_stopped() {
                break;
            }
        }
        // This follows the read of the group's position: an entry that is neither unread by that position nor pending
        // now is acknowledged.
        let mut pending = self.inspector.group().pending_pages((first.previous(), EntryId::MAX), PAGE, None);
        while let Some(page) = pending.next().await.context("Failed to read the pending list")? {
            for pending in page {
                if let Some(order) = owners.get(&pending.id) {
                    found.entry(*order).or_default().in_flight.insert(pending.id);
                }
            }
        }
        Ok(found)
    }

    async fn run_batch(
        &self,
        voucher: VoucherId,
        batch: Vec<(&Rerun, Held)>,
        report: &mut RepairReport,
        job: &Job,
    ) -> anyhow::Result<End> {
        let return_to_look = |report: &mut RepairReport, order: &Rerun, why| {
            let (user, order) = (Some(order.user), Some(order.order));
            report.return_to_look(Returned { voucher, order, user, why });
        };
        let (in_flight, batch): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|(order, held)| held.is_in_flight(order));
        for (order, _) in in_flight {
            return_to_look(report, order, ReturnedReason::InFlight);
        }
        let incoming: Vec<Incoming> =
            batch.iter().map(|(order, held)| incoming(voucher, order, held)).collect();
        let again: Vec<EntryId> = batch.iter().flat_map(|(order, held)| held.again(order)).collect();
        // New entries come before pending events: if this process is killed here, no payment may be left without its
        // order.
        let appended = self.append(&batch, &incoming).await?;
        let made = self.stream.make_pending(&again, CONSUMER).await;
        made.context("Failed to make entries pending again")?;
        let refused = self.cancel(&batch, &incoming, report).await?;
        report.done.appended += appended.iter().flatten().count() as u64;
        let (mut new, mut ids) = (Vec::new(), Vec::new());
        let mut owners: HashMap<EntryId, &Rerun> = HashMap::new();
        for (((order, held), refused), appended) in batch.iter().zip(refused).zip(appended) {
            if let Some(why) = refused {
                return_to_look(report, order, why);
                continue;
            }
            owners.extend(appended.iter().map(|entry| (entry.id, *order)));
            owners.extend(held.again(order).map(|id| (id, *order)));
            ids.extend(held.again(order));
            new.extend(appended);
        }
        ids.sort_unstable();
        // New orders come before their events, which are older.
        if !new.is_empty() && self.run_entries(voucher, (&new, &owners), report, job).await? == End::Stopped {
            return Ok(End::Stopped);
        }
        let mut pages = self.inspector.entries(&self.inspector.names().stream, &ids, Read::Whole);
        while let Some(page) = pages.next().await.context("Failed to read the stream in Redis")? {
            let entries: Vec<Entry> = page.into_iter().flatten().collect();
            if !entries.is_empty()
                && self.run_entries(voucher, (&entries, &owners), report, job).await? == End::Stopped
            {
                return Ok(End::Stopped);
            }
        }
        Ok(End::Whole)
    }

    async fn run_entries(
        &self,
        voucher: VoucherId,
        (entries, owners): (&[Entry], &HashMap<EntryId, &Rerun>),
        report: &mut RepairReport,
        job: &Job,
    ) -> anyhow::Result<End> {
        // The future is boxed: otherwise every future above would have room for it several times.
        let run = Box::pin(self.chosen.run(entries, &job.stop));
        let done = run.await.context("Failed to replay lost orders")?;
        let (counts, done_now) = (&mut report.done, done.outcomes.counts);
        counts.entries += done_now.entries;
        counts.created += done_now.created;
        counts.refused += done_now.refused;
        counts.events += done_now.events;
        for remark in done.outcomes.remarks {
            let why = match remark.what {
                WarningKind::Dead => ReturnedReason::Rejected(remark.why),
                WarningKind::Left | WarningKind::InProgress => ReturnedReason::Held,
                // Redis has released the order already, and its cancelled row says so.
                WarningKind::Released => continue,
            };
            if let Some(Rerun { order, user, .. }) = owners.get(&remark.entry) {
                let (order, user) = (Some(*order), Some(*user));
                report.return_to_look(Returned { voucher, order, user, why });
            }
        }
        Ok(if done.is_stopped { End::Stopped } else { End::Whole })
    }

    /// Writes the cancelled rows of orders that Redis has released. For each order, returns the reason why it is not
    /// run; None: it is run.
    async fn cancel(
        &self,
        batch: &[(&Rerun, Held)],
        incoming: &[Incoming],
        report: &mut RepairReport,
    ) -> anyhow::Result<Vec<Option<ReturnedReason>>> {
        let released = batch.iter().zip(incoming).filter(|((order, _), _)| order.what == Again::Released);
        let released: Vec<Incoming> = released.map(|(_, incoming)| incoming.clone()).collect();
        let cancelled = self.ledger.cancel_unwritten(&released).await.context("Failed to write to MySQL")?;
        let mut cancelled = cancelled.into_iter();
        let mut why = |order: &Rerun| {
            let cancellation = if order.what == Again::Released { cancelled.next()? } else { return None };
            match cancellation {
                Cancellation::Cancelled(_) => {
                    report.done.cancelled_rows += 1;
                    None
                }
                Cancellation::OrderExists | Cancellation::IdTaken => Some(ReturnedReason::Moved),
                Cancellation::Rejected(error) => Some(ReturnedReason::Rejected(error)),
                Cancellation::Contended => Some(ReturnedReason::Held),
            }
        };
        Ok(batch.iter().map(|(order, _)| why(order)).collect())
    }

    /// Appends an entry for each order that is lost in MySQL and whose own entry is gone from the stream.
    async fn append(
        &self,
        batch: &[(&Rerun, Held)],
        incoming: &[Incoming],
    ) -> anyhow::Result<Vec<Option<Entry>>> {
        let snapshot =
            self.ledger.snapshot(incoming, MissingRow::Decides).await.context("Failed to read MySQL")?;
        let ids: Vec<_> = incoming.iter().map(|it| (it.order.voucher, it.order.id)).collect();
        let released = self.redis.journals().released(&ids).await.context("Failed to read the journal")?;
        let mut limited =
            self.redis.journals().under_limits(&ids).await.context("Failed to read the journal")?;
        let mut appended = Vec::with_capacity(batch.len());
        for ((lost, held), Incoming { order, .. }) in batch.iter().zip(incoming) {
            let is_gone = held.placed.is_none() && lost.what == Again::Order;
            let is_lost = snapshot.is_unknown(order) && !released.contains(&(order.voucher, order.id));
            let mut order = order.clone();
            if let Some(UnderLimits { slot, uses }) = limited.remove(&(order.voucher, order.id)) {
                (order.slot, order.uses) = (slot, Some(uses));
            }
            // The order's note is as old as its first entry.
            let first_ms = lost.admitted_ms.and_then(|ms| u64::try_from(ms).ok());
            order.uses = snapshot.uses_in_new_entry(&order, first_ms);
            appended.push(if is_gone && is_lost { Some(self.append_one(&order).await?) } else { None });
        }
        Ok(appended)
    }

    async fn append_one(&self, order: &Order) -> anyhow::Result<Entry> {
        let fields = order_fields(order);
        let id = self.stream.append(&fields).await.context("Failed to append to the stream")?;
        let owned =
            |(name, value): (&'static str, Cow<'static, str>)| (name.into(), value.into_owned().into());
        Ok(Entry { id, fields: fields.into_iter().map(owned).collect() })
    }
}

/// The order as it was admitted, with the entry for its row.
fn incoming(voucher: VoucherId, order: &Rerun, held: &Held) -> Incoming {
    let Rerun { order: id, user, units, .. } = *order;
    let order = Order { id, user, voucher, quantity: units, slot: Slot::FIRST, uses: None };
    Incoming { order, entry: held.placed.unwrap_or_default() }
}
