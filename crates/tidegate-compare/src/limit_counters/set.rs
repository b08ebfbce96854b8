//! Sets what is counted wrong to what orders hold, while the sale goes on.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_orders::{LimitOwner, VoucherId, gate::SetUse};

use super::{CounterDifference, Fields, LimitCounterCheck, NotCompared};
use crate::{CompareError, reconciled::DifferenceKind};

/// A field is set so often at most: by then it was there when it was read, unless somebody takes it away each time.
const MOST_SETS: usize = 3;

/// What was set.
#[derive(Debug, Default)]
pub struct CountersSet {
    /// Fields, each once, by owner and the voucher that was asked for.
    pub fields: BTreeMap<(LimitOwner, VoucherId), BTreeSet<String>>,
    /// Those that move too fast.
    pub left: Vec<CounterDifference>,
    /// What was set, and could not be checked again.
    pub not_compared: BTreeSet<NotCompared>,
}

impl LimitCounterCheck<'_> {
    /// Sets these fields, as [`Self::compare`] found them, each only while it still holds what was read. That proves nothing of a field
    /// that does not count an order which was released since: such a one is checked again after it was set, and set again.
    ///
    /// # Errors
    /// See [`CompareError`]. What `done` says was set, was.
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

    /// Answers with those that were set and may be too high.
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
