//! Reads of new entries by the lanes of a process: one lane after the other, and in pieces, because the size of entries
//! is unknown before they are read.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use fred::clients::Client;
use tokio::sync::{Mutex, MutexGuard};

use crate::{entry::Entry, redis::RedisConnection};

/// The mean entry size up to which a piece of unknown entries weighs at most twice `batch_bytes`.
const EXPECTED_BYTES: usize = 64 << 10;

/// The number of pieces that a lane requests together at most: Redis builds nearly all replies before it sends them.
const PIECES_IN_ONE_GO: usize = 16;

/// A reader of new entries that all lanes (consumers) of a process share. XREADGROUP has no limit in bytes, so a lane
/// limits the size by several small reads, which it sends in one round trip. When its batch is full, the lane keeps
/// only the ids of further entries. Only one lane reads at a time, and each lane learns the entry sizes from the
/// previous lane.
#[derive(Debug)]
pub struct SharedReader {
    turn: Mutex<()>,
    /// The connection over which the lane whose turn it is reads. A connection keeps the buffer of its largest reply,
    /// so only one connection should have large replies. None: each lane reads over its own.
    client: Option<Client>,
    /// The mean bytes of the last entries, of all or of the latest eighth, whichever is larger.
    typical_bytes: AtomicUsize,
    /// The number of entries in one reply at most, for the lane whose turn it is.
    most: usize,
    /// The same for a read that waits, because all lanes may wait at the same time.
    most_waiting: usize,
}

impl SharedReader {
    /// Creates a shared reader for consumers with batches of at most `batch_bytes` bytes.
    #[must_use]
    pub fn new(batch_bytes: usize) -> Self {
        let share = batch_bytes / EXPECTED_BYTES;
        Self {
            turn: Mutex::default(),
            client: None,
            typical_bytes: AtomicUsize::new(1),
            // Smaller replies take more time, and larger ones more memory while they come.
            most: (2 * share).max(1),
            most_waiting: (share / 2).max(1),
        }
    }

    /// Makes the consumers read over `connection`, except for reads that wait for entries. Nothing else may use this
    /// connection.
    #[must_use]
    pub fn over(self, connection: RedisConnection) -> Self {
        Self { client: Some(connection.0), ..self }
    }

    pub(crate) fn client(&self) -> Option<&Client> {
        self.client.as_ref()
    }

    /// Waits until no other lane reads without waiting.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Like [`SharedReader::turn`], but returns None if another lane has the turn or waits for it.
    pub(crate) fn try_turn(&self) -> Option<MutexGuard<'_, ()>> {
        self.turn.try_lock().ok()
    }

    /// The number of entries that a waiting read may request, so that they fit into `room` bytes if they are like the
    /// last ones.
    pub(crate) fn piece_that_waits(&self, room: usize) -> usize {
        self.that_fit(room).clamp(1, self.most_waiting)
    }

    /// The same for each of several reads that are sent together and do not wait. Together they request at most `count`
    /// entries.
    pub(crate) fn pieces(&self, room: usize, count: usize) -> impl Iterator<Item = usize> {
        let (all, most) = (self.that_fit(room).clamp(1, count), self.most);
        (0..all).step_by(most).take(PIECES_IN_ONE_GO).map(move |at| most.min(all - at))
    }

    fn that_fit(&self, room: usize) -> usize {
        room / self.typical_bytes.load(Relaxed)
    }

    /// Learns the size of the last entries. If sizes grow, the latest of them count.
    pub(crate) fn learn(&self, entries: &[Entry]) {
        let latest = &entries[entries.len() - entries.len().div_ceil(8)..];
        let mean =
            |entries: &[Entry]| entries.iter().map(Entry::bytes).sum::<usize>().checked_div(entries.len());
        if let Some(mean) = mean(entries).max(mean(latest)) {
            self.typical_bytes.store(mean.max(1), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::entry::{EntryId, FIELD_BYTES};

    fn entries(bytes: &[usize]) -> Vec<Entry> {
        let field =
            |bytes: &usize| (Bytes::new(), Bytes::from(vec![b'x'; bytes.saturating_sub(FIELD_BYTES)]));
        bytes.iter().map(|bytes| Entry { id: EntryId::MIN, fields: vec![field(bytes)] }).collect()
    }

    #[test]
    fn as_many_are_asked_for_as_fit_if_they_are_like_the_last_ones_and_fewer_where_one_waits() {
        let room = 48 * EXPECTED_BYTES;
        let shared_reader = SharedReader::new(room);
        let pieces = |room, count| shared_reader.pieces(room, count).collect::<Vec<_>>();
        assert_eq!((pieces(room, 100), shared_reader.piece_that_waits(room)), (vec![96, 4], 24));
        assert_eq!((pieces(room, 96), pieces(room, 1)), (vec![96], vec![1]));
        assert_eq!(pieces(room, 5_000), [96; PIECES_IN_ONE_GO]);
        shared_reader.learn(&entries(&[64 << 10; 10]));
        assert_eq!((pieces(room, 500), shared_reader.piece_that_waits(room)), (vec![48], 24));
        shared_reader.learn(&[]);
        assert_eq!(pieces(64 << 10, 500), [1]);
        shared_reader.learn(&entries(&[2 * room]));
        assert_eq!((pieces(room / 2, 500), shared_reader.piece_that_waits(room)), (vec![1], 1));
    }

    #[test]
    fn entries_that_grow_are_known_by_the_latest_of_them() {
        let room = 48 * EXPECTED_BYTES;
        let shared_reader = SharedReader::new(room);
        let growing: Vec<usize> = (0..384).map(|at| if at < 300 { 100 } else { 64 << 10 }).collect();
        shared_reader.learn(&entries(&growing));
        assert_eq!(shared_reader.pieces(room, 1_000).collect::<Vec<_>>(), [48]);
    }

    #[test]
    fn something_is_asked_for_however_little_a_batch_may_weigh() {
        let shared_reader = SharedReader::new(1);
        assert_eq!((shared_reader.pieces(1, 10).next(), shared_reader.piece_that_waits(1)), (Some(1), 1));
    }
}
