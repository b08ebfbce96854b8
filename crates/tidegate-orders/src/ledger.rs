//! The one door to MySQL for orders: a batch becomes rows in one transaction, and every order gets a verdict.
//!
//! Nearly always all is well, so a batch is decided from what is most often so (`knowledge.rs`) and written in one packet,
//! which checks in passing that it was so, and ends itself in an error before the commit where it was not. Then, and for
//! some batches after it, the database is looked up first, as deep as is needed; under the locks of the vouchers only
//! where a stock covers a part of a batch, or what was looked up has changed by the time it is written. Whichever way, the
//! same function decides, and the same rows are written; but an order whose id was refused under another voucher is found
//! only where it is looked up.

mod attempt;
mod fault;
mod foresight;
mod held;
mod knowledge;
mod retreat;
mod retry;
mod session;
mod sql;
mod verdict;
mod withdraw;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    pin::pin,
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use sqlx::MySqlPool;
use tidegate_stream::{Backoff, EntryId, Outage};
use tokio::{sync::Semaphore, time::timeout};

use crate::order::{Order, VoucherId};
use fault::Fault;
pub use foresight::{Foresight, Snapshot};
use held::{HeldVouchers, LockedRow};
use knowledge::{Caution, Knowledge};
use retreat::Retreat;
pub use retry::{ContentionCounts, Contentions};
use retry::{Tried, insist};
use session::Session;
use sql::Depth;
use verdict::Known;
pub use verdict::{Contention, Decided, Refusal, Verdict};
pub use withdraw::Withdrawal;

/// A batch that takes longer than this waits for somebody else's locks: it keeps its place no longer.
const TURN: Duration = Duration::from_millis(250);

/// However many rows of a batch are held by others: what is not written by then has to wait, and is tried again later, an
/// eighth of a batch first.
const BATCH_TIME: Duration = Duration::from_secs(5);

/// An order with the stream entry that brought it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// The order.
    pub order: Order,
    /// The entry, kept in the row so that an order can be traced back.
    pub entry: EntryId,
}

/// Writes orders.
#[derive(Clone, Debug)]
pub struct Ledger {
    pool: MySqlPool,
    timeout: Duration,
    /// Places for those who write.
    writers: Arc<Semaphore>,
    /// The least that a batch is decided from.
    first: Knowledge,
    caution: Arc<Caution>,
    held: Arc<HeldVouchers>,
    contentions: Arc<Contentions>,
    /// Vouchers that have refusals, as far as is known. It never becomes untrue: refusals stay.
    refused: Arc<RwLock<HashSet<VoucherId>>>,
    commits_in_packet: Arc<AtomicBool>,
    retreat: Arc<Retreat>,
}

impl Ledger {
    /// A ledger in the database behind `pool`, whose sessions run at READ COMMITTED. A transaction that takes
    /// longer than `timeout` is given up; it may have been committed, which the next try finds.
    #[must_use]
    pub fn new(pool: MySqlPool, timeout: Duration) -> Self {
        Self {
            pool,
            timeout,
            writers: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
            first: Knowledge::Assumed,
            caution: Arc::default(),
            held: Arc::default(),
            contentions: Arc::default(),
            refused: Arc::default(),
            commits_in_packet: Arc::default(),
            retreat: Arc::default(),
        }
    }

    /// Lets `writers` batches write at the same time; the others wait in turn. Batches of one voucher wait for each
    /// other all the same, but in the server, where waiting costs more. One that takes unusually long gives up its
    /// place and goes on beside the others.
    #[must_use]
    pub fn with_writers(self, writers: usize) -> Self {
        Self { writers: Arc::new(Semaphore::new(writers.max(1))), ..self }
    }

    /// For batches that are most often there as a whole: it looks first, and locks and writes nothing then. Every verdict
    /// is the same.
    #[must_use]
    pub fn looking_first(self) -> Self {
        Self { first: Knowledge::Looked(Depth::Ids), ..self }
    }

    /// Sends the COMMIT in one packet with the statements before it while `in_packet` is true: one round trip less, and
    /// a worker that is frozen leaves no open transaction behind.
    ///
    /// It must be false, as it is without this, for a server that replicates by certification (Galera): such a server
    /// answers OK to a COMMIT in a packet with others though certification rolled the transaction back.
    #[must_use]
    pub fn committing_in_packet(self, in_packet: Arc<AtomicBool>) -> Self {
        Self { commits_in_packet: in_packet, ..self }
    }

    /// How often others were in the way.
    #[must_use]
    pub fn contentions(&self) -> &Arc<Contentions> {
        &self.contentions
    }

    /// Of the vouchers of these orders, those whose rows are held by others. Waits for nobody, and mostly asks nobody: an
    /// order of such a voucher need not be recorded now.
    ///
    /// # Errors
    /// When MySQL does not answer.
    pub async fn held_vouchers(
        &self,
        vouchers: impl IntoIterator<Item = VoucherId>,
    ) -> Result<BTreeSet<VoucherId>, Outage> {
        let (mut held, due) = self.held.among(vouchers);
        if !due.is_empty() {
            let now = self.look_who_is_held(&due).await?;
            held.retain(|voucher| now.contains(voucher) || !due.contains(voucher));
        }
        Ok(held)
    }

    /// Looks at rows, twice at those that are locked and not known to be held: a lane of ours or of another worker, too,
    /// locks a row that it writes, for a moment.
    async fn look_who_is_held(&self, vouchers: &[VoucherId]) -> Result<BTreeSet<VoucherId>, Outage> {
        let held: BTreeMap<VoucherId, Option<LockedRow>> = match self.look_who_is_locked(vouchers).await? {
            // Somebody has locked the whole table.
            None => vouchers.iter().map(|voucher| (*voucher, None)).collect(),
            Some(locked) => {
                let (mut held, suspects) = self.held.divide(locked);
                if !suspects.is_empty() {
                    held::until_second_look().await;
                    let again: Vec<VoucherId> = suspects.keys().copied().collect();
                    // None: somebody has locked the whole table in between. Then these go on, and meet it.
                    let locked = self.look_who_is_locked(&again).await?.unwrap_or_default();
                    held.extend(held::kept(locked, &suspects));
                }
                held.into_iter().map(|(voucher, row)| (voucher, Some(row))).collect()
            }
        };
        self.held.seen(vouchers.iter().copied(), &held, &self.pool).await;
        Ok(held.into_keys().collect())
    }

    /// None: the table cannot be looked at.
    async fn look_who_is_locked(
        &self,
        vouchers: &[VoucherId],
    ) -> Result<Option<BTreeMap<VoucherId, LockedRow>>, Outage> {
        let look = async {
            let mut session = Session::open(&self.pool).await?;
            let locked = sql::locked_vouchers(&mut session, vouchers).await.map_err(Fault::from);
            session.end(locked).await
        };
        match timeout(self.timeout, look).await.unwrap_or_else(|_| Err(Fault::Outage(self.too_late()))) {
            Ok(locked) => Ok(Some(locked)),
            Err(Fault::Outage(outage)) => {
                self.forget_idle_connections();
                Err(outage)
            }
            Err(_) => Ok(None),
        }
    }

    /// Records `orders`, which stand in stream order, and answers with one verdict an order, in that order.
    ///
    /// When stock covers only a part, earlier orders win. Orders that were recorded before get the verdict they
    /// had, so this can be repeated at any time. A row that the database refuses is split off until it stands
    /// alone; its neighbours are written. Where somebody else holds a row, only the orders that need it have to wait.
    ///
    /// # Errors
    /// An outage says nothing of any order: each may be recorded or not.
    pub async fn record(&self, orders: &[Incoming]) -> Result<Vec<Verdict>, Outage> {
        let time_is_up = Instant::now() + BATCH_TIME;
        let mut verdicts = vec![Verdict::Contended(Contention::Batch); orders.len()];
        // A work list instead of recursion; the last is the next, so parts run in stream order.
        let mut parts: Vec<Vec<usize>> = vec![(0..orders.len()).collect()];
        while let Some(mut places) = parts.pop() {
            if places.is_empty() || Instant::now() >= time_is_up {
                continue;
            }
            let part: Vec<&Incoming> = places.iter().map(|at| &orders[*at]).collect();
            match self.record_part(&part).await? {
                Tried::Done(recorded) => {
                    for (at, verdict) in places.into_iter().zip(recorded) {
                        verdicts[at] = verdict;
                    }
                }
                Tried::Refused(error) if part.len() == 1 => {
                    // Only an entry that fails on a healthy store is at fault.
                    self.probe().await?;
                    verdicts[places[0]] = Verdict::Rejected(error);
                }
                Tried::InTheWay => {}
                Tried::Held => {
                    let vouchers: BTreeSet<VoucherId> = part.iter().map(|one| one.order.voucher).collect();
                    let held = self.look_who_is_held(&vouchers.into_iter().collect::<Vec<_>>()).await?;
                    let (waiting, free): (Vec<usize>, Vec<usize>) =
                        places.into_iter().partition(|at| held.contains(&orders[*at].order.voucher));
                    for at in &waiting {
                        verdicts[*at] = Verdict::Contended(Contention::Voucher(orders[*at].order.voucher));
                    }
                    match free.as_slice() {
                        [at] if waiting.is_empty() => {
                            verdicts[*at] = Verdict::Contended(Contention::Row(orders[*at].order.id));
                        }
                        // Some other row of them is held: whose, smaller parts will tell.
                        _ if waiting.is_empty() => split(free, &mut parts),
                        _ => parts.push(free),
                    }
                }
                Tried::Refused(_) => split(std::mem::take(&mut places), &mut parts),
            }
        }
        Ok(verdicts)
    }

    /// Shows that the database takes a durable write, and that the schema is there. All workers of a cluster write the same
    /// row for it: where certification lets one of them win, the others try again, for no longer than a transaction may take.
    ///
    /// # Errors
    /// When it does not.
    pub async fn probe(&self) -> Result<(), Outage> {
        let mut lost = None;
        let outage = match timeout(self.timeout, self.probe_until_answered(&mut lost)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(fault)) => fault.into(),
            Err(_) => lost.map_or_else(|| self.too_late(), |error| Outage::new("MySQL", error)),
        };
        self.forget_idle_connections();
        Err(outage)
    }

    /// Keeps in `lost` what was answered to a try that another one has won.
    async fn probe_until_answered(&self, lost: &mut Option<String>) -> Result<(), Fault> {
        let mut backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(200));
        loop {
            match sqlx::raw_sql(sql::PROBE).execute(&self.pool).await.map_err(Fault::from) {
                Ok(_) => return Ok(()),
                Err(Fault::Contention(error)) => *lost = Some(error),
                Err(fault) => return Err(fault),
            }
            tokio::time::sleep(backoff.next_wait()).await;
        }
    }

    /// When one connection is dead, the others most often are, too: each would cost a batch or a probe to find out.
    pub fn forget_idle_connections(&self) {
        while let Some(connection) = self.pool.try_acquire() {
            drop(connection.detach());
        }
    }

    async fn record_part(&self, part: &[&Incoming]) -> Result<Tried<Vec<Verdict>>, Outage> {
        let tried = insist(&self.contentions, || self.attempt_in_turn(part)).await;
        if tried.is_err() {
            self.forget_idle_connections();
        }
        tried
    }

    /// Begins when there is a place. That wait is nobody's fault: the clock runs only from then on.
    async fn attempt_in_turn(&self, part: &[&Incoming]) -> Result<Vec<Verdict>, Fault> {
        let place = self.writers.acquire().await;
        if self.commits_apart() {
            self.retreat.over().await;
        }
        let began = Instant::now();
        let mut attempt = pin!(timeout(self.timeout, self.attempt(part)));
        let tried = match timeout(TURN, &mut attempt).await {
            Ok(tried) => tried,
            Err(_) => {
                drop(place);
                attempt.await
            }
        };
        match &tried {
            Ok(Ok(_)) => self.retreat.won(),
            Ok(Err(Fault::Contention(_))) => self.retreat.lost(began.elapsed()),
            _ => {}
        }
        tried.unwrap_or_else(|_| Err(Fault::Outage(self.too_late())))
    }

    /// Whether one of the vouchers is known to have refusals.
    fn has_refusals(&self, part: &[&Incoming]) -> bool {
        let refused = self.refused.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        !refused.is_empty() && part.iter().any(|incoming| refused.contains(&incoming.order.voucher))
    }

    fn note_refusals(&self, known: &Known) {
        let with_refusals = known.refused_of.iter().filter(|(_, count)| **count > 0);
        let mut with_refusals = with_refusals.map(|(voucher, _)| *voucher).peekable();
        if with_refusals.peek().is_some() {
            self.refused.write().unwrap_or_else(std::sync::PoisonError::into_inner).extend(with_refusals);
        }
    }

    fn commits_apart(&self) -> bool {
        !self.commits_in_packet.load(Relaxed)
    }

    fn too_late(&self) -> Outage {
        Outage::new("MySQL", format!("no answer within {} ms", self.timeout.as_millis()))
    }
}

/// Halves a part, the earlier half next.
fn split(mut places: Vec<usize>, parts: &mut Vec<Vec<usize>>) {
    let later = places.split_off(places.len() / 2);
    parts.extend([later, places]);
}
