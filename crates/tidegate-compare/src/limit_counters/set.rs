//! The repair of wrong limit counters during a sale.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_orders::{LimitOwner, VoucherId, scripts::SetUse};

use super::{CounterDifference, Fields, LimitCounterCheck, NotCompared};
use crate::{CompareError, reconciled::DifferenceKind};

/// The largest number of times that a field is set. By then the field existed when it was read, unless a program
/// removes it each time.
const MOST_SETS: usize = 3;

/// The result of setting limit counters to their right values.
#[derive(Debug, Default)]
pub struct CountersSet {
    /// The fields that were set to their right values, by voucher or campaign. Each field is listed once.
    pub fields: BTreeMap<(LimitOwner, VoucherId), BTreeSet<String>>,
    /// The counters that were not set, because they changed too fast.
    pub left: Vec<CounterDifference>,
    /// The counters that were set, but that could not be checked afterwards.
    pub not_compared: BTreeSet<NotCompared>,
}

impl LimitCounterCheck<'_> {
    /// Sets the wrong counters that [`Self::compare`] found, each only if its value has not changed since. If a counter
    /// was too low, a later release may make the new value too high. Therefore, this function checks such a counter
    /// again, and sets it again if necessary.
    ///
    /// # Errors
    /// Fails for the reasons in [`CompareError`]. The fields in `done` are set even then.
    pub async fn set(
        &self,
        found: Vec<CounterDifference>,
        done: &mut CountersSet,
    ) -> Result<(), CompareError> {
        let (mut found, mut unproven) = (found, Vec::new());
        for _ in 0..MOST_SETS {
            unproven = self.set_once(found, done).await?;
            if unproven.is_empty() {
                return Ok(());
            }
            let fields = unproven.iter().map(|it| (it.counter.owner, it.counter.field.clone())).collect();
            let vouchers: BTreeSet<VoucherId> = unproven.iter().map(|it| it.voucher).collect();
            let vouchers: Vec<VoucherId> = vouchers.into_iter().collect();
            let again = self.compare_fields(&vouchers, Fields::Only(&fields)).await?;
            done.not_compared.extend(again.not_compared);
            found = again.differences;
        }
        done.left.append(&mut unproven);
        Ok(())
    }

    /// Sets the fields once. Returns those that were set and may be too high.
    async fn set_once(
        &self,
        found: Vec<CounterDifference>,
        done: &mut CountersSet,
    ) -> Result<Vec<CounterDifference>, CompareError> {
        let mut by_owner: BTreeMap<LimitOwner, Vec<(CounterDifference, SetUse)>> = BTreeMap::new();
        for it in found.into_iter().filter(|it| it.kind != DifferenceKind::LimitPassed) {
            match it.counter.set() {
                Some(set) => by_owner.entry(it.counter.owner).or_default().push((it, set)),
                None => done.left.push(it),
            }
        }
        let mut unproven = Vec::new();
        for (owner, fields) in by_owner {
            self.0.go_on()?;
            let (found, sets): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
            let are_set = self.0.redis.limits().set_uses(owner, &sets).await?;
            for (it, is_set) in found.into_iter().zip(are_set) {
                if !is_set {
                    done.left.push(it);
                    continue;
                }
                let of_owner = done.fields.entry((owner, it.voucher)).or_default();
                of_owner.insert(it.counter.field.clone());
                if it.counter.hides_releases() {
                    unproven.push(it);
                }
            }
        }
        Ok(unproven)
    }
}
