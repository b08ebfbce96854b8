//! Looks at each candidate again, by itself, until it is the same twice. Only then it is a difference: whatever moved while
//! both sides were read is settled, or in flight, by the second time.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::try_join_all;
use tidegate_operations::{change::Job, reconciled::DifferenceKind};
use tidegate_orders::{JournalEntry, VoucherId};
use tokio::time::sleep;

use crate::{
    compare::{Sale, dead_orders},
    difference::{Cause, Difference},
    in_flight::{InFlight, Places},
    judge::{Evidence, Finding, UserEvidence},
    pace::Pace,
    redis_side::{DeadOrders, Entered},
    stores::{LookError, Stores},
};

/// Orders or users that are asked for at once.
const AT_ONCE: usize = 500;
/// Between two looks at the same: a command that is at it gets on meanwhile.
const BETWEEN: Duration = Duration::from_secs(1);
/// What changes its face with every look is not settled, and left to the next time.
const MOST_LOOKS: usize = 5;

/// An order or a user, by the place of its voucher.
type At = (u32, i64);
/// A difference, and the note of the journal with which it was seen.
type Seen = (Finding, Option<Bytes>);

/// The second look.
pub(crate) struct Verify<'a> {
    pub(crate) stores: &'a Stores,
    pub(crate) places: &'a Places,
    pub(crate) sales: &'a [Option<Sale>],
    pub(crate) pace: Pace,
    pub(crate) job: &'a Job,
}

/// What is in flight and dead at the beginning of a look.
struct Round {
    in_flight: InFlight,
    dead: DeadOrders,
    /// Of the candidates whose journal is not complete: their entries.
    entered: HashMap<At, Entered>,
}

impl Verify<'_> {
    /// The differences that stand, by voucher, those of orders first.
    pub(crate) async fn differences(
        &self,
        orders: BTreeSet<At>,
        users: BTreeSet<At>,
    ) -> Result<Vec<Difference>, LookError> {
        let orders = self.orders(orders).await?;
        // What mends these mends their users.
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
        for ((place, _), finding) in users {
            found.extend(self.difference(place, None, finding, None));
        }
        found.sort_by_key(|it| (it.voucher, it.kind, it.order, it.user));
        Ok(found)
    }

    fn difference(
        &self,
        place: u32,
        order: Option<i64>,
        finding: Finding,
        note: Option<String>,
    ) -> Option<Difference> {
        Some(Difference {
            kind: finding.kind,
            voucher: self.places.voucher(place)?,
            order: order.and_then(|order| order.try_into().ok()),
            user: finding.user.and_then(|user| user.try_into().ok()),
            units: finding.units,
            cause: finding.cause,
            mend: finding.mend,
            note,
        })
    }

    /// Looks until every order that is left was the same twice. An order may be different in two ways, such as given back twice
    /// and not released.
    async fn orders(&self, candidates: BTreeSet<At>) -> Result<Vec<(At, Seen)>, LookError> {
        let (mut left, mut before, mut stands) = (candidates, HashMap::new(), Vec::new());
        for look in 0..MOST_LOOKS {
            if left.is_empty() {
                break;
            }
            if look > 0 {
                sleep(BETWEEN).await;
            }
            let mut now: HashMap<At, Vec<Seen>> = HashMap::new();
            for (at, seen) in self.look_at_orders(&left).await? {
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

    async fn look_at_orders(&self, orders: &BTreeSet<At>) -> Result<Vec<(At, Seen)>, LookError> {
        let round = self.round(orders).await?;
        let mut found = Vec::new();
        for (place, ids) in by_place(orders) {
            for ids in ids.chunks(AT_ONCE) {
                self.go_on()?;
                let ids: Vec<i64> =
                    ids.iter().copied().filter(|id| !round.in_flight.has_order(place, *id)).collect();
                if let (Some(voucher), Some(sale)) = (self.places.voucher(place), self.sale(place)) {
                    found.extend(self.pace.step(self.findings((sale, voucher), ids, &round)).await?);
                }
            }
        }
        Ok(found)
    }

    /// MySQL first, then the journal: what is admitted is noted there before it can be written.
    async fn findings(
        &self,
        (sale, voucher): (&Sale, VoucherId),
        ids: Vec<i64>,
        round: &Round,
    ) -> Result<Vec<(At, Seen)>, LookError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let (mysql, place) = (self.stores.mysql(), sale.place);
        let rows = mysql.orders(&ids).await?;
        let mut rows: HashMap<i64, _> = rows.into_iter().map(|row| (row.id, row)).collect();
        let refusals = mysql.refusals(&ids).await?;
        let mut refusals: HashMap<i64, _> = refusals.into_iter().map(|row| (row.id, row)).collect();
        let events = mysql.events(&ids).await?;
        let (notes, purged) = self.stores.redis().notes(voucher, &ids).await?;
        let mut found = Vec::new();
        for (order, note) in ids.into_iter().zip(notes) {
            let evidence = Evidence {
                is_complete: sale.is_complete,
                complete_since_ms: sale.complete_since_ms,
                folded_before_ms: purged.map(|purged| purged.before_ms),
                note: note.as_ref().map(|note| JournalEntry::parse(note).unwrap_or_default()),
                row: rows.remove(&order),
                refusal: refusals.remove(&order),
                dead: round.dead.of(place, order).copied(),
                events: events.get(&order).copied(),
                entry: round.entered.get(&(place, order)).copied(),
            };
            let at_ms = evidence.note.as_ref().and_then(|note| note.at_ms);
            let its = [evidence.finding(voucher.get()), evidence.doubled(), evidence.status_by_others()];
            let its = its.into_iter().flatten().map(|finding| ((place, order), (finding, note.clone())));
            found.extend(its.map(|found| (found, at_ms)));
        }
        let causes = found.into_iter().map(async |((at, (mut finding, note)), at_ms)| {
            finding.cause = self.cause(at, &finding, at_ms).await?;
            Ok::<_, LookError>((at, (finding, note)))
        });
        try_join_all(causes).await
    }

    /// Of a lost order: whether the stream still holds its entry.
    async fn cause(&self, (_, order): At, finding: &Finding, at_ms: Option<i64>) -> Result<Cause, LookError> {
        match (finding.kind, at_ms) {
            (DifferenceKind::LostOrder, Some(at_ms)) => {
                let is_there = self.stores.redis().has_entry(order, at_ms).await?;
                Ok(if is_there { finding.cause } else { Cause::EntryIsGone })
            }
            _ => Ok(finding.cause),
        }
    }

    async fn users(
        &self,
        candidates: BTreeSet<At>,
        told: &HashSet<At>,
    ) -> Result<Vec<(At, Finding)>, LookError> {
        let (mut left, mut before, mut stands) = (candidates, HashMap::new(), Vec::new());
        for look in 0..MOST_LOOKS {
            if left.is_empty() {
                break;
            }
            if look > 0 {
                sleep(BETWEEN).await;
            }
            let now: HashMap<At, Finding> = self.look_at_users(&left, told).await?.into_iter().collect();
            left = now.keys().copied().collect();
            for (at, finding) in &now {
                if before.get(at) == Some(finding) {
                    left.remove(at);
                    stands.push((*at, *finding));
                }
            }
            before = now;
        }
        Ok(stands)
    }

    /// MySQL first again. A user who is admitted after that is in flight, or was not left as a candidate.
    async fn look_at_users(
        &self,
        users: &BTreeSet<At>,
        told: &HashSet<At>,
    ) -> Result<Vec<(At, Finding)>, LookError> {
        let round = self.round(&BTreeSet::new()).await?;
        let mut found = Vec::new();
        for (place, ids) in by_place(users) {
            let Some(voucher) = self.places.voucher(place) else { continue };
            for ids in ids.chunks(AT_ONCE) {
                self.go_on()?;
                let is_settled = |user: &i64| !round.in_flight.has_user(place, *user);
                let ids: Vec<i64> = ids.iter().copied().filter(is_settled).collect();
                let live = self.pace.step(self.stores.mysql().live_of_users(voucher, &ids)).await?;
                if ids.is_empty() {
                    continue;
                }
                let buyers = self.stores.redis().are_buyers(voucher, &ids).await?;
                for (user, is_buyer) in ids.into_iter().zip(buyers) {
                    let evidence = UserEvidence {
                        is_buyer,
                        live: live.get(&user).copied(),
                        is_dead: round.dead.has_user(place, user),
                        is_told: told.contains(&(place, user)),
                    };
                    found.extend(evidence.finding(user).map(|finding| ((place, user), finding)));
                }
            }
        }
        Ok(found)
    }

    async fn round(&self, orders: &BTreeSet<At>) -> Result<Round, LookError> {
        let Stores { inspector, keys, .. } = self.stores;
        let in_flight = InFlight::read(inspector, keys, self.places, &self.pace).await?;
        let dead = dead_orders(self.stores, self.places, self.pace).await?;
        Ok(Round { in_flight, dead, entered: self.entered(orders).await? })
    }

    /// The entries of the candidates whose journal does not tell about them.
    async fn entered(&self, orders: &BTreeSet<At>) -> Result<HashMap<At, Entered>, LookError> {
        let is_without = |(place, _): &&At| self.sale(*place).is_some_and(|sale| !sale.is_complete);
        let wanted: HashSet<At> = orders.iter().filter(is_without).copied().collect();
        let ends = wanted.iter().filter_map(|(place, _)| Some(self.sale(*place)?.moment.stream_end));
        let (Some(end), mut entered) = (ends.max(), HashMap::new()) else { return Ok(HashMap::new()) };
        let seen = |entry, order: &tidegate_orders::Order| {
            let Some(place) = self.places.of(order.voucher) else { return };
            let at = (place, order.id.get());
            if wanted.contains(&at) {
                let (user, quantity) = (order.user.get(), order.quantity.get());
                entered.insert(at, Entered { entry, user, quantity });
            }
        };
        self.stores.redis().read_stream(end, self.pace, seen).await?;
        Ok(entered)
    }

    fn sale(&self, place: u32) -> Option<&Sale> {
        self.sales.get(place as usize)?.as_ref()
    }

    fn go_on(&self) -> Result<(), LookError> {
        if self.job.is_stopped() { Err(LookError::Stopped) } else { Ok(()) }
    }
}

fn by_place(at: &BTreeSet<At>) -> BTreeMap<u32, Vec<i64>> {
    let mut by_place: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
    for (place, id) in at {
        by_place.entry(*place).or_default().push(*id);
    }
    by_place
}
