//! Vouchers whose rows somebody holds: known to all lanes of a process, so that only the first batch waits for one.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rand::RngExt;
use sqlx::MySqlPool;

use crate::{order::VoucherId, row_locks};

/// How long a look at a held row holds good.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Between two looks at a row that is locked. Lanes keep the row of a voucher on sale for some milliseconds each, so one look
/// says little.
const SECOND_LOOK: Duration = Duration::from_millis(50);

/// How long the search for the holder of a row may take: it is only for the log.
const SEARCH: Duration = Duration::from_secs(1);

/// The vouchers that were held when they were last looked at.
#[derive(Debug, Default)]
pub(super) struct HeldVouchers(Mutex<HashMap<VoucherId, Held>>);

#[derive(Clone, Copy, Debug)]
struct Held {
    since: Instant,
    looked: Instant,
    /// As it stood then; None where that could not be read.
    row: Option<LockedRow>,
}

/// What others see of a row that somebody has locked: as it was committed last. Whoever writes orders changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LockedRow {
    pub stock: Option<i64>,
    pub refusals: Option<i64>,
}

/// Of these locked rows, those that were locked with the same contents before: nobody has written there since, so one
/// session has kept them. The others go from one writer to the next.
pub(super) fn kept(
    mut locked: BTreeMap<VoucherId, LockedRow>,
    before: &BTreeMap<VoucherId, LockedRow>,
) -> BTreeMap<VoucherId, LockedRow> {
    locked.retain(|voucher, row| before.get(voucher) == Some(row));
    locked
}

/// Waits for the moment of the second look. Not for all lanes the same: two that look at once lock each other's rows.
pub(super) async fn until_second_look() {
    let jitter = rand::rng().random_range(0.8..1.2);
    tokio::time::sleep(SECOND_LOOK.mul_f64(jitter)).await;
}

impl HeldVouchers {
    /// Of these vouchers, those that are held, as far as is known; and those of them that have to be looked at again.
    pub(super) fn among(
        &self,
        vouchers: impl IntoIterator<Item = VoucherId>,
    ) -> (BTreeSet<VoucherId>, Vec<VoucherId>) {
        let mut held = self.held();
        if held.is_empty() {
            return Default::default();
        }
        let now = Instant::now();
        let (mut known, mut due) = (BTreeSet::new(), Vec::new());
        for voucher in vouchers {
            if let Some(held) = held.get_mut(&voucher)
                && known.insert(voucher)
                && now - held.looked >= LOOK_EVERY
            {
                // One lane looks; the others need not meanwhile.
                held.looked = now;
                due.push(voucher);
            }
        }
        (known, due)
    }

    /// Divides locked rows into those that are known to be held, and unchanged since the last look, and those of which
    /// nothing is known. What is left out has been written since: it goes on.
    pub(super) fn divide(
        &self,
        locked: BTreeMap<VoucherId, LockedRow>,
    ) -> (BTreeMap<VoucherId, LockedRow>, BTreeMap<VoucherId, LockedRow>) {
        let known = self.held();
        let (mut still, mut suspects) = (BTreeMap::new(), BTreeMap::new());
        for (voucher, row) in locked {
            match known.get(&voucher) {
                None => drop(suspects.insert(voucher, row)),
                Some(before) if before.row.is_none_or(|before| before == row) => {
                    still.insert(voucher, row);
                }
                Some(_) => {}
            }
        }
        (still, suspects)
    }

    /// Of these vouchers, `held` are held now, and the others are free. Says so where it is new.
    pub(super) async fn seen(
        &self,
        vouchers: impl IntoIterator<Item = VoucherId>,
        held: &BTreeMap<VoucherId, Option<LockedRow>>,
        pool: &MySqlPool,
    ) {
        let now = Instant::now();
        let (mut begun, mut freed) = (Vec::new(), Vec::new());
        {
            let mut known = self.held();
            for voucher in vouchers {
                if let Some(row) = held.get(&voucher) {
                    let entry = known.entry(voucher).or_insert_with(|| {
                        begun.push(voucher);
                        Held { since: now, looked: now, row: *row }
                    });
                    (entry.looked, entry.row) = (now, *row);
                } else if let Some(Held { since, .. }) = known.remove(&voucher) {
                    freed.push((voucher, since));
                }
            }
        }
        // One line for all of them: a lock on the whole table ends for thousands of vouchers at once.
        if let Some((first, _)) = freed.first() {
            let longest = freed.iter().map(|(_, since)| since.elapsed()).max().unwrap_or_default();
            let held_ms = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
            tracing::info!(
                voucher = %first, vouchers = freed.len(), held_ms,
                "the row of a voucher is free again: its orders go on"
            );
        }
        if let Some(first) = begun.first() {
            let search = tokio::time::timeout(SEARCH, row_locks::oldest_holder(pool)).await;
            let (connection, age_s) = match search {
                Ok(Ok(Some(holder))) => (Some(holder.connection), Some(holder.age_s)),
                _ => (None, None),
            };
            tracing::warn!(
                voucher = %first, vouchers = begun.len(), connection, age_s,
                "the row of a voucher is held by another session: its orders are set aside until it is free"
            );
        }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<VoucherId, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locked<const N: usize>(rows: [(i64, i64); N]) -> BTreeMap<VoucherId, LockedRow> {
        let row = |stock| LockedRow { stock: Some(stock), refusals: Some(0) };
        rows.map(|(voucher, stock)| (voucher.try_into().unwrap(), row(stock))).into()
    }

    #[test]
    fn a_row_that_was_written_between_two_looks_is_not_held() {
        assert_eq!(kept(locked([(1, 50), (2, 49), (3, 50)]), &locked([(1, 50), (2, 50)])), locked([(1, 50)]));
    }

    #[test]
    fn a_voucher_that_is_held_is_so_until_somebody_has_written_it() {
        let held = HeldVouchers::default();
        let now = Instant::now();
        for (voucher, row) in locked([(1, 50), (2, 50)]) {
            held.held().insert(voucher, Held { since: now, looked: now, row: Some(row) });
        }
        let (still, suspects) = held.divide(locked([(1, 50), (2, 49), (3, 50)]));
        assert_eq!((still, suspects), (locked([(1, 50)]), locked([(3, 50)])));
    }
}
