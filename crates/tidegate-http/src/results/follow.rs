//! One follower of results: its position in each partition, and the reading of the next results of all partitions.

use std::{collections::BTreeSet, sync::Arc};

use futures_util::{
    StreamExt,
    future::{join_all, pending, select_all},
    stream::FuturesUnordered,
};
use tidegate_orders::ResultFilter;
use tokio::sync::watch;

use super::{
    cursor::Cursor,
    newest::FollowGuard,
    reader::{PageOutcome, ReadResult},
    source::ResultSource,
    source_list::SourceList,
};

/// The number of results that a follower of certain kinds looks at in one go, in all partitions together.
const SCANNED: usize = 1_000;

/// A follower of the results of a system, with its position in each partition.
#[derive(Debug)]
pub struct Follow {
    cursor: Cursor,
    all: Arc<SourceList>,
    /// The source of each position of the cursor. None: this gate does not serve the partition.
    sources: Vec<Option<Followed>>,
    wanted: ResultFilter,
    /// The partition from which the next results are taken first, so that each has its turn.
    turn: usize,
}

/// A partition that is followed.
#[derive(Debug)]
struct Followed {
    /// The source of the results. None: the partition was removed, and the gate has no place for another connection.
    source: Option<Arc<ResultSource>>,
    /// The follower's hold on the shared reader, and its signal. None: the partition was removed, and gets no new results.
    following: Option<(FollowGuard, watch::Receiver<u64>)>,
    is_away: bool,
}

/// A result for a follower, with the index of its partition.
pub type Taken = (usize, Arc<ReadResult>);

/// The outcome of one go over all partitions.
#[derive(Debug)]
pub enum ResultsPass {
    /// Some results for the follower, in their sequence.
    Results(Vec<Taken>),
    /// No results for the follower, but there may be more to look at.
    Filtered,
    /// No results at present.
    End,
    /// Results of some partitions were lost before they were read. The follower's cursor now leads behind the loss.
    Lost,
}

impl Follow {
    /// Creates a follower that begins at a cursor.
    pub fn new(cursor: Cursor, wanted: ResultFilter, all: Arc<SourceList>) -> Self {
        let followed = |tag: &str| {
            let source = all.present().iter().find(|source| source.tag() == tag).cloned();
            let following = source.as_ref().map(|source| (source.follow(), source.changes()));
            let is_followed = source.is_some() || all.may_be_removed(tag);
            is_followed.then_some(Followed { source, following, is_away: false })
        };
        let sources: Vec<_> = cursor.positions.iter().map(|(tag, _)| followed(tag)).collect();
        let turn = rand::random_range(0..sources.len().max(1));
        Self { cursor, all, sources, wanted, turn }
    }

    /// The follower's cursor, after all results that it got, and after results that it does not want.
    pub fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// The tags of the partitions that could not be read the last time. The cursor keeps their positions.
    pub fn away(&self) -> Vec<&str> {
        let named = self.cursor.positions.iter().zip(&self.sources);
        let away = named.filter(|(_, followed)| followed.as_ref().is_some_and(|it| it.is_away));
        away.map(|((tag, _), _)| &**tag).collect()
    }

    /// Whether no partition answered the last read.
    pub fn is_all_away(&self) -> bool {
        self.sources.iter().flatten().all(|it| it.is_away)
    }

    /// Reads the next results of all partitions: at most `limit` results, and about `bytes` bytes.
    pub async fn pass(&mut self, limit: usize, bytes: usize) -> ResultsPass {
        let readings = self.read_all(limit).await;
        if self.note_losses(&readings) {
            return ResultsPass::Lost;
        }
        let (mut taken, mut weight, mut is_end) = (Vec::new(), 0, true);
        let count = readings.len();
        let mut ended = BTreeSet::new();
        self.turn = (self.turn + 1) % count.max(1);
        for at in (0..count).map(|at| (at + self.turn) % count) {
            let Some(PageOutcome::Results { start, results, is_end: is_last }) = &readings[at] else {
                continue;
            };
            self.cursor.positions[at].1 = start.clone();
            let mut is_left_over = false;
            for kept in results {
                if let Some(shown) =
                    kept.result.as_ref().filter(|it| self.wanted.includes(&it.state, &it.kind))
                {
                    if taken.len() >= limit || weight >= bytes {
                        is_left_over = true;
                        break;
                    }
                    weight += shown.json.len();
                    taken.push((at, Arc::clone(kept)));
                }
                self.cursor.positions[at].1 = kept.position.clone();
            }
            is_end &= *is_last && !is_left_over;
            if *is_last && !is_left_over && results.is_empty() {
                ended.insert(at);
            }
        }
        if taken.is_empty() {
            // The places of the partitions that the follower leaves may be enough for the others.
            is_end &=
                !self.leave_removed(&ended) || self.sources.iter().flatten().all(|it| it.source.is_some());
            return if is_end { ResultsPass::End } else { ResultsPass::Filtered };
        }
        // The results of a partition keep their sequence: ids grow within a stream.
        taken.sort_by_key(|(_, kept)| kept.position.after);
        ResultsPass::Results(taken)
    }

    async fn read_all(&mut self, limit: usize) -> Vec<Option<PageOutcome>> {
        let scanned = if self.wanted.is_all() { limit } else { limit.max(SCANNED) };
        let count = u16::try_from(scanned.div_ceil(self.sources.len().max(1))).unwrap_or(u16::MAX);
        let (positions, all) = (&self.cursor.positions, &self.all);
        let read = async |(followed, (tag, position)): (&mut Option<Followed>, &(String, _))| {
            let followed = followed.as_mut()?;
            if let Some((_, changes)) = &mut followed.following {
                // Results that come from now on are noticed by the next wait.
                changes.mark_unchanged();
            }
            if followed.source.is_none() {
                followed.source = all.removed(tag);
            }
            let reading = match &followed.source {
                Some(source) => source.read(position, count).await,
                None => PageOutcome::Away,
            };
            followed.is_away = matches!(reading, PageOutcome::Away);
            Some(reading)
        };
        join_all(self.sources.iter_mut().zip(positions).map(read)).await
    }

    /// Moves the positions of partitions that lost results behind the loss. Returns whether there are any.
    fn note_losses(&mut self, readings: &[Option<PageOutcome>]) -> bool {
        let mut is_lost = false;
        for ((_, position), reading) in self.cursor.positions.iter_mut().zip(readings) {
            if let Some(PageOutcome::Lost(oldest)) = reading {
                *position = oldest.clone();
                is_lost = true;
            }
        }
        is_lost
    }

    /// Leaves out partitions that are not in the list any more, and whose results were read to their end. Returns whether
    /// there are any.
    fn leave_removed(&mut self, ended: &BTreeSet<usize>) -> bool {
        let before = self.sources.len();
        for at in ended.iter().rev() {
            if self.sources[*at].as_ref().is_some_and(|it| it.following.is_none()) {
                self.sources.remove(*at);
                self.cursor.positions.remove(*at);
            }
        }
        self.sources.len() < before
    }

    /// Waits until there may be new results in a partition.
    pub async fn changed(&mut self) {
        let following = self.sources.iter_mut().flatten().filter_map(|it| it.following.as_mut());
        let changes: Vec<_> = following.map(|(_, changes)| Box::pin(changes.changed())).collect();
        if changes.is_empty() {
            return pending().await;
        }
        select_all(changes).await.0.ok();
    }
}

/// Creates a cursor after the newest results of all partitions. None: a partition does not answer, so its newest result
/// is unknown.
pub async fn latest(mut cursor: Cursor, sources: &[Arc<ResultSource>]) -> Option<Cursor> {
    let mut asked: FuturesUnordered<_> =
        sources.iter().map(async |source| (source.tag(), source.latest().await)).collect();
    while let Some((tag, latest)) = asked.next().await {
        let (_, position) = cursor.positions.iter_mut().find(|(own, _)| own == tag)?;
        *position = latest.ok()?;
    }
    Some(cursor)
}
