//! The ledger: the one part that writes orders to MySQL. A batch becomes rows in one transaction, and every order gets
//! a verdict.
//!
//! In most cases the assumptions about a batch hold. So the ledger decides the batch from assumptions, and writes it in
//! one packet. The packet checks the assumptions. If one does not hold, the packet ends itself with an error before the
//! commit. Then the ledger reads the rows of this batch, and of some later batches, as far as it needs them. It locks
//! the rows of the vouchers first only in two cases: a stock covers only a part of a batch, or the write finds other
//! values than the read. `verdict::decide` is the same for all of these ways, and so are the rows. One difference
//! remains: only a read finds an id that was refused under another voucher.
//!
//! MySQL may have gone back in time. So if MySQL lacks an order, or the end of one, the ledger asks Redis before that
//! decides anything.
//!
//! [`Ledger::record`] is the entry for a batch; five frames below it, the packet is sent. `Ledger::work_off` retries
//! parts of the batch where that helps, `Ledger::transact` gives each part a turn and a time limit,
//! `Ledger::decide_and_write` decides, and `Packet::run` sends the statements. Events go the same way. The statements
//! are in `ledger/sql.rs` and its folder.

mod cancel_unwritten;
mod catch_up;
mod certification_backoff;
mod delisted;
mod dry_run;
mod event_verdict;
mod events;
mod fault;
mod histories;
mod knowledge;
mod locked_vouchers;
mod probe;
mod refused_vouchers;
mod retry;
mod session;
mod sql;
mod terms;
mod transactions;
mod verdict;
mod work_list;
mod writers;

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::FutureExt;
use hashbrown::HashSet;
use sqlx::MySqlPool;
use tidegate_stream::{EntryId, Outage};
use tokio::time::timeout;

use crate::{evidence::RedisEvidence, order::Order, partition::Partition, sessions::CausalReads};
pub use cancel_unwritten::Cancellation;
pub use dry_run::{DryRun, Snapshot};
pub use event_verdict::{EndedOrder, EndedOrders, EventVerdict, IncomingEvent};
use fault::{Fault, Mismatch};
pub use histories::{read_histories, unrecorded};
use knowledge::{Knowledge, RecentDepth};
use locked_vouchers::LockedVouchers;
use refused_vouchers::RefusedVouchers;
pub use retry::{ContentionCounts, Contentions};
use session::Session;
use sql::{Commit, Depth, Guard, WriteOutcome};
use terms::KnownTerms;
use transactions::BATCH_TIME;
use verdict::{Changes, Known};
pub use verdict::{Contention, Decided, Refusal, Verdict};
use work_list::WorkList;
use writers::Writers;

/// An order, and the id of the stream entry that brought it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// The order that the entry holds.
    pub order: Order,
    /// The id of the stream entry. The row of the order stores this id, so that the order can be traced back to its
    /// entry.
    pub entry: EntryId,
}

/// The code that writes batches of orders and events to MySQL, and decides the outcome of each order.
#[derive(Clone, Debug)]
pub struct Ledger {
    pool: MySqlPool,
    timeout: Duration,
    writers: Arc<Writers>,
    recent_depth: Arc<RecentDepth>,
    held: Arc<LockedVouchers>,
    contentions: Arc<Contentions>,
    refused: Arc<RefusedVouchers>,
    terms: Arc<KnownTerms>,
    /// Any partition of the system; only its list of partitions is used.
    partition: Partition,
    commits_in_packet: Arc<AtomicBool>,
    causal_reads: Arc<CausalReads>,
    evidence: Option<RedisEvidence>,
}

/// Whether a caller must be certain that a missing row is missing on all nodes of the MySQL cluster, and not only on
/// one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingRow {
    /// The missing row decides something, so the node first catches up with the other nodes of its cluster.
    Decides,
    /// The missing row decides nothing: the result is a prediction, or the row is read again before anything is done.
    SaysNothing,
}

impl Ledger {
    /// Creates a ledger, the code that writes orders to the database behind `pool`. The sessions of the pool must run
    /// at READ COMMITTED. The ledger gives up a transaction that takes longer than `timeout`. MySQL may still have
    /// committed this transaction, so the next try reads the rows to find out.
    #[must_use]
    pub fn new(pool: MySqlPool, timeout: Duration) -> Self {
        Self {
            pool,
            timeout,
            writers: Arc::default(),
            recent_depth: Arc::default(),
            held: Arc::default(),
            contentions: Arc::default(),
            refused: Arc::default(),
            terms: Arc::default(),
            partition: Partition::default(),
            commits_in_packet: Arc::default(),
            causal_reads: Arc::default(),
            evidence: None,
        }
    }

    /// Lets up to `writers` batches write to MySQL at the same time; other batches wait in this process. Batches of the
    /// same voucher also wait for each other in MySQL, where waiting costs more. If a batch takes unusually long, one
    /// more batch may start.
    #[must_use]
    pub fn with_writers(self, writers: usize) -> Self {
        Self { writers: Arc::new(Writers::new(writers.max(1))), ..self }
    }

    /// Makes the ledger, which writes orders to MySQL, read the rows of every batch first. A batch whose orders are
    /// mostly written already then needs no transaction. The decisions on the orders do not change.
    #[must_use]
    pub fn with_look_up_first(self) -> Self {
        Self { recent_depth: Arc::new(RecentDepth::at_least(Depth::Ids)), ..self }
    }

    /// While `in_packet` is true, sends the COMMIT in one packet with the statements before it. This saves a round
    /// trip. A worker that stops in the middle then leaves no open transaction.
    ///
    /// It must stay false, the default, for a server that replicates by certification (Galera). Such a server answers
    /// OK to a COMMIT in a packet with other statements, even if certification rolled the transaction back.
    #[must_use]
    pub fn committing_in_packet(self, in_packet: Arc<AtomicBool>) -> Self {
        Self { commits_in_packet: in_packet, ..self }
    }

    /// Makes the ledger wait until its MySQL node has caught up with the cluster, before a missing row decides
    /// anything. Without this setting, the ledger assumes that there is only one MySQL server.
    #[must_use]
    pub fn reading_causally(self, causal_reads: Arc<CausalReads>) -> Self {
        Self { causal_reads, ..self }
    }

    /// Asks Redis before the absence of a row decides anything for good: a server that went back in time may have lost
    /// the row.
    pub(crate) fn hearing(self, evidence: RedisEvidence) -> Self {
        Self { evidence: Some(evidence), ..self }
    }

    /// Sets the time limit for the payment of an order, counted from the time at which the order was written. A
    /// voucher's own limit takes precedence over `default`. If `default` is zero, orders without a limit of their
    /// voucher never expire. `partition` can be any partition of the list: the list says which worker lets which order
    /// expire.
    #[must_use]
    pub fn with_pay_within(self, default: Duration, partition: &Partition) -> Self {
        let terms = Arc::new(KnownTerms::with_default(default));
        Self { terms, partition: partition.clone(), ..self }
    }

    /// Returns the counters of transactions that failed because of other sessions in MySQL.
    #[must_use]
    pub fn contentions(&self) -> &Arc<Contentions> {
        &self.contentions
    }

    /// Writes orders to MySQL. `orders` must be in stream order. Returns one decision for each order, in the same
    /// sequence.
    ///
    /// If the stock covers only a part of the batch, earlier orders win. Orders that were recorded before get the same
    /// verdict again, so the call can be repeated at any time. If the database refuses a row, the ledger splits the
    /// batch until that row is alone, and writes the other rows. If another session holds a row, only the orders that
    /// need that row wait.
    ///
    /// # Errors
    /// An outage says nothing about any order: each order may be recorded or not.
    pub async fn record(&self, orders: &[Incoming]) -> Result<Vec<Verdict>, Outage> {
        let work = WorkList::new(orders, Verdict::Contended(Contention::Batch));
        self.work_off(work, Some(BATCH_TIME), Verdict::Rejected, |ledger, session, part| {
            Box::pin(ledger.decide_and_write(session, part))
        })
        .await
    }

    /// Decides a batch and writes the result, from as little knowledge as possible.
    async fn decide_and_write(
        &self,
        session: &mut Session,
        part: &[&Incoming],
    ) -> Result<Vec<Verdict>, Fault> {
        let mut knowledge = self.recent_depth.knowledge();
        let mut freshness = None;
        // `asked`: orders that hold the slots of other orders. `ended`: those among them whose end MySQL has lost.
        let (mut asked, mut ended) = (HashSet::new(), HashSet::new());
        loop {
            let mut known = knowledge.gather(session, part).await?;
            self.refused.note(&known);
            match knowledge {
                Knowledge::Assumed => self.terms.assume(part, &mut known),
                _ => self.terms.note(&known),
            }
            if let Some(evidence) = &self.evidence {
                let mut holders = known.holders(part.iter().copied());
                holders.retain(|holder| asked.insert(*holder));
                if !holders.is_empty() {
                    // Unlock first: no other session shall wait for Redis behind the locks of the vouchers.
                    let was_locked = knowledge.unlock(session).await?;
                    // On the heap: this call is rare, and without the box every future above it is larger.
                    ended.extend(Box::pin(evidence.ended(&holders)).await?);
                    if was_locked {
                        continue;
                    }
                }
                known.ended.clone_from(&ended);
            }
            let decided = verdict::decide(part.iter().copied(), &mut known);
            // No write checks this, and it does not concern an order that is already written.
            if knowledge < Knowledge::Looked(Depth::Ids) && decided.iter().any(Decided::needs_its_own_row) {
                knowledge = Knowledge::Looked(Depth::Ids);
                continue;
            }
            // Another node may have the row of the voucher.
            if freshness.is_none()
                && decided.iter().any(|it| it.verdict == Verdict::UnknownVoucher)
                && self.has_other_nodes()
            {
                knowledge.unlock(session).await?;
                freshness = Some(self.catch_up(session).await?);
                continue;
            }
            let changes = verdict::changes(part, &decided, &known.terms, self.terms.default_s());
            let written = if changes.is_empty() {
                knowledge.end(session, &decided).await?;
                WriteOutcome::Committed
            } else if knowledge != Knowledge::Locked && changes.splits_a_stock() {
                WriteOutcome::Mismatch(Mismatch::PartialStock)
            } else {
                let guard = self.guard(part, &changes, knowledge, &known);
                sql::write(&changes, guard, &self.partition).run(session, self.commit()).await?
            };
            match written {
                WriteOutcome::Committed => {
                    self.recent_depth.note(knowledge::needed(part, &decided));
                    return Ok(verdict::verdicts(decided, freshness));
                }
                WriteOutcome::Mismatch(mismatch) => knowledge = knowledge.after(mismatch),
            }
        }
    }

    /// The conditions that the write must check, because they were not read under locks.
    fn guard(&self, part: &[&Incoming], changes: &Changes<'_>, knowledge: Knowledge, known: &Known) -> Guard {
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

    /// Limits `work` to the time of a transaction, counted from this call.
    fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, Fault>>,
    ) -> impl Future<Output = Result<T, Fault>> {
        let in_time = timeout(self.timeout, work);
        in_time.map(|done| done.unwrap_or_else(|_| Err(Fault::Outage(self.too_late()))))
    }

    fn too_late(&self) -> Outage {
        Outage::new("MySQL", format!("no answer within {} ms", self.timeout.as_millis()))
    }

    /// Drops all idle connections of the pool. If one connection is dead, most of the other connections are dead, and
    /// each dead connection makes a batch or a probe fail.
    pub fn forget_idle_connections(&self) {
        while let Some(connection) = self.pool.try_acquire() {
            drop(connection.detach());
        }
    }
}
