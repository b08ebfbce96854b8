//! Order ids: their layout, and an allocator that takes them from Redis in blocks.
//!
//! An id has 63 bits: 31 bits of seconds since 2022-01-01T00:00:00Z, then 32 bits of the sequence of that UTC day. The
//! sequence alone makes the id unique within its day; the seconds make ids grow with time. So a clock that goes back
//! within the day of the block does no harm. If the clock goes back to an earlier day, the allocator refuses to give
//! out ids.
//!
//! In a system with partitions, each partition counts its own ids, and its index is in the lowest six bits of the
//! sequence.

pub mod counter;

use std::{fmt, num::NonZeroU32, ops::RangeInclusive};

use fred::interfaces::KeysInterface;
use jiff::Timestamp;
use tidegate_stream::{Reconnects, readable};
use tokio::sync::Mutex;

use crate::{order::OrderId, scripts::RedisStore};

/// The start of the time in order ids, 2022-01-01T00:00:00Z, as Unix time in seconds.
pub const EPOCH_SECONDS: i64 = 1_640_995_200;

const SEQUENCE_BITS: u32 = 32;
const MAX_SECONDS: i64 = (1 << 31) - 1;
const MAX_SEQUENCE: i64 = (1 << SEQUENCE_BITS) - 1;
const SECONDS_OF_A_DAY: i64 = 86_400;
#[expect(clippy::reversed_empty_ranges, reason = "this range must be empty")]
const NONE_LEFT: RangeInclusive<i64> = 1..=0;

/// The reason why no order id can be made.
#[derive(Debug, thiserror::Error)]
pub enum OrderIdError {
    /// The clock is before 2022, or too late for 31 bits (after 2090-01-19).
    #[error(
        "the clock shows {seconds} s since 2022-01-01T00:00:00Z, but an order id holds 0 to {MAX_SECONDS} s: correct the clock"
    )]
    SecondsOutOfRange {
        /// The seconds since 2022-01-01T00:00:00Z.
        seconds: i64,
    },
    /// More than 2^32-1 ids on one day, or another program set the counter to a wrong value.
    #[error(
        "the next sequence of an order id is {sequence}, but an id holds 1 to {MAX_SEQUENCE}: check the day's counter in Redis"
    )]
    SequenceOutOfRange {
        /// The sequence that is out of range.
        sequence: i64,
    },
    /// The clock went back to a day before that of the current block. The allocator no longer knows the sequence of
    /// that day, so it might give out an id twice.
    #[error(
        "the clock went back from {block_day} to {today}: correct the clock; before {block_day}, no order ids are made"
    )]
    ClockWentBack {
        /// The day of the current block, `yyyy:MM:dd`.
        block_day: String,
        /// The day that the clock shows, `yyyy:MM:dd`.
        today: String,
    },
    /// Redis did not raise the counter of the day.
    #[error("Failed to take order ids from Redis: {}", readable(&.0.to_string()))]
    Redis(fred::error::Error),
}

impl From<fred::error::Error> for OrderIdError {
    fn from(error: fred::error::Error) -> Self {
        Self::Redis(error)
    }
}

/// Makes an order id from the number of seconds since 2022-01-01T00:00:00Z and the sequence number within the day.
///
/// # Errors
/// If the seconds do not fit into 31 bits, or the sequence is not within `1 ..= 2^32-1`.
pub fn compose(seconds: i64, sequence: i64) -> Result<OrderId, OrderIdError> {
    if !(0..=MAX_SECONDS).contains(&seconds) {
        return Err(OrderIdError::SecondsOutOfRange { seconds });
    }
    if !(1..=MAX_SEQUENCE).contains(&sequence) {
        return Err(OrderIdError::SequenceOutOfRange { sequence });
    }
    let id = (seconds << SEQUENCE_BITS) | sequence;
    OrderId::try_from(id).map_err(|_| OrderIdError::SequenceOutOfRange { sequence })
}

/// Splits an order id that [`compose`] made: the seconds since 2022-01-01T00:00:00Z, and the sequence number within the
/// day.
#[must_use]
pub const fn decompose(id: OrderId) -> (i64, i64) {
    (id.get() >> SEQUENCE_BITS, id.get() & MAX_SEQUENCE)
}

/// The day of an order id that [`compose`] made, in days since 1970-01-01.
#[must_use]
pub const fn day_of(id: OrderId) -> i64 {
    (decompose(id).0 + EPOCH_SECONDS).div_euclid(SECONDS_OF_A_DAY)
}

/// The range of order ids that can be made on a day, which is given in days since 1970-01-01. `None` if no order id can
/// have this day.
#[must_use]
pub fn ids_of(day: i64) -> Option<RangeInclusive<i64>> {
    let from_s = day.saturating_mul(SECONDS_OF_A_DAY);
    ids_between(from_s, from_s.saturating_add(SECONDS_OF_A_DAY))
}

/// The range of order ids that can be made from the Unix second `from_s` on, and before the Unix second `before_s`.
/// `None` if no order id can have such a time.
#[must_use]
pub fn ids_between(from_s: i64, before_s: i64) -> Option<RangeInclusive<i64>> {
    let first = from_s.saturating_sub(EPOCH_SECONDS).max(0);
    let last = before_s.saturating_sub(EPOCH_SECONDS + 1).min(MAX_SECONDS);
    (first <= last).then_some((first << SEQUENCE_BITS)..=((last << SEQUENCE_BITS) | MAX_SEQUENCE))
}

/// Allocates order ids in blocks from the day's counter in Redis, so that most ids need no round trip.
///
/// If a block is not used up at midnight or at the end of the process, its other ids are never given out. If the client
/// sends an INCRBY twice, the ids of one block are never given out. Both gaps are harmless.
///
/// After a failover, the counter may be behind ids that were given out before. So a block ends when a connection is
/// made anew, because another server may give the same block to another process. And no block begins below the ids that
/// this process has given out.
pub struct OrderIdAllocator {
    redis: RedisStore,
    block_size: NonZeroU32,
    clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
    // Locked while a block is fetched: one caller fetches it, and the other callers wait for it.
    held: Mutex<Held>,
}

/// The current block of an allocator.
#[derive(Debug)]
struct Held {
    block: Option<Block>,
    reconnects: Reconnects,
}

/// A block of sequence numbers that is being given out.
#[derive(Debug)]
struct Block {
    /// The day of the block, in days since 1970-01-01.
    day: i64,
    /// The highest number of the day that was given out.
    given: i64,
    left: RangeInclusive<i64>,
}

impl fmt::Debug for OrderIdAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrderIdAllocator").field("block_size", &self.block_size).finish_non_exhaustive()
    }
}

impl OrderIdAllocator {
    /// Creates an allocator that reads the clock of this machine.
    #[must_use]
    pub fn new(redis: RedisStore, block_size: NonZeroU32) -> Self {
        Self::with_clock(redis, block_size, Timestamp::now)
    }

    /// Creates an allocator that reads the given clock.
    #[must_use]
    pub fn with_clock(
        redis: RedisStore,
        block_size: NonZeroU32,
        clock: impl Fn() -> Timestamp + Send + Sync + 'static,
    ) -> Self {
        let held = Held { block: None, reconnects: Reconnects::from(redis.pool()) };
        Self { redis, block_size, clock: Box::new(clock), held: Mutex::new(held) }
    }

    /// Returns a new order id, which no other caller gets.
    ///
    /// # Errors
    /// If the clock or the sequence does not fit into an id, the clock went back to an earlier day, or Redis does not
    /// answer. The next call tries again.
    pub async fn next(&self) -> Result<OrderId, OrderIdError> {
        let mut held = self.held.lock().await;
        let is_anew = held.reconnects.seen();
        if let Some(block) = held.block.as_mut().filter(|_| is_anew) {
            block.left = NONE_LEFT;
        }
        let now = (self.clock)().as_second();
        let day = now.div_euclid(SECONDS_OF_A_DAY);
        let seconds = now - EPOCH_SECONDS;
        if !(0..=MAX_SECONDS).contains(&seconds) {
            return Err(OrderIdError::SecondsOutOfRange { seconds });
        }
        let mut given = 0;
        if let Some(block) = held.block.as_mut() {
            if day < block.day {
                return Err(OrderIdError::ClockWentBack {
                    block_day: day_text(block.day),
                    today: day_text(day),
                });
            }
            if day == block.day {
                if let Some(number) = block.left.next() {
                    block.given = number;
                    return compose(seconds, self.redis.keys().partition().sequence(number));
                }
                given = block.given;
            }
        }
        let mut left = self.fetch(day, given).await?;
        // The block may come from the old server.
        while held.reconnects.seen() {
            left = self.fetch(day, given).await?;
        }
        let first = left.next().unwrap_or(MAX_SEQUENCE + 1);
        held.block = Some(Block { day, given: first, left });
        compose(seconds, self.redis.keys().partition().sequence(first))
    }

    /// Takes a block that begins above `given`.
    async fn fetch(&self, day: i64, given: i64) -> Result<RangeInclusive<i64>, OrderIdError> {
        let (key, size) = (self.redis.keys().order_id(&day_text(day)), i64::from(self.block_size.get()));
        let mut raise_by = size;
        loop {
            // All numbers by which a call raises the counter belong to the caller; the block is the last of them.
            let last: i64 = self.redis.pool().next().incr_by(&key, raise_by).await?;
            let first = last - (size - 1);
            if !(1..=MAX_SEQUENCE).contains(&first) {
                return Err(OrderIdError::SequenceOutOfRange { sequence: first });
            }
            if first > given {
                return Ok(first..=last.min(MAX_SEQUENCE));
            }
            raise_by = size + (given - last).max(0);
        }
    }
}

/// The UTC day in the form `yyyy:MM:dd`, which the key of the day's counter contains. `day` is the number of days since
/// 1970-01-01.
#[must_use]
pub fn day_text(day: i64) -> String {
    let day = Timestamp::from_second(day * SECONDS_OF_A_DAY).unwrap_or_default();
    day.strftime("%Y:%m:%d").to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn seconds_and_sequence_at_their_limits_fit_and_beyond_them_do_not() {
        assert_eq!(compose(0, 1).unwrap().get(), 1);
        assert_eq!(compose(MAX_SECONDS, MAX_SEQUENCE).unwrap().get(), i64::MAX);
        for seconds in [-1, MAX_SECONDS + 1, i64::MIN, i64::MAX] {
            assert!(matches!(compose(seconds, 1), Err(OrderIdError::SecondsOutOfRange { .. })));
        }
        for sequence in [0, -1, MAX_SEQUENCE + 1, i64::MIN, i64::MAX] {
            assert!(matches!(compose(1, sequence), Err(OrderIdError::SequenceOutOfRange { .. })));
        }
    }

    #[test]
    fn days_are_named_as_in_the_tutorials_counter() {
        assert_eq!(day_text(0), "1970:01:01");
        assert_eq!(day_text(EPOCH_SECONDS / SECONDS_OF_A_DAY), "2022:01:01");
    }

    #[test]
    fn ids_of_a_day_are_told_by_their_seconds() {
        let day = EPOCH_SECONDS / SECONDS_OF_A_DAY;
        assert_eq!(ids_of(day).unwrap(), 0..=(SECONDS_OF_A_DAY << SEQUENCE_BITS) - 1);
        for none in [day - 1, i64::MIN, i64::MAX] {
            assert_eq!(ids_of(none), None);
        }
        // A range that begins before all ids, or ends after all ids, has the ids in between.
        assert_eq!(ids_between(0, EPOCH_SECONDS + 1).unwrap(), 0..=MAX_SEQUENCE);
        assert_eq!(ids_between(EPOCH_SECONDS + MAX_SECONDS, i64::MAX).unwrap().end(), &i64::MAX);
        assert_eq!(ids_between(EPOCH_SECONDS + 9, EPOCH_SECONDS + 9), None);
        for (seconds, later) in [(1, 0), (SECONDS_OF_A_DAY - 1, 0), (SECONDS_OF_A_DAY, 1)] {
            assert_eq!(day_of(compose(seconds, 7).unwrap()), day + later);
        }
    }

    proptest! {
        #[test]
        fn an_id_holds_exactly_what_it_was_made_of(seconds in 0..=MAX_SECONDS, sequence in 1..=MAX_SEQUENCE) {
            prop_assert_eq!(decompose(compose(seconds, sequence)?), (seconds, sequence));
        }

        #[test]
        fn a_later_second_has_the_larger_id(
            seconds in 0..MAX_SECONDS, earlier in 1..=MAX_SEQUENCE, later in 1..=MAX_SEQUENCE,
        ) {
            prop_assert!(compose(seconds, earlier)? < compose(seconds + 1, later)?);
        }
    }
}
