//! Reads of a lane: one turn, from the source that is due, and the reads that make up a batch.

use std::{
    future::{Future, pending},
    time::{Duration, Instant},
};

use fred::interfaces::ClientLike;
use futures_util::stream::{FuturesOrdered, Stream};
use tokio::sync::MutexGuard;
use tokio_util::sync::CancellationToken;

use super::{
    Lane, LaneError,
    crashes::CRASHES_IN_COMPANY,
    schedule::Source,
    set_aside::Due,
    state::{LaneState, ReadAhead},
    step::{InProgress, log_gone},
};
use crate::{
    counters::BatchReport,
    entry::{Delivery, EntryId, Fetched},
    handler::Handler,
    lane_status::Activity,
    observer::Origin,
    stream::{Fetch, KEEPALIVE_PAGE, StreamError, next_reply, other_replies},
};

/// The interval at which a blocked read is unblocked on a stop signal or a pause: the read may still be on its way to
/// Redis.
const UNBLOCK_EVERY: Duration = Duration::from_millis(50);

/// The time that a read may take to end after a stop signal.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

impl<H: Handler> Lane<H> {
    /// Reads once, from the source that is due, and runs the step on the entries.
    pub(super) async fn read_and_process(
        &self,
        state: &mut LaneState,
        stop: &CancellationToken,
    ) -> Result<Source, LaneError> {
        if let Some(ahead) = state.take_ahead() {
            return self.process(state, ahead.into(), stop).await;
        }
        let begun = Instant::now();
        let source = state.next(begun, self.is_set_aside_full());
        let wakes = state.set_aside.wakes();
        if let Source::Wait { time } = source {
            self.lane_status.enter(Activity::BackingOff);
            tokio::select! {
                () = tokio::time::sleep(time) => {}
                () = stop.cancelled() => {}
                () = self.pause_switch.paused() => {}
                () = wakes.woken() => {}
            }
            return Ok(source);
        }
        self.lane_status.enter(Activity::Reading);
        let due = if source == Source::SetAside { Some(state.set_aside.take_due(begun)) } else { None };
        if let Some(due) = due.as_ref().filter(|due| due.alone) {
            self.process_alone(state, due, stop).await?;
            return Ok(source);
        }
        let ends_wait = async {
            match source {
                Source::New { block, .. } if !block.is_zero() => wakes.woken().await,
                // The read does not wait in Redis.
                _ => pending().await,
            }
        };
        let (delivery, untried) = tokio::select! {
            biased;
            delivery = self.read(source, due.as_ref(), state) => delivery?,
            // A read is work and is never cancelled, with one exception: the lane ends, and Redis does not answer.
            // Entries that Redis handed over nevertheless stay pending, for the next consumer with this name, or until
            // they are claimed.
            () = self.unblock_read(stop, ends_wait) => {
                state.start_over();
                return Ok(source);
            }
        };
        let read = Read { source, delivery, untried, begun, came: Instant::now() };
        self.process(state, read, stop).await
    }

    /// Runs the step on the entries of a read.
    async fn process(
        &self,
        state: &mut LaneState,
        Read { source, delivery, untried, begun, came }: Read,
        stop: &CancellationToken,
    ) -> Result<Source, LaneError> {
        // Entries that are retried came with an earlier read.
        if !delivery.is_empty() && source != Source::SetAside {
            self.counters.read(delivery.len(), came - begun);
        }
        let origin = match source {
            Source::New { .. } => Origin::New,
            Source::SetAside => Origin::Pending,
            _ => state.origin(),
        };
        let wakes = state.set_aside.wakes();
        wakes.begin_batch();
        let ahead = if origin == Origin::New { self.ahead(state, &delivery, stop) } else { None };
        let in_progress = InProgress { delivery: &delivery, origin, came };
        let step = self.step(in_progress, ahead).await.inspect_err(|_| wakes.end_batch())?;
        for (id, cause) in step.set_aside {
            state.set_aside.put(id, cause, Instant::now());
        }
        wakes.end_batch();
        if source == Source::SetAside {
            state.set_aside.end_try(&untried, begun.elapsed(), Instant::now());
        }
        state.put_ahead(step.ahead.transpose()?);
        state.schedule.widen();
        Ok(source)
    }

    /// Returns whether no more entries may be set aside.
    pub(super) fn is_set_aside_full(&self) -> bool {
        self.counters.set_aside().is_full(self.settings.set_aside_max)
    }

    /// Returns the entries of the read, and those ids of `due` that there was no room for.
    async fn read(
        &self,
        source: Source,
        due: Option<&Due>,
        state: &mut LaneState,
    ) -> Result<(Delivery, Vec<EntryId>), LaneError> {
        let consumer = self.reader.consumer();
        let mut delivery = Delivery::default();
        // Counts crashes of the entries that were claimed last, before they are handed over: from then on this process
        // has them in progress.
        self.stream.count_crashes(consumer, state.crashes_to_count()).await?;
        state.claimed_crashes_counted();
        match source {
            Source::Wait { .. } => {}
            Source::Own { after, count } => self.list_own(state, after, count).await?,
            Source::OwnCount => state.counted(self.stream.count_own(consumer).await?),
            Source::Claim { cursor, count } => self.claim(state, cursor, count).await?,
            Source::New { count, block } => delivery = self.read_new(state, count, block).await?,
            Source::Found { count } => {
                let ids = state.found(count);
                let fetched = self.fetch(state, &ids, CRASHES_IN_COMPANY).await?;
                state.handled(fetched.looked);
                // After a start, so that the lane knows the size of the entries that the process before died of.
                self.shared_reader.learn(&fetched.delivery.entries);
                delivery = self.isolate_or_bury(state, fetched).await?;
            }
            Source::SetAside => {
                let ids = due.map_or(&[][..], |due| &due.ids);
                let fetched = self.fetch(state, ids, CRASHES_IN_COMPANY).await?;
                let untried = ids[fetched.looked.min(ids.len())..].to_vec();
                return Ok((self.isolate_or_bury(state, fetched).await?, untried));
            }
        }
        Ok((delivery, Vec::new()))
    }

    /// Reads the ids of a page of the own pending list. The first walk counts crashes: a process died with the entries
    /// in progress there.
    async fn list_own(&self, state: &mut LaneState, after: EntryId, count: usize) -> Result<(), StreamError> {
        let consumer = self.reader.consumer();
        if after == EntryId::MIN {
            self.stream.enlist(consumer).await?;
        }
        let page = self.stream.own(consumer, after, count).await?;
        if state.counts_crashes() {
            let in_progress = page.iter().filter(|own| own.deliveries > 0);
            let in_progress: Vec<EntryId> = in_progress.map(|own| own.id).collect();
            self.stream.count_crashes(consumer, &in_progress).await?;
            state.crashes_counted(page.last().map(|own| own.id));
        } else {
            state.listed(&page.iter().map(|own| own.id).collect::<Vec<_>>());
        }
        Ok(())
    }

    async fn claim(&self, state: &mut LaneState, cursor: EntryId, count: usize) -> Result<(), StreamError> {
        let claimed =
            self.stream.claim(self.reader.consumer(), self.settings.claim_idle, cursor, count).await?;
        // The claim has removed these entries from the pending list: no other consumer will report them.
        let gone = claimed.gone.len();
        if gone > 0 {
            self.counters.batch(BatchReport { gone, ..BatchReport::default() });
            log_gone(&claimed.gone);
        }
        self.counters.claimed(gone + state.claimed(claimed, Instant::now()));
        Ok(())
    }

    /// Reads new entries in pieces, until the batch has enough entries or bytes: XREADGROUP has no byte limit.
    pub(super) async fn read_new(
        &self,
        state: &mut LaneState,
        count: usize,
        block: Duration,
    ) -> Result<Delivery, StreamError> {
        let room = state.schedule.share_of(self.settings.batch_bytes);
        let mut batch = Batch::new(room, count);
        let waits = !block.is_zero();
        // After a full batch there are mostly more entries. Otherwise the read that waits comes first, and is mostly
        // the only one.
        if !waits || state.has_more || self.read_piece(&mut batch, block).await? {
            let _turn = self.wait_for_turn().await;
            // The lane that had the turn before may have met an outage, and this lane has waited for its end. So not
            // every lane meets it one after the other.
            if self.breaker.is_open() {
                state.has_more = false;
                return Ok(batch.delivery);
            }
            let mut most = if state.has_more { usize::MAX } else { 1 };
            while self.read_pieces(&mut batch, most).await? {
                most = usize::MAX;
            }
        }
        let is_full = !batch.has_room();
        if waits && state.has_more && batch.delivery.is_empty() {
            self.read_piece(&mut batch, block).await?;
        }
        state.has_more = is_full;
        // No lane has these in progress until they are fetched. They may be large, and Redis may have to copy each
        // entry to see whether it exists.
        for ids in batch.leftover.chunks(KEEPALIVE_PAGE) {
            self.stream.set_aside(self.reader.consumer(), ids).await?;
        }
        state.found_leftover(batch.leftover);
        Ok(batch.delivery)
    }

    /// Waits until no other lane reads without waiting. That takes long if reads are slow and lanes are many.
    async fn wait_for_turn(&self) -> MutexGuard<'_, ()> {
        if let Some(turn) = self.shared_reader.try_turn() {
            return turn;
        }
        self.lane_status.enter(Activity::Yielding);
        let turn = self.shared_reader.turn().await;
        self.lane_status.enter(Activity::Reading);
        turn
    }

    /// Waits for one piece. Returns whether there may be more entries, and room for them.
    async fn read_piece(&self, batch: &mut Batch, block: Duration) -> Result<bool, StreamError> {
        let piece = self.shared_reader.piece_that_waits(batch.room_left()).min(batch.count_left());
        let delivery = self.reader.read_new(piece, block).await?;
        let came_full = delivery.len() == piece;
        self.put_into(batch, delivery)?;
        Ok(came_full && batch.has_room())
    }

    /// Requests at most `most` pieces together, without waiting for entries: each call on its own is a round trip and a
    /// write to Redis' file. Returns the same as [`Lane::read_piece`].
    async fn read_pieces(&self, batch: &mut Batch, most: usize) -> Result<bool, StreamError> {
        let client = self.shared_reader.client().unwrap_or(self.reader.client());
        let pieces = self.shared_reader.pieces(batch.room_left(), batch.count_left());
        // Without a connection, each of the requests would wait for one until its timeout.
        let most = if client.is_connected() { most } else { 1 };
        let mut replies: FuturesOrdered<_> = (0..)
            .zip(pieces.take(most))
            .map(async |(at, piece)| (piece, self.reader.read_new_over(client, piece, at).await))
            .collect();
        let came_full = self.put_each_into(batch, &mut replies).await;
        if let Err(error) = &came_full {
            self.reader.reconnect_after(client, error);
            // Entries that still come are pending, and are found again.
            other_replies(replies).await;
        }
        Ok(came_full? && batch.has_room())
    }

    /// Adds all replies to the batch. Returns whether each had as many entries as requested.
    async fn put_each_into(
        &self,
        batch: &mut Batch,
        mut replies: impl Stream<Item = (usize, Result<Delivery, StreamError>)> + Unpin,
    ) -> Result<bool, StreamError> {
        let mut came_full = true;
        while let Some((piece, delivery)) = next_reply(&mut replies).await? {
            let delivery = delivery?;
            came_full &= delivery.len() == piece;
            self.put_into(batch, delivery)?;
        }
        Ok(came_full)
    }

    /// Adds a delivery to the batch; if the batch has enough bytes already, it keeps only the ids.
    fn put_into(&self, batch: &mut Batch, mut delivery: Delivery) -> Result<(), StreamError> {
        self.is_same_server()?;
        self.shared_reader.learn(&delivery.entries);
        if batch.bytes >= batch.room {
            batch.leftover.extend(delivery.entries.iter().map(|entry| entry.id));
            return Ok(());
        }
        batch.bytes += delivery.bytes();
        delivery.drop_large(self.settings.entry_max_bytes);
        self.handler.received(&delivery.entries);
        batch.delivery.append(delivery);
        Ok(())
    }

    pub(super) async fn fetch(
        &self,
        state: &LaneState,
        ids: &[EntryId],
        limit: u32,
    ) -> Result<Fetched, StreamError> {
        if ids.is_empty() {
            return Ok(Fetched::default());
        }
        let fetch = Fetch {
            run: self.run_of_server(),
            bytes: state.schedule.share_of(self.settings.batch_bytes),
            largest: self.settings.entry_max_bytes,
            limit,
        };
        self.stream.fetch(self.reader.consumer(), ids, &fetch).await
    }

    /// Waits until the time is over that a read has to end after the stop signal.
    pub(super) async fn patience_ends(stop: &CancellationToken) {
        stop.cancelled().await;
        tokio::time::sleep(STOP_PATIENCE).await;
    }

    /// Ends the wait of a blocked read on a stop, on a pause, when a lane wants to be alone, or when `ends_wait` ends.
    /// Entries that the read brings nevertheless are handled. Returns when the read has not ended in time after the
    /// stop signal. Otherwise the lane lives on, and waits for its read as long as that may take.
    async fn unblock_read(&self, stop: &CancellationToken, ends_wait: impl Future<Output = ()>) {
        let unblock_for_ever = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.pause_switch.paused() => {}
                () = self.turns.exclusive.exclusive_wanted() => {}
                () = ends_wait => {}
            }
            loop {
                if let Err(error) = self.stream.unblock(&self.reader).await {
                    tracing::debug!(%error, consumer = self.reader.consumer(), "cannot end a blocked read");
                }
                tokio::time::sleep(UNBLOCK_EVERY).await;
            }
        };
        tokio::select! {
            () = unblock_for_ever => unreachable!("unblocks for ever"),
            () = Self::patience_ends(stop) => {}
        }
    }
}

/// The result of one read.
struct Read {
    source: Source,
    delivery: Delivery,
    /// The ids of the due entries that there was no room for.
    untried: Vec<EntryId>,
    begun: Instant,
    came: Instant,
}

impl From<ReadAhead> for Read {
    fn from(ReadAhead { source, delivery, begun, came }: ReadAhead) -> Self {
        Self { source, delivery, untried: Vec::new(), begun, came }
    }
}

/// A batch of new entries, which is filled piece by piece.
struct Batch {
    /// The number of bytes at which the batch is full.
    room: usize,
    /// The number of entries at which the batch is full.
    count: usize,
    delivery: Delivery,
    /// The bytes that came, including entries that were too large to be kept.
    bytes: usize,
    /// The ids of entries that came after the batch had enough bytes.
    leftover: Vec<EntryId>,
}

impl Batch {
    fn new(room: usize, count: usize) -> Self {
        Self { room, count, delivery: Delivery::default(), bytes: 0, leftover: Vec::new() }
    }

    fn has_room(&self) -> bool {
        self.delivery.len() < self.count && self.bytes < self.room
    }

    fn room_left(&self) -> usize {
        self.room - self.bytes
    }

    fn count_left(&self) -> usize {
        self.count - self.delivery.len()
    }
}
