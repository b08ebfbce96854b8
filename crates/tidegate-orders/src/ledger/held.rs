//! Vouchers whose rows somebody holds: known to all lanes of a process, so that only the first batch waits for one.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use sqlx::MySqlPool;

use crate::{order::VoucherId, row_locks};

/// How long a look at a held row holds good.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How long the search for the holder of a row may take: it is only for the log.
const SEARCH: Duration = Duration::from_secs(1);

/// The vouchers that were held when they were last looked at.
#[derive(Debug, Default)]
pub(super) struct HeldVouchers(Mutex<HashMap<VoucherId, Held>>);

#[derive(Clone, Copy, Debug)]
struct Held {
    since: Instant,
    looked: Instant,
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

    /// Of these vouchers, `held` are held now, and the others are free. Says so where it is new.
    pub(super) async fn seen(
        &self,
        vouchers: impl IntoIterator<Item = VoucherId>,
        held: &BTreeSet<VoucherId>,
        pool: &MySqlPool,
    ) {
        let now = Instant::now();
        let mut begun = Vec::new();
        {
            let mut known = self.held();
            for voucher in vouchers {
                if held.contains(&voucher) {
                    let entry = known.entry(voucher).or_insert_with(|| {
                        begun.push(voucher);
                        Held { since: now, looked: now }
                    });
                    entry.looked = now;
                } else if let Some(Held { since, .. }) = known.remove(&voucher) {
                    let held_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
                    tracing::info!(%voucher, held_ms, "the row of a voucher is free again: its orders go on");
                }
            }
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
