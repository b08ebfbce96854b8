//! The check of fields one by one, until two checks of each find the same.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use tidegate_orders::{LimitOwner, OrderId, VoucherId, limit_rows};
use tokio::time::sleep;

use super::{
    Group, LimitCounterCheck, LimitCounterReport, NotComparedReason,
    candidates::{At, Candidates, Judged, Verdict},
    difference::{Counter, CounterDifference},
    orders::OrderNote,
    owners::user_of,
    suspects::Suspects,
};
use crate::{CompareError, reconciled::DifferenceKind};

/// The pause between two checks of the same fields.
const BETWEEN: Duration = Duration::from_secs(1);
/// The largest number of checks. A field that is wrong in another way each time is left to the next comparison.
const MOST_LOOKS: usize = 5;
/// The largest number of orders that may be released during a check: with more, the result is unknown.
const MOST_RELEASED: usize = 20_000;
/// The time by which the clocks of the two stores may differ. It is also the time for which orders may still be
/// admitted after their limit was lowered in MySQL.
const CLOCKS_MS: i64 = 10_000;

/// The times when limits were set, by the place of their owner and their number.
type SetAt = HashMap<(usize, u32), i64>;

impl LimitCounterCheck<'_> {
    /// Finds the suspects that are wrong.
    pub(super) async fn stand(
        &self,
        group: &Group,
        suspects: Suspects,
        asked: &BTreeSet<VoucherId>,
    ) -> Result<LimitCounterReport, CompareError> {
        let not_compared = group.not_compared_at(suspects.cut.into_iter(), asked, NotComparedReason::TooMany);
        let mut found = LimitCounterReport { not_compared, ..LimitCounterReport::default() };
        let (mut left, mut before) = (suspects.fields, HashMap::<At, Verdict>::new());
        for nth in 0..MOST_LOOKS {
            if left.is_empty() {
                break;
            }
            if nth > 0 {
                sleep(BETWEEN).await;
            }
            let now = match self.look(group, std::mem::take(&mut left)).await? {
                Ok(now) => now,
                Err(why) => {
                    found.not_compared.append(&mut group.not_compared(asked, why).not_compared);
                    break;
                }
            };
            for (at, judged) in &now {
                match before.get(at).is_some_and(|before| before.is_as(judged.verdict)) {
                    true => found.differences.extend(differences_of(group, asked, at, judged)),
                    false => _ = left.insert(at.clone()),
                }
            }
            before = now.into_iter().map(|(at, judged)| (at, judged.verdict)).collect();
        }
        let moving = left.into_iter().map(|(place, _)| place);
        let mut moving = group.not_compared_at(moving, asked, NotComparedReason::KeepsMoving);
        found.not_compared.append(&mut moving);
        found.differences.sort_by(|a, b| {
            (a.voucher, a.kind, &a.counter.field).cmp(&(b.voucher, b.kind, &b.counter.field))
        });
        Ok(found)
    }

    /// Finds the faults of these fields now. The inner error is the reason why they are unknown.
    async fn look(
        &self,
        group: &Group,
        fields: BTreeSet<At>,
    ) -> Result<Result<BTreeMap<At, Judged>, NotComparedReason>, CompareError> {
        let (orders, owners) = (&self.0, &group.owners);
        let mut candidates = Candidates::new(fields);
        let now_ms = orders.redis.journals().clock_ms().await?;
        for (place, fields) in candidates.fields() {
            for snapshot in orders.redis.limits().read_uses(owners.get(place).owner, &fields).await? {
                candidates.set(place, snapshot);
            }
        }
        let (first_ms, mut released, mut is_readable) = (candidates.first_ms(), Vec::new(), true);
        for voucher in &group.vouchers {
            let see = |note| match note {
                OrderNote::Held(order) => candidates.add(&order, owners),
                OrderNote::Released(order) if order.released_ms >= first_ms => released.push(order),
                OrderNote::Released(_) => {}
                OrderNote::Unreadable => is_readable = false,
            };
            orders.read(*voucher, see).await?;
        }
        if !is_readable {
            return Ok(Err(NotComparedReason::UnreadableNotes));
        }
        if released.len() > MOST_RELEASED {
            return Ok(Err(NotComparedReason::TooManyEnded));
        }
        let ids: Vec<OrderId> = released.iter().map(|order| order.order).collect();
        let used = orders.records().limit_uses().by_orders(&ids).await?;
        for order in &released {
            candidates.add_released(order, used.get(&order.order), owners);
        }
        let (mut wrong, judged) = (BTreeMap::new(), candidates.judged(owners, now_ms));
        let set_at = self.set_at(group, &judged).await?;
        for (at, mut judged) in judged {
            if judged.verdict.passed.is_some() && !was_set_before(&set_at, &at, judged.latest_ms) {
                judged.verdict.passed = None;
            }
            if judged.verdict.is_mismatch() || judged.verdict.passed.is_some() {
                wrong.insert(at, judged);
            }
        }
        Ok(Ok(wrong))
    }

    /// Reads when the exceeded limits were set: one query for each owner, however many fields there are.
    async fn set_at(&self, group: &Group, judged: &[(At, Judged)]) -> Result<SetAt, CompareError> {
        let passed = judged.iter().filter(|(_, judged)| judged.verdict.passed.is_some());
        let places: BTreeSet<usize> = passed.map(|((place, _), _)| *place).collect();
        let mut set_at = SetAt::new();
        for place in places {
            let of_owner = limit_rows::set_at_ms(self.0.mysql, group.owners.get(place).owner).await?;
            set_at.extend(of_owner.into_iter().map(|(number, set_ms)| ((place, number), set_ms)));
        }
        Ok(set_at)
    }
}

/// Whether a limit already had its numbers when the last order of these uses was made. Otherwise it was lowered since,
/// and is not exceeded.
fn was_set_before(set_at: &SetAt, (place, field): &At, made_ms: i64) -> bool {
    let number = field.split(':').next().and_then(|number| number.parse().ok());
    let set_ms = number.and_then(|number| set_at.get(&(*place, number)));
    set_ms.is_some_and(|set_ms| set_ms.saturating_add(CLOCKS_MS) < made_ms)
}

/// The differences of a field: its count is wrong, its limit is exceeded, or both. Vouchers that were not requested
/// are left out.
fn differences_of(
    group: &Group,
    asked: &BTreeSet<VoucherId>,
    (place, field): &At,
    judged: &Judged,
) -> Vec<CounterDifference> {
    let owner = group.owners.get(*place);
    let voucher = match owner.owner {
        LimitOwner::Voucher(own) => asked.get(&own),
        LimitOwner::Campaign(_) => asked.first(),
    };
    let Some(voucher) = voucher.copied() else { return Vec::new() };
    let (user, rule) = (user_of(field), owner.windows.rule_of(field));
    let counter = Counter {
        owner: owner.owner,
        limit: rule.map(|rule| rule.name.clone()),
        field: field.clone(),
        counted: judged.stored.clone(),
        held: judged.held.clone(),
        is_exact: judged.is_exact,
    };
    let difference = |kind, units| CounterDifference { kind, voucher, user, units, counter: counter.clone() };
    let of_counter =
        if user.is_some() { DifferenceKind::SlotsMismatch } else { DifferenceKind::LimitUsesMismatch };
    let mismatch =
        judged.verdict.is_mismatch().then(|| difference(of_counter, judged.verdict.units.certain()));
    let passed =
        judged.verdict.passed.map(|over| difference(DifferenceKind::LimitPassed, over.cast_signed()));
    mismatch.into_iter().chain(passed).collect()
}
