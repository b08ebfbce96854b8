//! Order ids: their layout, and an allocator that takes them from Redis in blocks.
//!
//! An id has 63 bits: 31 bits of seconds since 2022-01-01T00:00:00Z, then 32 bits of the sequence of that UTC day.
//! The sequence alone makes it unique within its day; the seconds make ids grow with time. So a clock that goes
//! backwards within the day of the block does no harm, and one that leaves that day backwards is refused.
//!
//! In a system with partitions, each counts for itself, and its number stands in the lowest six bits of the sequence.

pub mod counter;

use std::{fmt, num::NonZeroU32, ops::RangeInclusive};

use fred::interfaces::KeysInterface;
use jiff::Timestamp;
use tidegate_stream::{Reconnects, readable};
use tokio::sync::Mutex;

use crate::{gate::RedisStore, order::OrderId};

/// 2022-01-01T00:00:00Z as Unix time in seconds.
pub const EPOCH_SECONDS: i64 = 1_640_995_200;

const SEQUENCE_BITS: u32 = 32;
const MAX_SECONDS: i64 = (1 << 31) - 1;
const MAX_SEQUENCE: i64 = (1 << SEQUENCE_BITS) - 1;
const SECONDS_OF_A_DAY: i64 = 86_400;
#[expect(clippy::reversed_empty_ranges, reason = "it is to be empty")]
const NONE_LEFT: RangeInclusive<i64> = 1..=0;

/// Why there is no order id.
#[derive(Debug, thiserror::Error)]
pub enum OrderIdError {
    /// The clock is before 2022, or so late that 31 bits do not hold it (after 2090-01-19).
    #[error(
        "order ids hold 0 ..= {MAX_SECONDS} seconds since 2022-01-01T00:00:00Z, and this is {seconds}: check the clock"
    )]
    SecondsOutOfRange {
        /// Seconds since 2022-01-01T00:00:00Z.
        seconds: i64,
    },
    /// More than 2^32-1 ids on one day, or a counter that somebody set to a wrong value.
    #[error(
        "order ids hold a sequence of 1 ..= {MAX_SEQUENCE}, and this is {sequence}: check the counter of the day"
    )]
    SequenceOutOfRange {
        /// What came from the counter.
        sequence: i64,
    },
    /// The clock went back to a day whose sequence is no longer held: its ids might be given out twice.
    #[error("the clock went back from {block_day} to {today}: no order ids until it has caught up")]
    ClockWentBack {
        /// The day of the ids in progress, `yyyy:MM:dd`.
        block_day: String,
        /// What the clock says.
        today: String,
    },
    /// The counter of the day could not be raised.
    #[error("Failed to take order ids from Redis: {}", readable(&.0.to_string()))]
    Redis(fred::error::Error),
}

impl From<fred::error::Error> for OrderIdError {
    fn from(error: fred::error::Error) -> Self {
        Self::Redis(error)
    }
}

/// Makes an id of seconds since 2022-01-01T00:00:00Z and the sequence of that day.
///
/// # Errors
/// When the seconds do not fit into 31 bits, or the sequence is not within `1 ..= 2^32-1`.
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

/// The seconds since 2022-01-01T00:00:00Z and the sequence in an id that [`compose`] made.
#[must_use]
pub const fn decompose(id: OrderId) -> (i64, i64) {
    (id.get() >> SEQUENCE_BITS, id.get() & MAX_SEQUENCE)
}

/// The day of an id that [`compose`] made, in days since 1970-01-01.
#[must_use]
pub const fn day_of(id: OrderId) -> i64 {
    (decompose(id).0 + EPOCH_SECONDS).div_euclid(SECONDS_OF_A_DAY)
}

/// All ids that may be made on a day, given in days since 1970-01-01. None: no id can be of that day.
#[must_use]
pub fn ids_of(day: i64) -> Option<RangeInclusive<i64>> {
    let first = day.checked_mul(SECONDS_OF_A_DAY)?.checked_sub(EPOCH_SECONDS)?;
    let last = first + SECONDS_OF_A_DAY - 1;
    (first >= 0 && last <= MAX_SECONDS)
        .then_some((first << SEQUENCE_BITS)..=((last << SEQUENCE_BITS) | MAX_SEQUENCE))
}

/// Gives out order ids. Takes a block of them from the day's counter, so that most cost no round trip.
///
/// Ids of a block that was not used up, at midnight or at the end of the process, are never given out: gaps are
/// harmless. So is an INCRBY that the client sends twice.
///
/// After a failover, the counter may be behind ids that were given out before. So a block ends when a connection is made anew:
/// another server may give the same block to another process. And no block begins below what this process has given out.
pub struct OrderIdAllocator {
    redis: RedisStore,
    block_size: NonZeroU32,
    clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
    // Held while a block is fetched: one fetches, the others wait for what it brings.
    held: Mutex<Held>,
}

/// What an allocator has in progress.
#[derive(Debug)]
struct Held {
    block: Option<Block>,
    reconnects: Reconnects,
}

/// Sequence numbers in progress.
#[derive(Debug)]
struct Block {
    /// Days since 1970-01-01.
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
    /// By the clock of this machine.
    #[must_use]
    pub fn new(redis: RedisStore, block_size: NonZeroU32) -> Self {
        Self::with_clock(redis, block_size, Timestamp::now)
    }

    /// By another clock.
    #[must_use]
    pub fn with_clock(
        redis: RedisStore,
        block_size: NonZeroU32,
        clock: impl Fn() -> Timestamp + Send + Sync + 'static,
    ) -> Self {
        let held = Held { block: None, reconnects: Reconnects::from(redis.pool()) };
        Self { redis, block_size, clock: Box::new(clock), held: Mutex::new(held) }
    }

    /// An id that nobody else was given.
    ///
    /// # Errors
    /// When the clock or the sequence does not fit into an id, the clock went back to an earlier day, or Redis
    /// does not answer. The next call tries again.
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
        // Of the old server, perhaps.
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
            // All numbers by which a call raises the counter are the caller's, and the block is the last of them.
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

/// The UTC day as it stands in the key of its counter, `yyyy:MM:dd`.
/// A day, counted from 1970-01-01, as the key of its counter names it: `yyyy:MM:dd`.
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
        assert_eq!(ids_of(day - 1), None);
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
