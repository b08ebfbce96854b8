//! The shared reader of the newest results of a partition. While somebody follows the partition, one connection waits
//! for new results and keeps the newest in memory, however many clients follow.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tidegate_operations::SystemSettings;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    counts::ResultCounts,
    position::{Position, StreamSnapshot},
    reader::{ReadResult, ResultReader, read_results},
};

/// The largest number of results in memory.
const MOST: usize = 4_000;
/// The largest size of the results of a partition in memory, in bytes.
const MOST_BYTES: usize = 2 << 20;
/// The largest size of the results of all partitions in memory, in bytes. The results of the last read of a partition stay
/// even if they exceed its share. After a change of the list, the results of removed partitions take up to the same
/// size again until their followers have gone.
const ALL_BYTES: usize = 16 << 20;
/// The largest number of results in one read.
const COUNT: u16 = 500;
/// The time that a read waits for new results. After each read, the reader checks the stream and its server.
const BLOCK: Duration = Duration::from_secs(2);
/// The time for which the reader continues after its last follower has gone. Clients that poll come again.
const LINGER: Duration = Duration::from_secs(10);
/// The pause after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// The newest results of a partition in memory, and the number of their followers.
#[derive(Debug)]
pub struct NewestResults {
    system: SystemSettings,
    /// The largest size of the results in memory, in bytes, without regard to the last read.
    most_bytes: usize,
    counts: Arc<ResultCounts>,
    stop: CancellationToken,
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    followers: usize,
    left_at: Option<Instant>,
    is_running: bool,
    is_away: bool,
    newest: Option<Newest>,
}

/// The newest results, without a gap after `begin`.
#[derive(Debug)]
struct Newest {
    begin: Position,
    results: VecDeque<Arc<ReadResult>>,
    bytes: usize,
    most_bytes: usize,
}

/// The share in bytes of a partition, in a gate that serves this many partitions.
fn share_of(served: usize) -> usize {
    MOST_BYTES.min(ALL_BYTES / served.max(1))
}

impl Newest {
    fn begin(begin: Position, most_bytes: usize) -> Self {
        Self { begin, results: VecDeque::new(), bytes: 0, most_bytes }
    }

    /// The number of results up to a position. None: it is not a position between these results.
    fn place_of(&self, position: &Position) -> Option<usize> {
        let place = self.results.partition_point(|kept| kept.position.after <= position.after);
        let own = match place.checked_sub(1) {
            Some(before) => &self.results[before].position,
            None => &self.begin,
        };
        // A stream that was deleted and begun anew counts its entries anew.
        let is_same_count =
            own.ordinal.is_none() || position.ordinal.is_none() || own.ordinal == position.ordinal;
        (own.after == position.after && own.history == position.history && is_same_count).then_some(place)
    }

    /// Adds the results of a read, and removes the oldest of earlier reads. The new results stay: otherwise, one read of
    /// large results would send all followers to Redis.
    fn add(&mut self, results: Vec<Arc<ReadResult>>) {
        let added = results.len();
        self.bytes += results.iter().map(|kept| kept.bytes()).sum::<usize>();
        self.results.extend(results);
        let is_over = |own: &Self| own.results.len() > MOST || own.bytes > own.most_bytes;
        while self.results.len() > added && is_over(self) {
            let Some(oldest) = self.results.pop_front() else { break };
            self.bytes -= oldest.bytes();
            self.begin = oldest.position.clone();
        }
    }
}

/// A follower of a partition. While it exists, the shared reader reads.
#[derive(Debug)]
pub struct FollowGuard(Arc<NewestResults>);

impl Drop for FollowGuard {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.followers -= 1;
        state.left_at = Some(Instant::now());
    }
}

impl NewestResults {
    /// Creates the shared reader of the partition with these settings, in a gate that serves `served` partitions. It reads
    /// while somebody follows, until `stop`.
    pub fn new(
        system: SystemSettings,
        served: usize,
        counts: Arc<ResultCounts>,
        stop: CancellationToken,
    ) -> Arc<Self> {
        let (state, changed) = (Mutex::default(), watch::Sender::default());
        Arc::new(Self { system, most_bytes: share_of(served), counts, stop, state, changed })
    }

    /// Adds a follower, and starts to read if necessary.
    pub fn follow(tail: &Arc<Self>) -> FollowGuard {
        let mut state = tail.state();
        state.followers += 1;
        if !state.is_running {
            state.is_running = true;
            let tail = Arc::clone(tail);
            tokio::spawn(async move { run(&tail).await });
        }
        drop(state);
        FollowGuard(Arc::clone(tail))
    }

    /// Returns results after a position, and whether they are the newest. None: they are not in memory.
    pub fn read(&self, position: &Position, count: usize) -> Option<(Vec<Arc<ReadResult>>, bool)> {
        let state = self.state();
        let newest = state.newest.as_ref()?;
        let place = newest.place_of(position)?;
        let results: Vec<_> = newest.results.iter().skip(place).take(count).cloned().collect();
        let is_end = place + results.len() == newest.results.len();
        Some((results, is_end))
    }

    /// Returns a receiver that changes when there are new results, or when the reader lost its connection.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Whether the shared reader cannot read now.
    pub fn is_away(&self) -> bool {
        self.state().is_away
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, newest: Option<Newest>, is_away: bool) {
        {
            let mut state = self.state();
            state.newest = newest;
            state.is_away = is_away;
        }
        self.changed.send_modify(|changes| *changes += 1);
    }

    fn add(&self, results: Vec<Arc<ReadResult>>) {
        if let Some(newest) = &mut self.state().newest {
            newest.add(results);
        }
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Ends the reading if nobody has followed for some time.
    fn is_left(&self) -> bool {
        let mut state = self.state();
        let is_left = state.followers == 0 && state.left_at.is_none_or(|at| at.elapsed() >= LINGER);
        if is_left {
            (state.is_running, state.is_away, state.newest) = (false, false, None);
        }
        is_left
    }
}

/// Reads the newest results until nobody follows, or until the gate stops to read this list of partitions.
async fn run(tail: &NewestResults) {
    let (stop, partition) = (&tail.stop, tail.system.partition());
    while !stop.is_cancelled() && !tail.is_left() {
        match ResultReader::open(&tail.system).await {
            Ok(link) => {
                let read = stop.run_until_cancelled(read(tail, &link)).await;
                link.stream().close().await;
                let Some(Err(error)) = read else { return };
                tracing::debug!(
                    %partition,
                    error = &*error,
                    "the reader of results lost its connection"
                );
            }
            Err(error) => {
                tracing::debug!(
                    %partition,
                    error = &*error,
                    "the reader of results waits for Redis"
                );
            }
        }
        tail.set(None, true);
        sleep(RETRY).await;
    }
}

/// Reads over one connection until nobody follows, or until the connection fails.
async fn read(tail: &NewestResults, link: &ResultReader) -> anyhow::Result<()> {
    let stream = link.stream();
    loop {
        let (reconnects, history) = link.history().await?;
        let mut last = Position::latest(&StreamSnapshot { span: stream.span().await?, history });
        if stream.reconnects() != reconnects {
            continue;
        }
        tail.set(Some(Newest::begin(last.clone(), tail.most_bytes)), false);
        loop {
            if tail.is_left() {
                return Ok(());
            }
            let entries = stream.wait(last.after, COUNT, BLOCK).await?;
            tail.counts.tail_read();
            let span = stream.span().await?;
            // The answer is from the same data only if the server was not replaced meanwhile.
            let is_same = link.history().await? == (reconnects, history) && stream.reconnects() == reconnects;
            if !is_same || !last.is_whole(&span) {
                break;
            }
            let results = read_results(&last, entries, &span);
            if let Some(newest) = results.last() {
                last = newest.position.clone();
                tail.add(results);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_orders::PublishedResult;
    use tidegate_stream::EntryId;

    use super::*;

    fn position(ms: u64) -> Position {
        Position { after: EntryId { ms, seq: 0 }, ordinal: Some(ms), history: Some(1) }
    }

    fn read(ms: u64, json: Option<String>) -> Arc<ReadResult> {
        let result = json.map(|json| PublishedResult {
            order: 7.try_into().unwrap(),
            state: "confirmed".to_owned(),
            kind: "state".to_owned(),
            reference: None,
            step: 0,
            entry: EntryId { ms, seq: 0 },
            json: json.into(),
        });
        Arc::new(ReadResult { position: position(ms), result })
    }

    fn newest(results: std::ops::RangeInclusive<u64>) -> Newest {
        let mut newest = Newest::begin(position(results.start() - 1), share_of(1));
        let results: Vec<_> = results.map(|ms| read(ms, None)).collect();
        results.chunks(COUNT.into()).for_each(|chunk| newest.add(chunk.to_vec()));
        newest
    }

    #[test]
    fn a_position_is_served_from_memory_only_if_nothing_is_missing_after_it() {
        let newest = newest(5..=9);
        let places = [3, 4, 5, 9, 10].map(|ms| newest.place_of(&position(ms)));
        assert_eq!(places, [None, Some(0), Some(1), Some(5), None]);
        let unknown = |position: Position| newest.place_of(&position).is_none();
        assert!(unknown(Position { history: Some(2), ..position(5) }), "another server");
        assert!(unknown(Position { ordinal: Some(50), ..position(5) }), "another stream of the same name");
        assert!(
            unknown(Position { after: EntryId { ms: 5, seq: 1 }, ..position(5) }),
            "no entry of this stream"
        );
        assert_eq!(newest.place_of(&Position { ordinal: None, ..position(5) }), Some(1));
    }

    #[test]
    fn only_the_newest_results_stay_in_memory() {
        let mut newest = newest(1..=5_000);
        assert_eq!((newest.results.len(), newest.begin.after.ms), (MOST, 1_000));
        assert!(newest.bytes <= MOST_BYTES);
        let mut one_of_64 = Newest::begin(position(0), share_of(64));
        newest.results.make_contiguous().chunks(COUNT.into()).for_each(|chunk| one_of_64.add(chunk.to_vec()));
        assert!(one_of_64.bytes <= ALL_BYTES / 64, "{} bytes", one_of_64.bytes);

        // The last read stays, however large its results are, until the next read.
        let large = (10_001..=10_500).map(|ms| read(ms, Some("x".repeat(1_000)))).collect();
        one_of_64.add(large);
        assert_eq!((one_of_64.results.len(), one_of_64.begin.after.ms), (500, 5_000));
        assert_eq!(one_of_64.place_of(&position(5_000)), Some(0), "followers read on from memory");
        one_of_64.add(vec![read(10_501, None)]);
        assert!(one_of_64.bytes <= ALL_BYTES / 64, "{} bytes", one_of_64.bytes);
    }
}
