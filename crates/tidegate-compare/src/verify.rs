//! The second check of each candidate, until two checks agree. A candidate becomes a difference only after that.
//! Changes from the time of the first read are settled or in flight at the second check.

mod in_stream;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::Duration,
};

use crate::{
    CompareError, Job, Pace,
    compare::{Sale, WithEvents, dead_orders},
    difference::{Difference, DifferenceCause},
    in_flight::{InFlight, VoucherIndex},
    judge::{Evidence, OrderFinding, UserEvidence},
    reconciled::DifferenceKind,
    redis_side::DeadOrders,
    stores::ComparedStores,
};
use bytes::Bytes;
use futures_util::future::try_join_all;
use tidegate_orders::{JournalNote, OrderId, VoucherId};
use tokio::time::sleep;

use in_stream::InStream;

/// The number of orders or users in one query.
pub(crate) const AT_ONCE: usize = 500;
/// The pause between two checks of the same candidates: a running command makes progress meanwhile.
pub(crate) const BETWEEN: Duration = Duration::from_secs(1);
/// The largest number of checks. A candidate that differs at every check is not settled, and is left to the next
/// comparison.
const MOST_LOOKS: usize = 5;

/// An order or a user, with the place of the voucher.
type At = (u32, i64);
/// A difference, with the journal note at the check.
type Seen = (OrderFinding, Option<Bytes>);

/// A difference about a user, with an order of that user and its journal note.
type SeenUser = (OrderFinding, Option<(i64, Option<Bytes>)>);

/// The second check of the candidates.
pub(crate) struct Verify<'a> {
    pub(crate) stores: &'a ComparedStores,
    pub(crate) index: &'a VoucherIndex,
    pub(crate) sales: &'a [Option<Sale>],
    /// The candidates with events that may be lost.
    pub(crate) with_events: &'a WithEvents,
    /// The candidates that a complete journal should have and does not.
    pub(crate) unnoted: &'a BTreeSet<(u32, i64)>,
    pub(crate) is_counted: bool,
    pub(crate) pace: Pace,
    pub(crate) job: &'a Job,
}

/// The entries in flight and the dead letters at the start of a check.
struct Round {
    in_flight: InFlight,
    dead: DeadOrders,
    in_stream: InStream,
}

impl Verify<'_> {
    /// Finds the differences that stand, by voucher, those of orders first.
    pub(crate) async fn differences(
        &self,
        orders: BTreeSet<At>,
        users: BTreeSet<At>,
    ) -> Result<Vec<Difference>, CompareError> {
        let orders = self.orders(orders).await?;
        // The repair of these orders also repairs their users.
        let told: HashSet<At> = orders
            .iter()
            .filter(|((_, _), (finding, _))| finding.kind != DifferenceKind::StatusSetByOthers)
            .filter_map(|((place, _), (finding, _))| Some((*place, finding.user?)))
            .collect();
        let users = self.users(users, &told).await?;
        let mut found: Vec<Difference> = Vec::with_capacity(orders.len() + users.len());
        for ((place, order), (finding, note)) in orders {
            let note = note.and_then(|note| String::from_utf8(note.to_vec()).ok());
            found.extend(self.difference(place, Some(order), finding, note));
        }
        for ((place, _), (finding, of_order)) in users {
            let (order, note) = of_order.unzip();
            let note = note.flatten().and_then(|note| String::from_utf8(note.to_vec()).ok());
            found.extend(self.difference(place, order, finding, note));
        }
        found.sort_by_key(|it| (it.voucher, it.kind, it.order, it.user));
        Ok(found)
    }

    fn difference(
        &self,
        place: u32,
        order: Option<i64>,
        finding: OrderFinding,
        note: Option<String>,
    ) -> Option<Difference> {
        Some(Difference {
            kind: finding.kind,
            voucher: self.index.voucher(place)?,
            order: order.and_then(|order| order.try_into().ok()),
            user: finding.user.and_then(|user| user.try_into().ok()),
            units: finding.units,
            cause: finding.cause,
            repair: finding.repair,
            counter: None,
            status: finding.status,
            entry: finding.entry,
            note,
        })
    }

    /// Checks orders. An order may have two differences, such as released twice and not released.
    async fn orders(&self, candidates: BTreeSet<At>) -> Result<Vec<(At, Seen)>, CompareError> {
        same_twice(candidates, async |left| self.look_at_orders(left).await).await
    }

    async fn look_at_orders(&self, orders: &BTreeSet<At>) -> Result<Vec<(At, Seen)>, CompareError> {
        let round = self.round(orders).await?;
        let mut found = Vec::new();
        for (place, ids) in by_place(orders) {
            for ids in ids.chunks(AT_ONCE) {
                self.go_on()?;
                let ids: Vec<i64> =
                    ids.iter().copied().filter(|id| !round.in_flight.has_own_entry(place, *id)).collect();
                if let Some(voucher) = self.index.voucher(place) {
                    found.extend(self.pace.step(self.findings((place, voucher), ids, &round)).await?);
                }
            }
        }
        Ok(found)
    }

    /// Checks orders: MySQL first, then the journal, because an admitted order is in the journal before it can be
    /// written.
    async fn findings(
        &self,
        (place, voucher): (u32, VoucherId),
        ids: Vec<i64>,
        round: &Round,
    ) -> Result<Vec<(At, Seen)>, CompareError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let (mysql, sale) = (self.stores.mysql(), self.sale(place));
        let rows = mysql.orders().by_ids(&ids).await?;
        let mut rows: HashMap<i64, _> = rows.into_iter().map(|row| (row.order.get(), row)).collect();
        let refusals = mysql.refusals().by_ids(&ids).await?;
        let mut refusals: HashMap<i64, _> = refusals.into_iter().map(|it| (it.order.get(), it)).collect();
        let events = mysql.events().sums(&ids).await?;
        // For a voucher that Redis does not have, only the events are compared.
        let (notes, purged) = match sale {
            Some(_) => self.stores.redis().notes(voucher, &ids).await?,
            None => (vec![None; ids.len()], None),
        };
        let mut found = Vec::new();
        for (order, note) in ids.into_iter().zip(notes) {
            let evidence = Evidence {
                is_complete: sale.is_some_and(|sale| sale.is_complete),
                complete_since_ms: sale.map_or(0, |sale| sale.complete_since_ms),
                compacted_before_ms: purged.map(|purged| purged.before_ms),
                note: note.as_ref().map(|note| JournalNote::parse(note).unwrap_or_default()),
                row: rows.remove(&order),
                refusal: refusals.remove(&order),
                dead: round.dead.of(place, order).copied(),
                events: OrderId::try_from(order).ok().and_then(|order| events.get(&order).copied()),
                entries: round.in_stream.entered.get(&(place, order)).cloned().unwrap_or_default(),
                lost_event_of: round.in_stream.lost_events.get(&(place, order)).copied(),
            };
            let stranger = evidence.stranger(|user| round.dead.has(place, order, user));
            let at_ms = evidence.note.as_ref().and_then(|note| note.at_ms);
            let its = evidence.findings(voucher.get());
            let has_event = round.in_flight.has_order(place, order);
            let is_told = |its: &OrderFinding| !has_event || self.is_told_beside_events(its.kind);
            let is_same = |stranger: &OrderFinding| its.iter().flatten().any(|it| it.kind == stranger.kind);
            let stranger = stranger.filter(|stranger| !is_same(stranger));
            let its = its.into_iter().chain([stranger]).flatten().filter(is_told);
            let its = its.map(|finding| ((place, order), (finding, note.clone())));
            found.extend(its.map(|found| (found, at_ms)));
        }
        let causes = found.into_iter().map(async |((at, (mut finding, note)), at_ms)| {
            self.find_entry(at, &mut finding, at_ms).await?;
            Ok::<_, CompareError>((at, (finding, note)))
        });
        try_join_all(causes).await
    }

    /// Whether a difference is reported while an event of its order is in flight. A repair gets only lost orders then,
    /// because their events wait for them. A count also gets the differences that no event changes.
    fn is_told_beside_events(&self, kind: DifferenceKind) -> bool {
        let is_lasting = matches!(kind, DifferenceKind::Mismatched | DifferenceKind::ReleasedAndLive);
        kind == DifferenceKind::LostOrder || self.is_counted && is_lasting
    }

    /// Finds the entry of a lost order, if the stream still holds it.
    async fn find_entry(
        &self,
        (_, order): At,
        finding: &mut OrderFinding,
        at_ms: Option<i64>,
    ) -> Result<(), CompareError> {
        if let (DifferenceKind::LostOrder, None, Some(at_ms)) = (finding.kind, finding.entry, at_ms) {
            finding.entry = self.stores.redis().entry_of(order, at_ms).await?;
            if finding.entry.is_none() {
                finding.cause = DifferenceCause::EntryIsGone;
            }
        }
        Ok(())
    }

    async fn users(
        &self,
        candidates: BTreeSet<At>,
        told: &HashSet<At>,
    ) -> Result<Vec<(At, SeenUser)>, CompareError> {
        same_twice(candidates, async |left| self.look_at_users(left, told).await).await
    }

    /// Checks users, again MySQL first. A user with an admission after that is in flight, or is no candidate.
    async fn look_at_users(
        &self,
        users: &BTreeSet<At>,
        told: &HashSet<At>,
    ) -> Result<Vec<(At, SeenUser)>, CompareError> {
        let round = self.round(&BTreeSet::new()).await?;
        let mut found = Vec::new();
        for (place, ids) in by_place(users) {
            let Some(voucher) = self.index.voucher(place) else { continue };
            for ids in ids.chunks(AT_ONCE) {
                self.go_on()?;
                let is_settled = |user: &i64| !round.in_flight.has_user(place, *user);
                let ids: Vec<i64> = ids.iter().copied().filter(is_settled).collect();
                let live = self.pace.step(self.stores.mysql().orders().live_of_users(voucher, &ids)).await?;
                if ids.is_empty() {
                    continue;
                }
                let buyers = self.stores.redis().are_buyers(voucher, &ids).await?;
                let mut users = Vec::new();
                for (user, is_buyer) in ids.into_iter().zip(buyers) {
                    let evidence = UserEvidence {
                        is_buyer,
                        live: live.get(&user).copied(),
                        dead: round.dead.order_of_user(place, user),
                        is_told: told.contains(&(place, user)),
                    };
                    users.extend(evidence.finding(user).map(|finding| (user, finding, evidence.order())));
                }
                found.extend(self.with_notes((place, voucher), users).await?);
            }
        }
        Ok(found)
    }

    /// Adds the journal note of each user's order: a repair acts only while the note is the same.
    async fn with_notes(
        &self,
        (place, voucher): (u32, VoucherId),
        users: Vec<(i64, OrderFinding, Option<i64>)>,
    ) -> Result<Vec<(At, SeenUser)>, CompareError> {
        let orders: Vec<i64> = users.iter().filter_map(|(.., order)| *order).collect();
        let notes = match orders.is_empty() {
            true => Vec::new(),
            false => self.stores.redis().notes(voucher, &orders).await?.0,
        };
        let mut notes = notes.into_iter();
        let mut seen = |(user, finding, order): (i64, OrderFinding, Option<i64>)| {
            let of_order = order.map(|order| (order, notes.next().flatten()));
            ((place, user), (finding, of_order))
        };
        Ok(users.into_iter().map(&mut seen).collect())
    }

    async fn round(&self, orders: &BTreeSet<At>) -> Result<Round, CompareError> {
        let redis = &self.stores.redis;
        let end = redis.inspector().last_id(&redis.inspector().names().stream).await?;
        let in_flight = InFlight::read(redis, self.index, &self.pace).await?;
        let dead = dead_orders(self.stores, self.index, self.pace).await?;
        self.stores.catch_up().await?;
        let in_stream = self.in_stream(orders, (&in_flight, &dead), end).await?;
        Ok(Round { in_flight, dead, in_stream })
    }

    fn sale(&self, place: u32) -> Option<&Sale> {
        self.sales.get(place as usize)?.as_ref()
    }

    fn go_on(&self) -> Result<(), CompareError> {
        if self.job.is_stopped() { Err(CompareError::Stopped) } else { Ok(()) }
    }
}

/// Checks the candidates until two checks agree, and returns these results. A candidate without a difference at a
/// check is dropped.
async fn same_twice<S: Clone + PartialEq>(
    candidates: BTreeSet<At>,
    look: impl AsyncFn(&BTreeSet<At>) -> Result<Vec<(At, S)>, CompareError>,
) -> Result<Vec<(At, S)>, CompareError> {
    let (mut left, mut before, mut stands) = (candidates, HashMap::new(), Vec::new());
    for nth in 0..MOST_LOOKS {
        if left.is_empty() {
            break;
        }
        if nth > 0 {
            sleep(BETWEEN).await;
        }
        let mut now: HashMap<At, Vec<S>> = HashMap::new();
        for (at, seen) in look(&left).await? {
            now.entry(at).or_default().push(seen);
        }
        left = now.keys().copied().collect();
        for (at, seen) in &now {
            if before.get(at) == Some(seen) {
                left.remove(at);
                stands.extend(seen.iter().cloned().map(|seen| (*at, seen)));
            }
        }
        before = now;
    }
    Ok(stands)
}

fn by_place(at: &BTreeSet<At>) -> BTreeMap<u32, Vec<i64>> {
    let mut by_place: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
    for (place, id) in at {
        by_place.entry(*place).or_default().push(*id);
    }
    by_place
}
