//! The one door to MySQL for orders: a batch becomes rows in one transaction, and every order gets a verdict.
//!
//! Two ways lead through a batch. The **swift** one assumes that all is well: insert all, take their units from
//! the stocks, commit. Duplicates, a stock that does not suffice or a voucher with refusals make it roll back,
//! and the batch goes the **careful** way: lock the vouchers, look up what is there, decide each order in stream
//! order, write that. Both leave the same rows, but for an order whose id was refused under another voucher: only the
//! careful way looks for that.
//!
//! Statements are sent as text, several in one packet: a batch of any size needs no preparing, and takes one round
//! trip on the swift way. All values in them are numbers and entry ids of our own types.

mod fault;
mod foresight;
mod sql;
mod verdict;
mod withdraw;

use std::{
    ops::{Deref, DerefMut},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use sqlx::{MySql, MySqlPool, pool::PoolConnection};
use tidegate_stream::{Backoff, EntryId, Outage};
use tokio::{sync::Semaphore, time::timeout};

use crate::{mysql_error::explain, order::Order};
use fault::Fault;
pub use foresight::{Foresight, Snapshot};
pub use verdict::{Decided, Refusal, Verdict};
pub use withdraw::Withdrawal;

/// Deadlocks and races for a unique key are tried this often at once.
const CONTENTION_ATTEMPTS: usize = 6;
/// Lock waits are tried this often: each of them has taken `mysql.lock_wait_timeout_s` already.
const LOCK_ATTEMPTS: usize = 2;

/// A batch that takes longer than this waits for somebody else's locks: it keeps its place no longer.
const TURN: Duration = Duration::from_millis(250);

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
    first: FirstStep,
}

/// What is tried first with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstStep {
    /// To write it: nearly all orders that come are new.
    Write,
    /// To look whether all of it is there.
    Look,
}

impl Ledger {
    /// A ledger in the database behind `pool`, whose sessions run at READ COMMITTED. A transaction that takes
    /// longer than `timeout` is given up; it may have been committed, which the next try finds.
    #[must_use]
    pub fn new(pool: MySqlPool, timeout: Duration) -> Self {
        let writers = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        Self { pool, timeout, writers, first: FirstStep::Write }
    }

    /// Lets `writers` batches write at the same time; the others wait in turn. Batches of one voucher wait for each
    /// other all the same, but in the server, where waiting costs more. One that takes unusually long gives up its
    /// place and goes on beside the others.
    #[must_use]
    pub fn with_writers(self, writers: usize) -> Self {
        Self { writers: Arc::new(Semaphore::new(writers.max(1))), ..self }
    }

    /// For batches that are most often there as a whole: it looks first, and locks and writes nothing then. Every verdict
    /// is that of the careful way.
    #[must_use]
    pub fn looking_first(self) -> Self {
        Self { first: FirstStep::Look, ..self }
    }

    /// Records `orders`, which stand in stream order, and answers with one verdict an order, in that order.
    ///
    /// When stock covers only a part, earlier orders win. Orders that were recorded before get the verdict they
    /// had, so this can be repeated at any time. A row that the database refuses is split off until it stands
    /// alone; its neighbours are written. Where somebody else holds a voucher's row, only its orders have to wait.
    ///
    /// # Errors
    /// An outage says nothing of any order: each may be recorded or not.
    pub async fn record(&self, orders: &[Incoming]) -> Result<Vec<Verdict>, Outage> {
        let mut verdicts = self.record_in_order(orders).await?;
        let waiting = verdict::contended_by_voucher(orders, &verdicts);
        if waiting.len() > 1 {
            for places in waiting.into_values() {
                let of_voucher: Vec<Incoming> = places.iter().map(|at| orders[*at].clone()).collect();
                for (at, verdict) in places.into_iter().zip(self.record_in_order(&of_voucher).await?) {
                    verdicts[at] = verdict;
                }
            }
        }
        Ok(verdicts)
    }

    async fn record_in_order(&self, orders: &[Incoming]) -> Result<Vec<Verdict>, Outage> {
        if self.first == FirstStep::Look
            && let Some(verdicts) = self.verdicts_of_before(orders).await
        {
            return Ok(verdicts);
        }
        let mut verdicts = Vec::with_capacity(orders.len());
        // A work list instead of recursion; the last is the next, so parts run in stream order.
        let mut parts = vec![orders];
        while let Some(part) = parts.pop().filter(|part| !part.is_empty()) {
            match self.record_part(part).await? {
                Ok(part) => verdicts.extend(part),
                Err(error) if part.len() == 1 => {
                    // Only an entry that fails on a healthy store is at fault.
                    self.probe().await?;
                    verdicts.push(Verdict::Rejected(error));
                }
                Err(_) => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
            }
        }
        Ok(verdicts)
    }

    /// The verdicts of a batch for which nothing has to be written. Rows are never taken back, so they hold without a
    /// lock. When this fails, writing will tell why.
    async fn verdicts_of_before(&self, orders: &[Incoming]) -> Option<Vec<Verdict>> {
        let decided = verdict::decide(orders, self.known(orders).await.ok()?);
        if decided.iter().any(|decided| decided.is_new) {
            return None;
        }
        Some(decided.into_iter().map(|decided| decided.verdict).collect())
    }

    /// Shows that the database takes a durable write, and that the schema is there.
    ///
    /// # Errors
    /// When it does not.
    pub async fn probe(&self) -> Result<(), Outage> {
        let probed = timeout(self.timeout, sqlx::raw_sql(sql::PROBE).execute(&self.pool)).await;
        let outage = match probed {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => Outage::new("MySQL", explain(&error)),
            Err(_) => self.too_late(),
        };
        self.forget_idle_connections();
        Err(outage)
    }

    /// When one connection is dead, the others most often are, too: each would cost a batch or a probe to find out.
    pub fn forget_idle_connections(&self) {
        while let Some(connection) = self.pool.try_acquire() {
            drop(connection.detach());
        }
    }

    /// Records a part whole. The inner error is the text of a row that the database refuses.
    async fn record_part(&self, part: &[Incoming]) -> Result<Result<Vec<Verdict>, String>, Outage> {
        let mut backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(200));
        let mut attempt = 0;
        loop {
            attempt += 1;
            let tried = self.attempt_in_turn(part).await;
            let most_attempts =
                if matches!(tried, Err(Fault::Locked(_))) { LOCK_ATTEMPTS } else { CONTENTION_ATTEMPTS };
            match tried {
                Ok(verdicts) => return Ok(Ok(verdicts)),
                Err(Fault::Row(error)) => return Ok(Err(error)),
                Err(Fault::Outage(outage)) => {
                    self.forget_idle_connections();
                    return Err(outage);
                }
                // No outage: orders whose vouchers are free go on.
                Err(Fault::Contention(error) | Fault::Locked(error)) if attempt >= most_attempts => {
                    tracing::warn!(
                        error,
                        orders = part.len(),
                        "rows stay locked by others: orders wait, and are tried again"
                    );
                    return Ok(Ok(vec![Verdict::Contended; part.len()]));
                }
                Err(Fault::Doubtful(error)) if attempt == CONTENTION_ATTEMPTS => return Ok(Err(error)),
                Err(Fault::Contention(error) | Fault::Locked(error) | Fault::Doubtful(error)) => {
                    tracing::debug!(error, attempt, "contention: the whole batch is tried again");
                    tokio::time::sleep(backoff.next_wait()).await;
                }
            }
        }
    }

    /// Begins when there is a place. That wait is nobody's fault: the clock runs only from then on.
    async fn attempt_in_turn(&self, part: &[Incoming]) -> Result<Vec<Verdict>, Fault> {
        let place = self.writers.acquire().await;
        let mut attempt = pin!(timeout(self.timeout, self.attempt(part)));
        let tried = match timeout(TURN, &mut attempt).await {
            Ok(tried) => tried,
            Err(_) => {
                drop(place);
                attempt.await
            }
        };
        tried.unwrap_or_else(|_| Err(Fault::Outage(self.too_late())))
    }

    async fn attempt(&self, part: &[Incoming]) -> Result<Vec<Verdict>, Fault> {
        let mut session = Session::open(&self.pool).await?;
        let outcome = match swift(&mut session, part).await {
            Ok(Some(verdicts)) => Ok(verdicts),
            Ok(None) => careful(&mut session, part).await,
            Err(fault) => Err(fault),
        };
        session.end(outcome).await
    }

    fn too_late(&self) -> Outage {
        Outage::new("MySQL", format!("no answer within {} ms", self.timeout.as_millis()))
    }
}

/// Inserts all and takes their units. `None`, after a rollback, when this batch needs the careful way.
async fn swift(session: &mut Session, part: &[Incoming]) -> Result<Option<Vec<Verdict>>, Fault> {
    let sorted = sql::sorted_by_seat(part);
    if verdict::repeats_itself(&sorted) {
        return Ok(None);
    }
    let units = verdict::units_by_voucher(&sorted);
    match sql::run_counting(session, sql::swift_batch(&sorted, &units)).await {
        Ok(sql::SWIFT_ANSWER) => Ok(Some(vec![Verdict::Created; part.len()])),
        // Whoever cut it short (a proxy, a server with a limit on rows): the check may not have been among it.
        Ok((results, rows)) => Err(Fault::Outage(Outage::new(
            "MySQL",
            format!("answered a batch with {results} results and {rows} rows instead of 5 and 1"),
        ))),
        Err(error) if fault::needs_care(&error) => {
            sql::run(session, sql::ROLLBACK.to_owned()).await?;
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Locks the vouchers, looks up what is there, decides in stream order, writes that.
async fn careful(session: &mut Session, part: &[Incoming]) -> Result<Vec<Verdict>, Fault> {
    sql::run(session, sql::BEGIN.to_owned()).await?;
    let known = sql::look_up(session, part, sql::Stocks::Locked).await?;
    let verdicts = verdict::decide(part, known);
    let writes = sql::careful_writes(&verdict::changes(part, &verdicts));
    sql::run(session, writes).await?;
    Ok(verdicts.into_iter().map(|decided| decided.verdict).collect())
}

/// A connection that is closed, not pooled, unless it is given back: dropped in the middle of a transaction
/// (a timeout, an outage), it would hand that open transaction to the next user.
struct Session(Option<PoolConnection<MySql>>);

impl Session {
    async fn open(pool: &MySqlPool) -> Result<Self, Fault> {
        Ok(Self(Some(pool.acquire().await?)))
    }

    fn give_back(mut self) {
        drop(self.0.take());
    }

    /// Gives it back after all that has come of it, with nothing of a failed transaction left in it.
    async fn end<T>(mut self, outcome: Result<T, Fault>) -> Result<T, Fault> {
        let is_clean = match outcome {
            Ok(_) => true,
            // When this fails, too, the session is closed; the first fault is what happened.
            Err(Fault::Row(_) | Fault::Contention(_) | Fault::Locked(_) | Fault::Doubtful(_)) => {
                sql::run(&mut self, sql::ROLLBACK.to_owned()).await.is_ok()
            }
            Err(Fault::Outage(_)) => false,
        };
        if is_clean {
            self.give_back();
        }
        outcome
    }
}

impl Deref for Session {
    type Target = PoolConnection<MySql>;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref().expect("a session has its connection until it is given back")
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.0.as_mut().expect("a session has its connection until it is given back")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(connection) = &mut self.0 {
            connection.close_on_drop();
        }
    }
}
