//! The one door to MySQL for orders: a batch becomes rows in one transaction, and every order gets a verdict.
//!
//! Nearly always all is well. So a batch is decided from assumptions, and written in one packet. The packet checks the
//! assumptions, and ends itself in an error before the commit where one does not hold. Then the database is looked up, as
//! deep as is needed, and so are some batches after it. The rows of the vouchers are locked first only where a stock covers a
//! part of a batch, or where the write finds something else than the look-up did. `verdict::decide` is the same for all of
//! these, and so are the rows. One difference remains: an id that was refused under another voucher is found only by a
//! look-up.
//!
//! MySQL may have gone back in time. So where it lacks an order, or the end of one, Redis is asked before that decides anything.
//!
//! [`Ledger::record`] is the way of a batch, from top to bottom: each part of it is one `Ledger::transact`, which calls
//! `Ledger::decide_and_write`, which calls `Ledger::write`. The statements are in `ledger/sql.rs` and its folder.

mod cancel_unwritten;
mod catch_up;
mod certification_backoff;
mod delisted;
mod dry_run;
mod event_verdict;
mod events;
mod fault;
mod held_vouchers;
mod histories;
mod knowledge;
mod probe;
mod refused_vouchers;
mod retry;
mod session;
mod sql;
mod terms;
mod verdict;
mod work_list;
mod writers;

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use hashbrown::HashSet;
use sqlx::MySqlPool;
use tidegate_stream::{EntryId, Outage};
use tokio::time::timeout;

use crate::{
    order::{Order, VoucherId},
    partition::Partition,
    sessions::CausalReads,
    witness::Witness,
};
pub use cancel_unwritten::Cancellation;
pub use dry_run::{DryRun, Snapshot};
pub use event_verdict::{EndedOrder, EndedOrders, EventVerdict, IncomingEvent};
use fault::{Fault, Mismatch};
use held_vouchers::{HeldVouchers, PATIENT_LOOK, SECOND_LOOK};
pub use histories::{read_histories, unrecorded};
use knowledge::{Knowledge, RecentDepth};
use refused_vouchers::RefusedVouchers;
pub use retry::{ContentionCounts, Contentions};
use retry::{RetryOutcome, retry};
use session::Session;
use sql::{Depth, Guard, Packet};
use terms::KnownTerms;
use verdict::{Changes, Freshness, Known};
pub use verdict::{Contention, Decided, Refusal, Verdict};
use work_list::WorkList;
use writers::Writers;

/// However many rows of a batch are held by others: what is not written by then waits. It is tried again later, an eighth of
/// a batch first.
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
    writers: Arc<Writers>,
    /// The least that a batch is decided from.
    least: Knowledge,
    recent_depth: Arc<RecentDepth>,
    held: Arc<HeldVouchers>,
    contentions: Arc<Contentions>,
    refused: Arc<RefusedVouchers>,
    terms: Arc<KnownTerms>,
    /// One of the system's, for its list.
    partition: Partition,
    commits_in_packet: Arc<AtomicBool>,
    causal_reads: Arc<CausalReads>,
    witness: Option<Witness>,
}

/// What follows from a row that a node does not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It decides, so the node catches up with the others of its cluster first.
    Decides,
    /// Nothing: what is said of it is a guess, or another look follows before anything is done.
    SaysNothing,
}

/// How the COMMIT of a batch travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Commit {
    /// In one packet with the statements before it.
    InPacket,
    /// In a packet of its own: the server replicates by certification, or may do so.
    Apart,
}

/// What the database did with a batch that was decided.
enum WriteOutcome {
    /// All of it is durable.
    Committed,
    /// Nothing was written: what was decided does not fit what is there.
    Mismatch(Mismatch),
}

impl Ledger {
    /// A ledger in the database behind `pool`, whose sessions run at READ COMMITTED. A transaction that takes
    /// longer than `timeout` is given up; it may have been committed, which the next try finds.
    #[must_use]
    pub fn new(pool: MySqlPool, timeout: Duration) -> Self {
        Self {
            pool,
            timeout,
            writers: Arc::default(),
            least: Knowledge::Assumed,
            recent_depth: Arc::default(),
            held: Arc::default(),
            contentions: Arc::default(),
            refused: Arc::default(),
            terms: Arc::default(),
            partition: Partition::default(),
            commits_in_packet: Arc::default(),
            causal_reads: Arc::default(),
            witness: None,
        }
    }

    /// Lets `writers` batches write at the same time; the others wait in turn. Batches of one voucher wait for each
    /// other all the same, but in the server, where waiting costs more. One that takes unusually long gives up its
    /// place and goes on beside the others.
    #[must_use]
    pub fn with_writers(self, writers: usize) -> Self {
        Self { writers: Arc::new(Writers::new(writers.max(1))), ..self }
    }

    /// Looks every batch up before it is written. For batches that are most often there as a whole: they need no
    /// transaction then. Every verdict is the same.
    #[must_use]
    pub fn with_look_up_first(self) -> Self {
        Self { least: Knowledge::Looked(Depth::Ids), ..self }
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

    /// Lets the absence of a row decide only after the node has caught up with the others of its cluster. Without this, the server
    /// is taken for the only one.
    #[must_use]
    pub fn reading_causally(self, causal_reads: Arc<CausalReads>) -> Self {
        Self { causal_reads, ..self }
    }

    /// Asks Redis before what MySQL lacks decides anything for good: a server that went back in time may have lost it.
    pub(crate) fn hearing(self, witness: Witness) -> Self {
        Self { witness: Some(witness), ..self }
    }

    /// Lets orders expire that are not paid `default` after they were written, where their voucher says nothing else; zero:
    /// they never do. `partition` is any one of the system: its list says which sweeper finds which order.
    #[must_use]
    pub fn with_pay_within(self, default: Duration, partition: &Partition) -> Self {
        let terms = Arc::new(KnownTerms::with_default(default));
        Self { terms, partition: partition.clone(), ..self }
    }

    /// How often others were in the way.
    #[must_use]
    pub fn contentions(&self) -> &Arc<Contentions> {
        &self.contentions
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
        let deadline = Instant::now() + BATCH_TIME;
        let mut work = WorkList::new(orders, Verdict::Contended(Contention::Batch));
        while let Some(part) = work.next().filter(|_| Instant::now() < deadline) {
            let outcome = retry(&self.contentions, || self.transact(&part.items)).await;
            match outcome.inspect_err(|_| self.forget_idle_connections())? {
                RetryOutcome::Done(verdicts) => work.finish(&part, verdicts),
                RetryOutcome::RowRefused(error) if part.is_single() => {
                    // Only an entry that fails on a healthy store is at fault.
                    self.probe().await?;
                    work.finish(&part, [Verdict::Rejected(error)]);
                }
                RetryOutcome::RowRefused(_) => work.halve(part),
                RetryOutcome::RowHeld => {
                    let held = self.find_held(part.vouchers(), SECOND_LOOK).await?;
                    work.set_aside(part, &held);
                }
                // They keep the verdict that they began with.
                RetryOutcome::GaveUp => {}
            }
        }
        Ok(work.into_outcomes())
    }

    async fn transact(&self, part: &[&Incoming]) -> Result<Vec<Verdict>, Fault> {
        let transaction = Box::pin(async {
            let mut session = Session::open(&self.pool).await?;
            let outcome = self.decide_and_write(&mut session, part).await;
            session.end(outcome).await
        });
        self.in_turn(part.iter().map(|incoming| incoming.order.voucher), transaction).await
    }

    /// Runs one transaction, which may need the rows of these vouchers, when there is a place for it. Its time runs only from
    /// then on: the wait is nobody's fault.
    async fn in_turn<T>(
        &self,
        vouchers: impl Iterator<Item = VoucherId> + Clone,
        transaction: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        // On the heap: each layer that takes a future by value keeps it twice, and a worker thread's stack is small.
        let transaction = Box::pin(async {
            // What others found out while this batch waited for its turn.
            let held = self.held.among(vouchers.clone());
            if !held.is_empty() && !self.find_held(held, SECOND_LOOK).await?.is_empty() {
                return Err(Fault::LockWait("the row of a voucher is held".to_owned()));
            }
            transaction.await
        });
        let look = Box::pin(async { self.find_held(vouchers.clone().collect(), PATIENT_LOOK).await });
        self.writers.run(self.commit(), self.in_time(transaction), look).await
    }

    /// Decides a batch, and writes what was decided, from as little knowledge as will do.
    async fn decide_and_write(
        &self,
        session: &mut Session,
        part: &[&Incoming],
    ) -> Result<Vec<Verdict>, Fault> {
        let mut knowledge = self.least.max(self.recent_depth.knowledge());
        let mut freshness = None;
        // Orders that hold slots of others, and of these the ones whose end is lost.
        let (mut asked, mut ended) = (HashSet::new(), HashSet::new());
        loop {
            let mut known = knowledge.gather(session, part).await?;
            self.refused.note(&known);
            match knowledge {
                Knowledge::Assumed => self.terms.assume(part, &mut known),
                _ => self.terms.note(&known),
            }
            if let Some(witness) = &self.witness {
                let mut holders = known.holders(part.iter().copied());
                holders.retain(|holder| asked.insert(*holder));
                if !holders.is_empty() {
                    // Nobody waits for Redis behind the locks of the vouchers.
                    if knowledge == Knowledge::Locked {
                        sql::run(session, sql::ROLLBACK.to_owned()).await?;
                    }
                    // On the heap: it is seldom asked, and all futures above have room for it otherwise.
                    ended.extend(Box::pin(witness.ended(&holders)).await?);
                    if knowledge == Knowledge::Locked {
                        continue;
                    }
                }
                known.ended.clone_from(&ended);
            }
            let decided = verdict::decide(part.iter().copied(), &mut known);
            // No write would check this, and an order that is there already is none of these.
            if knowledge < Knowledge::Looked(Depth::Ids) && decided.iter().any(Decided::needs_its_own_row) {
                knowledge = Knowledge::Looked(Depth::Ids);
                continue;
            }
            // Its row may be on another node.
            if freshness.is_none()
                && decided.iter().any(|it| it.verdict == Verdict::UnknownVoucher)
                && self.has_other_nodes()
            {
                if knowledge == Knowledge::Locked {
                    sql::run(session, sql::ROLLBACK.to_owned()).await?;
                }
                freshness = Some(self.catch_up(session).await?);
                continue;
            }
            match self.write(session, part, &decided, (knowledge, &known)).await? {
                WriteOutcome::Committed => {
                    self.recent_depth.note(knowledge::needed(part, &decided));
                    let verdicts = decided.into_iter().map(|decided| match (decided.verdict, freshness) {
                        (Verdict::UnknownVoucher, Some(Freshness::Behind)) => Contention::NodeBehind.into(),
                        (verdict, _) => verdict,
                    });
                    return Ok(verdicts.collect());
                }
                WriteOutcome::Mismatch(mismatch) => knowledge = knowledge.after(mismatch),
            }
        }
    }

    /// Writes and commits what was decided.
    async fn write(
        &self,
        session: &mut Session,
        part: &[&Incoming],
        decided: &[Decided],
        (knowledge, known): (Knowledge, &Known),
    ) -> Result<WriteOutcome, Fault> {
        let changes = verdict::changes(part, decided, &known.terms, self.terms.default_s());
        if changes.is_empty() {
            if knowledge == Knowledge::Locked {
                sql::run(session, sql::COMMIT.to_owned()).await?;
            }
            if decided.iter().any(Decided::rests_on_a_row) {
                // A row that was only read may be visible a moment before it is durable.
                sql::run(session, sql::BARRIER.to_owned()).await?;
            }
            return Ok(WriteOutcome::Committed);
        }
        if knowledge != Knowledge::Locked && changes.splits_a_stock() {
            return Ok(WriteOutcome::Mismatch(Mismatch::PartialStock));
        }
        let guard = self.guard(part, &changes, (knowledge, known));
        let written = self.send(session, sql::write(&changes, guard, &self.partition)).await;
        if guard == Guard::Locked {
            written?;
            return Ok(WriteOutcome::Committed);
        }
        outcome_of(session, written).await
    }

    /// Runs what a packet says, and commits it.
    async fn send(&self, session: &mut Session, mut packet: Packet) -> sqlx::Result<()> {
        let commit = self.commit();
        if commit == Commit::InPacket {
            packet.commit();
        }
        packet.run(session).await?;
        match commit {
            Commit::InPacket => Ok(()),
            Commit::Apart => sql::run(session, sql::COMMIT.to_owned()).await,
        }
    }

    /// What the write has to check, because it was not read under locks.
    fn guard(
        &self,
        part: &[&Incoming],
        changes: &Changes<'_>,
        (knowledge, known): (Knowledge, &Known),
    ) -> Guard {
        match knowledge {
            Knowledge::Locked => Guard::Locked,
            _ if !self.refused.has_any_of(part) => Guard::Unrefused,
            Knowledge::Looked(Depth::Users | Depth::Ids) => Guard::NotSince(changes.refused_before(known)),
            Knowledge::Assumed | Knowledge::Looked(Depth::Vouchers) => Guard::NotThese,
        }
    }

    fn commit(&self) -> Commit {
        if self.commits_in_packet.load(Relaxed) { Commit::InPacket } else { Commit::Apart }
    }

    /// Gives up after the time of a transaction.
    async fn in_time<T>(&self, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        timeout(self.timeout, work).await.unwrap_or_else(|_| Err(Fault::Outage(self.too_late())))
    }

    fn too_late(&self) -> Outage {
        Outage::new("MySQL", format!("no answer within {} ms", self.timeout.as_millis()))
    }

    /// When one connection is dead, the others most often are, too: each would cost a batch or a probe to find out.
    pub fn forget_idle_connections(&self) {
        while let Some(connection) = self.pool.try_acquire() {
            drop(connection.detach());
        }
    }
}

/// What came of a write that was decided without locks. Where it does not fit what is there, it is rolled back.
async fn outcome_of(session: &mut Session, written: sqlx::Result<()>) -> Result<WriteOutcome, Fault> {
    let Err(error) = written else { return Ok(WriteOutcome::Committed) };
    let Some(mismatch) = fault::mismatch(&error) else { return Err(error.into()) };
    sql::run(session, sql::ROLLBACK.to_owned()).await?;
    Ok(WriteOutcome::Mismatch(mismatch))
}
