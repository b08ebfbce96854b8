//! Vouchers whose rows another session holds. All lanes of a process share them, so that only the first batch waits for
//! such a row.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rand::RngExt;
use sqlx::MySqlPool;
use tidegate_stream::Outage;

use super::{
    Ledger,
    fault::Fault,
    session::Session,
    sql::{self, LockedRow},
};
use crate::{order::VoucherId, row_locks};

/// The time after which a held row is checked again.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The time between two checks of a row that was waited for in vain. Each lane locks the row of a voucher on sale for
/// some milliseconds, so one check says little.
pub(super) const SECOND_LOOK: Duration = Duration::from_millis(50);

/// The same time while the wait continues. On a slow node, other sessions hold a row for as long as a commit takes
/// there.
pub(super) const PATIENT_LOOK: Duration = Duration::from_millis(500);

/// The longest time for the search for the holder of a row, which is only for the log.
const SEARCH: Duration = Duration::from_secs(1);

/// The vouchers whose rows were held at the last check.
#[derive(Debug, Default)]
pub(super) struct LockedVouchers(Mutex<HashMap<VoucherId, Held>>);

#[derive(Clone, Copy, Debug)]
struct Held {
    since: Instant,
    looked: Instant,
    /// The contents of the row at that time. `None` if the contents could not be read.
    row: Option<LockedRow>,
}

type LockedRows = BTreeMap<VoucherId, LockedRow>;

/// The rows of some vouchers that are locked.
enum Locks {
    /// The locked rows, by voucher.
    Rows(LockedRows),
    /// No row can be checked: a session has locked the whole table.
    WholeTable,
}

impl Ledger {
    /// The vouchers among the given ones whose rows other sessions have locked. An attempt to write their orders now
    /// would only wait. The call does not wait for locks, and mostly needs no query.
    ///
    /// # Errors
    /// Fails if MySQL does not answer.
    pub async fn locked_vouchers(
        &self,
        vouchers: impl IntoIterator<Item = VoucherId>,
    ) -> Result<BTreeSet<VoucherId>, Outage> {
        let (mut held, due) = self.held.known_among(vouchers);
        if !due.is_empty() {
            let now = self.find_held(due.clone(), SECOND_LOOK).await?;
            held.retain(|voucher| now.contains(voucher) || !due.contains(voucher));
        }
        Ok(held)
    }

    /// The vouchers among these whose rows other sessions hold. Checks locked rows that are not known to be held a
    /// second time, after about `second_look`: every lane of every worker locks a row for a moment to write it.
    pub(super) async fn find_held(
        &self,
        vouchers: BTreeSet<VoucherId>,
        second_look: Duration,
    ) -> Result<BTreeSet<VoucherId>, Outage> {
        let all: Vec<VoucherId> = vouchers.into_iter().collect();
        let held: BTreeMap<VoucherId, Option<LockedRow>> = match self.find_locks(&all).await? {
            Locks::WholeTable => all.iter().map(|voucher| (*voucher, None)).collect(),
            Locks::Rows(locked) => {
                let (mut held, suspects) = self.held.compare(locked);
                if !suspects.is_empty() {
                    held.extend(self.held_at_second_look(suspects, second_look).await?);
                }
                held.into_iter().map(|(voucher, row)| (voucher, Some(row))).collect()
            }
        };
        self.held.update(all, &held, &self.pool);
        Ok(held.into_keys().collect())
    }

    async fn held_at_second_look(
        &self,
        suspects: LockedRows,
        second_look: Duration,
    ) -> Result<LockedRows, Outage> {
        // Each lane waits for another time: two lanes that check at once lock each other's rows.
        let jitter = rand::rng().random_range(0.8..1.2);
        tokio::time::sleep(second_look.mul_f64(jitter)).await;
        let vouchers: Vec<VoucherId> = suspects.keys().copied().collect();
        Ok(match self.find_locks(&vouchers).await? {
            Locks::Rows(locked) => unchanged_since(&suspects, locked),
            // These orders are tried, and find the lock on the table by themselves.
            Locks::WholeTable => LockedRows::new(),
        })
    }

    async fn find_locks(&self, vouchers: &[VoucherId]) -> Result<Locks, Outage> {
        let look = Box::pin(async {
            let mut session = Session::open(&self.pool).await?;
            let locked = sql::locked_vouchers(&mut session, vouchers).await.map_err(Fault::from);
            session.end(locked).await
        });
        match self.in_time(look).await {
            Ok(locked) => Ok(Locks::Rows(locked)),
            Err(Fault::Outage(outage)) => {
                self.forget_idle_connections();
                Err(outage)
            }
            Err(_) => Ok(Locks::WholeTable),
        }
    }
}

/// The rows that are locked with the same contents as before. No session has written them in between, so one session
/// has held them all the time. The other rows pass from one writer to the next.
fn unchanged_since(before: &LockedRows, mut locked: LockedRows) -> LockedRows {
    locked.retain(|voucher, row| before.get(voucher) == Some(row));
    locked
}

impl LockedVouchers {
    /// The vouchers among these that were held at the last check.
    pub(super) fn among(&self, vouchers: impl IntoIterator<Item = VoucherId>) -> BTreeSet<VoucherId> {
        let held = self.held();
        if held.is_empty() {
            return BTreeSet::new();
        }
        vouchers.into_iter().filter(|voucher| held.contains_key(voucher)).collect()
    }

    /// The vouchers among these that are known to be held, and those of them that must be checked again.
    fn known_among(
        &self,
        vouchers: impl IntoIterator<Item = VoucherId>,
    ) -> (BTreeSet<VoucherId>, BTreeSet<VoucherId>) {
        let mut held = self.held();
        if held.is_empty() {
            return Default::default();
        }
        let now = Instant::now();
        let (mut known, mut due) = (BTreeSet::new(), BTreeSet::new());
        for voucher in vouchers {
            if let Some(held) = held.get_mut(&voucher)
                && known.insert(voucher)
                && now - held.looked >= LOOK_EVERY
            {
                // One lane checks; the others need not check meanwhile.
                held.looked = now;
                due.insert(voucher);
            }
        }
        (known, due)
    }

    /// Compares locked rows with the known ones. Returns the rows that are still held, unchanged since the last check,
    /// and then the rows that are not known. The other rows were written since, so no session holds them.
    fn compare(&self, locked: LockedRows) -> (LockedRows, LockedRows) {
        let known = self.held();
        let (mut still_held, mut suspects) = (LockedRows::new(), LockedRows::new());
        for (voucher, row) in locked {
            match known.get(&voucher) {
                None => drop(suspects.insert(voucher, row)),
                Some(before) if before.row.is_none_or(|before| before == row) => {
                    still_held.insert(voucher, row);
                }
                Some(_) => {}
            }
        }
        (still_held, suspects)
    }

    /// Notes that `held` of these vouchers are held now, and that the others are free. Logs the changes.
    fn update(
        &self,
        vouchers: Vec<VoucherId>,
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
        log_freed(&freed);
        if let Some(first) = begun.first() {
            // In a task of its own, so that no batch waits for the search.
            tokio::spawn(log_held(*first, begun.len(), pool.clone()));
        }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<VoucherId, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Logs one line for all of the vouchers: a lock on the whole table ends for thousands of vouchers at once.
fn log_freed(freed: &[(VoucherId, Instant)]) {
    if let Some((first, _)) = freed.first() {
        let longest = freed.iter().map(|(_, since)| since.elapsed()).max().unwrap_or_default();
        let held_ms = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        tracing::info!(
            voucher = %first, vouchers = freed.len(), held_ms,
            "the row of a voucher is free again: orders of the voucher are written again"
        );
    }
}

async fn log_held(first: VoucherId, vouchers: usize, pool: MySqlPool) {
    let search = tokio::time::timeout(SEARCH, row_locks::oldest_holder(&pool)).await;
    let (connection, age_s) = match search {
        Ok(Ok(Some(holder))) => (Some(holder.connection), Some(holder.age_s)),
        _ => (None, None),
    };
    tracing::warn!(
        voucher = %first, vouchers, connection, age_s,
        "the row of a voucher is locked by another session: orders of the voucher wait until the row is free"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locked<const N: usize>(rows: [(i64, i64); N]) -> LockedRows {
        let row = |stock| LockedRow { stock: Some(stock), refusals: Some(0) };
        rows.map(|(voucher, stock)| (voucher.try_into().unwrap(), row(stock))).into()
    }

    #[test]
    fn a_row_that_was_written_between_two_looks_is_not_held() {
        let before = locked([(1, 50), (2, 50)]);
        assert_eq!(unchanged_since(&before, locked([(1, 50), (2, 49), (3, 50)])), locked([(1, 50)]));
    }

    #[test]
    fn a_voucher_that_is_held_is_so_until_somebody_has_written_it() {
        let held = LockedVouchers::default();
        let now = Instant::now();
        for (voucher, row) in locked([(1, 50), (2, 50)]) {
            held.held().insert(voucher, Held { since: now, looked: now, row: Some(row) });
        }
        let (still_held, suspects) = held.compare(locked([(1, 50), (2, 49), (3, 50)]));
        assert_eq!((still_held, suspects), (locked([(1, 50)]), locked([(3, 50)])));
    }
}
