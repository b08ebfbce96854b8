//! The reading of the uses that a voucher's orders hold: from its journal, and from MySQL for orders that the journal
//! no longer has.

use std::{collections::HashSet, future::Future};

use sqlx::MySqlPool;
use tidegate_orders::{
    JournalField, JournalNote, OrderId, Records, RedisStore, UserId, VoucherId,
    order::{Slot, Uses},
    records::LiveOrder,
    scripts::{ScanPages, ScriptError},
};
use tokio_util::sync::CancellationToken;

use crate::{CompareError, Pace, compare_error::is_of_other_type};

/// The stores from which orders are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Orders<'a> {
    pub(super) redis: &'a RedisStore,
    pub(super) mysql: &'a MySqlPool,
    pub(super) pace: Pace,
    pub(super) stop: &'a CancellationToken,
}

/// An order that holds its uses.
#[derive(Clone, Debug)]
pub(super) struct OrderWithUses {
    pub(super) order: OrderId,
    pub(super) voucher: VoucherId,
    pub(super) user: UserId,
    pub(super) units: u64,
    pub(super) slot: Slot,
    pub(super) uses: Option<Uses>,
    /// The time of the journal's note, in Unix milliseconds by the clock of Redis; None: long ago.
    pub(super) noted_ms: Option<i64>,
    /// The time when the order was made, if it is known.
    pub(super) made_ms: Option<i64>,
}

/// An order that was released. Its note in the journal does not say which limits it used.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReleasedOrder {
    pub(super) order: OrderId,
    pub(super) voucher: VoucherId,
    pub(super) user: UserId,
    pub(super) units: u64,
    pub(super) admitted_ms: i64,
    pub(super) released_ms: i64,
}

/// The state of an order in its journal.
#[derive(Clone, Debug)]
pub(super) enum OrderNote {
    Held(OrderWithUses),
    Released(ReleasedOrder),
    /// The note cannot be read: the order may hold uses.
    Unreadable,
}

impl Orders<'_> {
    /// Reads all orders of a voucher.
    pub(super) async fn read(
        &self,
        voucher: VoucherId,
        mut seen: impl FnMut(OrderNote),
    ) -> Result<(), CompareError> {
        let mut pages = ScanPages::of_journal(self.redis, voucher);
        while let Some(fields) = self.step(pages.next()).await? {
            fields.iter().filter_map(|(name, note)| parse(voucher, name, note)).for_each(&mut seen);
        }
        self.read_unnoted(voucher, seen).await
    }

    /// Reads the live orders without a note in the journal: they were compacted, or are older than the journal.
    pub(super) async fn read_unnoted(
        &self,
        voucher: VoucherId,
        mut seen: impl FnMut(OrderNote),
    ) -> Result<(), CompareError> {
        let mut after = (0, 0);
        loop {
            let page = self.step(self.records().limit_uses().live_page(voucher, after)).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = (last.user.get(), last.slot.get());
            let ids: Vec<_> = page.iter().map(|row| (voucher, row.order)).collect();
            let noted = self.noted(&ids).await?;
            let unnoted = page.into_iter().filter(|row| !noted.contains(&(voucher, row.order)));
            unnoted.map(|row| OrderNote::Held(held(voucher, row))).for_each(&mut seen);
        }
    }

    /// Finds those of these orders that have a note in the journal. A journal of another type has none.
    pub(super) async fn noted(
        &self,
        orders: &[(VoucherId, OrderId)],
    ) -> Result<HashSet<(VoucherId, OrderId)>, CompareError> {
        match self.pace.step(self.redis.journals().journaled(orders)).await {
            Err(ScriptError::Refused(error)) if is_of_other_type(error.details()) => Ok(HashSet::new()),
            noted => Ok(noted?),
        }
    }

    /// The records of orders in MySQL.
    pub(super) fn records(&self) -> Records<'_> {
        Records::new(self.mysql, self.redis.keys().partition())
    }

    /// Reads a page, unless the caller has stopped the comparison.
    pub(super) async fn step<T, E: Into<CompareError>>(
        &self,
        page: impl Future<Output = Result<T, E>>,
    ) -> Result<T, CompareError> {
        self.go_on()?;
        self.pace.step(page).await.map_err(Into::into)
    }

    pub(super) fn go_on(&self) -> Result<(), CompareError> {
        if self.stop.is_cancelled() { Err(CompareError::Stopped) } else { Ok(()) }
    }
}

fn held(voucher: VoucherId, row: LiveOrder) -> OrderWithUses {
    let LiveOrder { order, user, units, slot, uses, created_ms } = row;
    OrderWithUses { order, voucher, user, units, slot, uses, noted_ms: None, made_ms: created_ms }
}

/// Parses a field of the journal. None: it belongs to no order, or its order holds nothing.
fn parse(voucher: VoucherId, name: &[u8], note: &[u8]) -> Option<OrderNote> {
    let JournalField::Order(order) = JournalField::parse(str::from_utf8(name).ok()?) else { return None };
    let Some(note) = JournalNote::parse(note) else { return Some(OrderNote::Unreadable) };
    if note.is_release() { released(voucher, order, &note) } else { admitted(voucher, order, note) }
}

/// Parses the note of a release. None: the note does not have the user or the time of the admission.
fn released(voucher: VoucherId, order: OrderId, note: &JournalNote) -> Option<OrderNote> {
    let admitted = note.admitted?;
    let (user, units) = (admitted.user?, admitted.change.unsigned_abs());
    let (admitted_ms, released_ms) = (admitted.at_ms?, note.at_ms?);
    Some(OrderNote::Released(ReleasedOrder { order, voucher, user, units, admitted_ms, released_ms }))
}

fn admitted(voucher: VoucherId, order: OrderId, note: JournalNote) -> Option<OrderNote> {
    let user = note.buyer();
    let Some((user, change)) = user.zip(note.change) else { return Some(OrderNote::Unreadable) };
    let units = change.unsigned_abs();
    let (slot, uses) = note.limited.map_or((Slot::FIRST, None), |limited| (limited.slot, Some(limited.uses)));
    let (noted_ms, made_ms) = (note.at_ms, note.at_ms);
    Some(OrderNote::Held(OrderWithUses { order, voucher, user, units, slot, uses, noted_ms, made_ms }))
}
