//! Compares what Redis counts for limits with what orders hold, while the sale goes on.
//!
//! What an order used is in its note of the journal; of an order that was folded, beside its row in MySQL. Both sides are added up in a
//! `sketch` first, whose memory does not grow with them. Only fields in which they may differ are looked at one by one, until
//! whatever is wrong is the same twice. Only windows that have not ended are compared: nobody is checked against the others. A voucher
//! without limits costs one call.

mod candidates;
mod common;
mod difference;
mod not_compared;
mod orders;
mod owners;
mod rounds;
mod set;
mod sketch;

use std::collections::{BTreeMap, BTreeSet};

use sqlx::MySqlPool;
use tidegate_orders::{
    CampaignId, Gate, LimitOwner, Uses, VoucherId,
    gate::{GateError, ScanPages},
    limit_rows,
    limits::CountedWindows,
    records::vouchers,
};
use tidegate_stream::readable;
use tokio_util::sync::CancellationToken;

use self::{
    candidates::{At, Candidates},
    orders::{OrderNote, Orders},
    owners::{Count, Owners, slots_field},
    sketch::{Field, Sketch},
};
pub use self::{
    difference::{Counter, CounterDifference},
    not_compared::{NotCompared, WhyNotCompared},
    set::CountersSet,
};
use crate::{CompareError, Pace};

/// Fields that are looked at one by one, at most: some 200 bytes each. Whoever looks again finds the others.
const MOST_CANDIDATES: usize = 50_000;
/// Fields beside these whose limit is passed, and of which nothing else is suspected: they must not keep others from being looked at.
const MOST_PASSED: usize = 10_000;

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct LimitBooksReport {
    /// What is counted wrong, and which limits are passed.
    pub differences: Vec<CounterDifference>,
    /// Vouchers of which a key holds something else than it should, with what Redis says of it.
    pub unreadable: Vec<(VoucherId, String)>,
    /// Of what it is not known whether it is right, each once.
    pub not_compared: BTreeSet<NotCompared>,
}

/// What was found of a group.
#[derive(Debug, Default)]
struct Found {
    differences: Vec<CounterDifference>,
    not_compared: BTreeSet<NotCompared>,
}

/// Fields that may be wrong.
#[derive(Debug, Default)]
struct Suspects {
    fields: BTreeSet<At>,
    /// Places of owners of which there are more.
    cut: BTreeSet<usize>,
}

impl Suspects {
    fn insert(&mut self, (place, field): (usize, &str), most: usize) {
        if self.fields.len() < most {
            self.fields.insert((place, field.to_owned()));
        } else if !self.fields.contains(&(place, field.to_owned())) {
            self.cut.insert(place);
        }
    }
}

/// Compares.
#[derive(Clone, Copy, Debug)]
pub struct LimitBooks<'a>(Orders<'a>);

/// Which fields are compared.
#[derive(Clone, Copy, Debug)]
enum Fields<'a> {
    All,
    /// These, one by one.
    Only(&'a BTreeSet<(LimitOwner, String)>),
}

/// Vouchers that are compared together.
struct Group {
    vouchers: Vec<VoucherId>,
    owners: Owners,
}

impl LimitBooksReport {
    fn add(&mut self, found: Found) {
        self.differences.extend(found.differences);
        self.not_compared.extend(found.not_compared);
    }
}

impl Group {
    fn not_compared(&self, asked: &BTreeSet<VoucherId>, why: WhyNotCompared) -> Found {
        let places = self.owners.all().map(|(place, _)| place);
        Found { not_compared: self.not_compared_at(places, asked, why), ..Found::default() }
    }

    /// Nothing of vouchers that nobody asked for.
    fn not_compared_at(
        &self,
        places: impl Iterator<Item = usize>,
        asked: &BTreeSet<VoucherId>,
        why: WhyNotCompared,
    ) -> BTreeSet<NotCompared> {
        let owners = places.map(|place| self.owners.get(place).owner);
        let is_asked = |owner: &LimitOwner| match owner {
            LimitOwner::Voucher(voucher) => asked.contains(voucher),
            LimitOwner::Campaign(_) => true,
        };
        owners.filter(is_asked).map(|owner| NotCompared { owner, why }).collect()
    }
}

impl<'a> LimitBooks<'a> {
    /// Of the vouchers of this gate, until `stop`.
    #[must_use]
    pub const fn new(gate: &'a Gate, mysql: &'a MySqlPool, pace: Pace, stop: &'a CancellationToken) -> Self {
        Self(Orders { gate, mysql, pace, stop })
    }

    /// Compares what is counted for these vouchers and the campaigns that they are in. Of a campaign, the orders of all its vouchers
    /// are read. Changes nothing.
    ///
    /// # Errors
    /// See [`CompareError`].
    pub async fn compare(&self, vouchers: &[VoucherId]) -> Result<LimitBooksReport, CompareError> {
        self.compare_fields(vouchers, Fields::All).await
    }

    async fn compare_fields(
        &self,
        vouchers: &[VoucherId],
        fields: Fields<'_>,
    ) -> Result<LimitBooksReport, CompareError> {
        let mut report = LimitBooksReport::default();
        let mut campaigns: BTreeMap<CampaignId, BTreeSet<VoucherId>> = BTreeMap::new();
        for voucher in vouchers {
            let Some(windows) =
                keep(&mut report, *voucher, self.windows(LimitOwner::Voucher(*voucher)).await)?
            else {
                continue;
            };
            match windows.map(|windows| (windows.campaign, windows)) {
                Some((Some(campaign), _)) => _ = campaigns.entry(campaign).or_default().insert(*voucher),
                Some((None, windows)) => {
                    let mut owners = Owners::default();
                    owners.add(LimitOwner::Voucher(*voucher), windows);
                    let group = Group { vouchers: vec![*voucher], owners };
                    let found = self.compare_group(&group, &BTreeSet::from([*voucher]), fields).await;
                    let found = keep(&mut report, *voucher, found)?;
                    report.add(found.unwrap_or_default());
                }
                None => {}
            }
        }
        for (campaign, asked) in campaigns {
            let Some(first) = asked.first() else { continue };
            let found = async {
                let group = self.group_of(campaign).await?;
                self.compare_group(&group, &asked, fields).await
            };
            let found = keep(&mut report, *first, found.await)?;
            report.add(found.unwrap_or_default());
        }
        Ok(report)
    }

    /// None: it has no limits in Redis.
    async fn windows(&self, owner: LimitOwner) -> Result<Option<CountedWindows>, CompareError> {
        let rules = self.0.gate.read_limits(owner).await?;
        Ok(rules.and_then(|rules| CountedWindows::parse(&rules)))
    }

    /// A campaign with all its vouchers.
    async fn group_of(&self, campaign: CampaignId) -> Result<Group, CompareError> {
        let regions = limit_rows::regions(self.0.mysql, campaign).await?;
        let vouchers: Vec<VoucherId> = regions.into_iter().map(|(_, voucher)| voucher).collect();
        let mut owners = Owners::default();
        let all = vouchers.iter().copied().map(LimitOwner::Voucher);
        for owner in all.chain([LimitOwner::Campaign(campaign)]) {
            if let Some(windows) = self.windows(owner).await? {
                owners.add(owner, windows);
            }
        }
        Ok(Group { vouchers, owners })
    }

    async fn compare_group(
        &self,
        group: &Group,
        asked: &BTreeSet<VoucherId>,
        fields: Fields<'_>,
    ) -> Result<Found, CompareError> {
        for voucher in &group.vouchers {
            if let Some(why) = self.why_not(*voucher).await? {
                return Ok(group.not_compared(asked, why));
            }
        }
        let suspects = match fields {
            Fields::All => match self.suspects(group).await? {
                Ok(suspects) => suspects,
                Err(why) => return Ok(group.not_compared(asked, why)),
            },
            Fields::Only(fields) => {
                let place = |(owner, field): &(LimitOwner, String)| {
                    Some((group.owners.place(*owner)?, field.clone()))
                };
                Suspects { fields: fields.iter().filter_map(place).collect(), cut: BTreeSet::new() }
            }
        };
        self.stand(group, suspects, asked).await
    }

    /// Why nobody knows what the orders of a voucher hold.
    async fn why_not(&self, voucher: VoucherId) -> Result<Option<WhyNotCompared>, CompareError> {
        let moment = self.0.gate.moment(voucher).await?;
        if i64::try_from(moment.stream_end.ms).is_ok_and(|end_ms| end_ms > moment.at_ms) {
            return Ok(Some(WhyNotCompared::ClockWentBack));
        }
        if moment.is_complete {
            return Ok(None);
        }
        if moment.journaled > 0 {
            return Ok(Some(WhyNotCompared::JournalNotComplete));
        }
        // Orders that only the journal knew are on their way to MySQL: what its rows hold is not all.
        let row = vouchers::find(self.0.mysql, voucher).await?;
        let is_delisted = row.is_some_and(|row| row.delisted_ms.is_some());
        let was_sold = moment.stock.is_some()
            || !self.0.records().limit_uses().live_page(voucher, (0, 0)).await?.is_empty();
        Ok((was_sold && !is_delisted).then_some(WhyNotCompared::JournalGone))
    }

    /// The fields that may be counted wrong, or of which more is counted than their rule allows. The inner error: nobody can tell.
    async fn suspects(&self, group: &Group) -> Result<Result<Suspects, WhyNotCompared>, CompareError> {
        let now_ms = self.0.gate.clock_ms().await?;
        let (owners, mut sketch) = (&group.owners, Sketch::new());
        let (mut found, mut passed) = (Suspects::default(), Suspects::default());
        for (place, owner) in owners.all() {
            let add = |field: &str, value: &str| {
                let at = Field { owner: place, name: field };
                if owner.windows.has_slots && owners::user_of(field).is_some() {
                    match value.parse::<u32>() {
                        Ok(slots) => sketch.add(at, 0, (slots.into(), 0)),
                        Err(_) => found.insert((place, field), MOST_CANDIDATES),
                    }
                } else if let Some(rule) = owner.windows.rule_of(field) {
                    match Count::parse(value) {
                        Some(count) if !rule.is_running(count.window, now_ms) => {}
                        Some(Count { window, orders, units }) => {
                            sketch.add(at, window, (orders.cast_signed(), units.cast_signed()));
                            if rule.is_passed_by(orders, units) {
                                passed.insert((place, field), MOST_PASSED);
                            }
                        }
                        None => found.insert((place, field), MOST_CANDIDATES),
                    }
                }
            };
            self.each_use(owner.owner, add).await?;
        }
        let mut is_readable = true;
        for voucher in &group.vouchers {
            if let Some(place) = owners.place_of_slots(*voucher) {
                let add = |field: &str| sketch.add(Field { owner: place, name: field }, 0, (1, 0));
                self.each_buyer_without_field(*voucher, add).await?;
            }
            let take = |note| {
                is_readable &= !matches!(note, OrderNote::Unreadable);
                each_field(&note, owners, now_ms, |at, window, (orders, units)| {
                    sketch.add(at, window, (-orders, -units));
                });
            };
            self.0.read(*voucher, take).await?;
        }
        if !is_readable {
            return Ok(Err(WhyNotCompared::UnreadableNotes));
        }
        if !sketch.is_even() {
            self.collect(group, &sketch, now_ms, &mut found).await?;
        }
        found.fields.append(&mut passed.fields);
        found.cut.append(&mut passed.cut);
        Ok(Ok(found))
    }

    /// Goes through both sides again for the names of the fields that may differ.
    async fn collect(
        &self,
        group: &Group,
        sketch: &Sketch,
        now_ms: i64,
        found: &mut Suspects,
    ) -> Result<(), CompareError> {
        let mut insert = |at: Field<'_>| {
            if sketch.may_differ(at) {
                found.insert((at.owner, at.name), MOST_CANDIDATES);
            }
        };
        for (place, owner) in group.owners.all() {
            self.each_use(owner.owner, |field, _| insert(Field { owner: place, name: field })).await?;
        }
        for voucher in &group.vouchers {
            let see = |note| each_field(&note, &group.owners, now_ms, |at, _, _| insert(at));
            self.0.read(*voucher, see).await?;
        }
        Ok(())
    }

    async fn each_use(
        &self,
        owner: LimitOwner,
        mut seen: impl FnMut(&str, &str),
    ) -> Result<(), CompareError> {
        let mut pages = ScanPages::of_uses(self.0.gate, owner);
        while let Some(fields) = self.0.step(pages.next()).await? {
            fields.iter().for_each(|(field, value)| seen(field, value));
        }
        Ok(())
    }

    /// Each buyer of a voucher without a field of slots, by its name: such a one has the first slot.
    async fn each_buyer_without_field(
        &self,
        voucher: VoucherId,
        mut seen: impl FnMut(&str),
    ) -> Result<(), CompareError> {
        let mut pages = ScanPages::of_buyers(self.0.gate, voucher);
        while let Some(users) = self.0.step(pages.next()).await? {
            let users = users.iter().filter_map(|user| str::from_utf8(user).ok()?.parse().ok());
            let fields: Vec<String> = users.map(slots_field).collect();
            for moment in self.0.gate.read_uses(LimitOwner::Voucher(voucher), &fields).await? {
                moment.fields.iter().filter(|(_, held)| held.is_none()).for_each(|(field, _)| seen(field));
            }
        }
        Ok(())
    }

    fn names(found: BTreeSet<At>) -> Candidates {
        let mut candidates = Candidates::default();
        found.into_iter().for_each(|at| candidates.insert(at));
        candidates
    }
}

/// The fields of which an order holds something, with how much.
fn each_field(
    note: &OrderNote,
    owners: &Owners,
    now_ms: i64,
    mut seen: impl FnMut(Field<'_>, u64, (i64, i64)),
) {
    let OrderNote::Held(order) = note else { return };
    if let Some(place) = owners.place_of_slots(order.voucher) {
        let field = slots_field(order.user);
        seen(Field { owner: place, name: &field }, 0, (1 << (order.slot.get() - 1), 0));
    }
    for used in order.uses.iter().flat_map(Uses::iter) {
        let Some(place) = owners.place_of_use(order.voucher, used.campaign) else { continue };
        let field = used.field();
        if owners.running(place, &field, used.window, now_ms).is_some() {
            seen(Field { owner: place, name: &field }, used.window, (1, order.units.cast_signed()));
        }
    }
}

/// A key holds something of another type than it should.
fn is_of_other_type(error: &fred::error::Error) -> bool {
    error.details().contains("WRONGTYPE")
}

/// What was read; None, and said in the report, where a key holds something else than it should.
fn keep<T>(
    report: &mut LimitBooksReport,
    voucher: VoucherId,
    read: Result<T, CompareError>,
) -> Result<Option<T>, CompareError> {
    let said = match read {
        Ok(read) => return Ok(Some(read)),
        Err(CompareError::Gate(GateError::Refused(error))) if is_of_other_type(&error) => {
            readable(error.details()).to_owned()
        }
        Err(CompareError::Gate(error @ GateError::Unexpected { .. })) => error.to_string(),
        Err(error) => return Err(error),
    };
    report.unreadable.push((voucher, said));
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_of_which_more_is_suspected_than_is_looked_at_are_known() {
        let mut suspects = Suspects::default();
        for (place, field) in [(0, "1:a"), (0, "1:b"), (0, "1:a"), (1, "1:a"), (0, "1:b")] {
            suspects.insert((place, field), 2);
        }
        assert_eq!((suspects.fields.len(), suspects.cut), (2, BTreeSet::from([1])));
    }
}
