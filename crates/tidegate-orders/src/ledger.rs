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
//! [`Ledger::record`] is the way of a batch, five frames down to its packet: `Ledger::work_off` tries its parts again where that
//! helps, `Ledger::transact` gives each a turn and a time limit, `Ledger::decide_and_write` decides, and `Packet::run` sends what
//! was decided. Events go the same way. The statements are in `ledger/sql.rs` and its folder.

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

use crate::{order::Order, partition::Partition, sessions::CausalReads, witness::Witness};
pub use cancel_unwritten::Cancellation;
pub use dry_run::{DryRun, Snapshot};
pub use event_verdict::{EndedOrder, EndedOrders, EventVerdict, IncomingEvent};
use fault::{Fault, Mismatch};
use held_vouchers::HeldVouchers;
pub use histories::{read_histories, unrecorded};
use knowledge::{Knowledge, RecentDepth};
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

impl Ledger {
    /// A ledger in the database behind `pool`, whose sessions run at READ COMMITTED. A transaction that takes
    /// longer than `timeout` is given up; it may have been committed, which the next try finds.
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
        Self { recent_depth: Arc::new(RecentDepth::at_least(Depth::Ids)), ..self }
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
        let work = WorkList::new(orders, Verdict::Contended(Contention::Batch));
        self.work_off(work, Some(BATCH_TIME), Verdict::Rejected, |ledger, session, part| {
            Box::pin(ledger.decide_and_write(session, part))
        })
        .await
    }

    /// Decides a batch, and writes what was decided, from as little knowledge as will do.
    async fn decide_and_write(
        &self,
        session: &mut Session,
        part: &[&Incoming],
    ) -> Result<Vec<Verdict>, Fault> {
        let mut knowledge = self.recent_depth.knowledge();
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
                    let was_locked = knowledge.unlock(session).await?;
                    // On the heap: it is seldom asked, and all futures above have room for it otherwise.
                    ended.extend(Box::pin(witness.ended(&holders)).await?);
                    if was_locked {
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

    /// What the write has to check, because it was not read under locks.
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

    /// Gives up after the time of a transaction, which begins with the call.
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

    /// When one connection is dead, the others most often are, too: each would cost a batch or a probe to find out.
    pub fn forget_idle_connections(&self) {
        while let Some(connection) = self.pool.try_acquire() {
            drop(connection.detach());
        }
    }
}
