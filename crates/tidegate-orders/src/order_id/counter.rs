//! Repairs the counters of order ids after a loss of data: raises them above all known ids, so that no id is given out
//! twice.

use std::collections::BTreeMap;

use fred::{interfaces::KeysInterface, prelude::FredResult};
use jiff::Timestamp;
use serde::Serialize;
use sqlx::MySqlPool;

use super::{MAX_SEQUENCE, SECONDS_OF_A_DAY, day_of, day_text, decompose, ids_of};
use crate::{
    order::OrderId,
    partition::{MOST_PARTITIONS, Partition},
    records::{Records, RecordsError},
    scripts::RedisStore,
};

/// The number of ids that must be left for the rest of a day. If fewer are left, a producer made the id in another way.
const LEFT_FOR_THE_DAY: i64 = 1 << 24;
/// The number of ids that producers may have taken from an old counter and not used yet.
const IN_PROGRESS: i64 = 1 << 12;
/// How long after midnight, in seconds, a clock that is behind may still give out ids of the day before.
const AFTER_MIDNIGHT_S: i64 = 3_600;

/// The highest known sequence numbers in order ids, for today and the days next to it.
#[derive(Clone, Debug)]
pub struct KnownSequences {
    /// The highest sequence of each day. Days are counted from 1970-01-01.
    days: BTreeMap<i64, i64>,
    today: i64,
    known_today: u64,
    partition: Partition,
}

/// The order-id counter of a day, before and after it was raised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RaisedCounter {
    /// The day of the counter, `yyyy:MM:dd`.
    pub day: String,
    /// The value of the counter in Redis before it was raised. `None` if Redis had no value.
    pub before: Option<i64>,
    /// The lowest value that the counter in Redis can have after the raise.
    pub now: i64,
    /// Whether the counter was lower than the known order ids, because the counter went back or never counted these
    /// ids.
    pub raised: bool,
}

impl KnownSequences {
    /// Reads the highest sequence numbers in the order ids of a partition from MySQL. `now` selects the days.
    ///
    /// # Errors
    /// If MySQL does not answer.
    pub async fn in_mysql(
        now: Timestamp,
        partition: &Partition,
        mysql: &MySqlPool,
    ) -> Result<Self, RecordsError> {
        let mut known = Self::at(now, partition);
        known.read(mysql).await?;
        Ok(known)
    }

    /// No sequence is known yet of the ids that a partition gives out. `now` selects the days.
    fn at(now: Timestamp, partition: &Partition) -> Self {
        let seconds = now.as_second();
        let today = seconds.div_euclid(SECONDS_OF_A_DAY);
        let is_night = seconds.rem_euclid(SECONDS_OF_A_DAY) < AFTER_MIDNIGHT_S;
        let first = if is_night { today - 1 } else { today };
        let days = (first..=today + 1).map(|day| (day, 0)).collect();
        Self { days, today, known_today: 0, partition: partition.clone() }
    }

    /// Marks an order id as known. If the sequence number in the id leaves too few ids for the rest of the day, the id
    /// is ignored, because a producer made the id in another way.
    pub fn note(&mut self, order: OrderId) {
        let (_, sequence) = decompose(order);
        self.note_sequence(day_of(order), sequence);
    }

    fn note_sequence(&mut self, day: i64, sequence: i64) {
        if let Some(known) = self.days.get_mut(&day)
            && sequence <= MAX_SEQUENCE - LEFT_FOR_THE_DAY
            && let Some(number) = self.partition.number(sequence)
        {
            *known = number.max(*known);
        }
    }

    /// The partition whose order ids are known here.
    #[must_use]
    pub const fn partition(&self) -> &Partition {
        &self.partition
    }

    /// The number of known order ids of today: ids that were read from MySQL, and ids that
    /// [`KnownSequences::add_known`] added.
    #[must_use]
    pub const fn known_today(&self) -> u64 {
        self.known_today
    }

    /// Adds the id of an order that MySQL does not know.
    pub fn add_known(&mut self, order: OrderId) {
        let is_own = self.partition.number(decompose(order).1).is_some();
        self.known_today += u64::from(day_of(order) == self.today && is_own);
        self.note(order);
    }

    /// Reads the order-id counters of another partition, so that this partition makes only higher ids. The ids are then
    /// also higher than ids that producers of the other partition have reserved and not used yet. The other partition
    /// may be in another list of partitions.
    ///
    /// # Errors
    /// If Redis does not answer, or a counter is not a number.
    pub async fn read_counters(&mut self, redis: &RedisStore) -> FredResult<()> {
        for (day, known) in &mut self.days {
            let given: Option<i64> = redis.pool().get(redis.keys().order_id(&day_text(*day))).await?;
            let Some(given) = given else { continue };
            let highest = redis.keys().partition().sequence(given + IN_PROGRESS);
            // The number that makes this sequence in this partition, or the next sequence above it.
            let number = match self.partition.tag() {
                None => highest,
                Some(_) => highest / i64::try_from(MOST_PARTITIONS).unwrap_or(i64::MAX) + 1,
            };
            *known = number.max(*known);
        }
        Ok(())
    }

    /// Notes all ids of these days that MySQL has. Reads the orders of these days.
    ///
    /// # Errors
    /// If MySQL does not answer.
    async fn read(&mut self, mysql: &MySqlPool) -> Result<(), RecordsError> {
        let days: Vec<i64> = self.days.keys().copied().collect();
        for day in days {
            let Some(ids) = ids_of(day) else { continue };
            let records = Records::new(mysql, &self.partition);
            let found =
                records.counts().sequences(&ids, (MAX_SEQUENCE, MAX_SEQUENCE - LEFT_FOR_THE_DAY)).await?;
            if found.ids > 0 {
                self.note_sequence(day, found.highest);
            }
            if day == self.today {
                self.known_today += found.ids;
            }
        }
        Ok(())
    }

    /// Raises the order-id counters in Redis that are lower than the known sequence numbers. The call never lowers a
    /// counter.
    ///
    /// # Errors
    /// If Redis does not answer, or a counter is not a number.
    pub async fn raise(&self, redis: &RedisStore) -> FredResult<Vec<RaisedCounter>> {
        let mut raised = Vec::new();
        for (day, known) in &self.days {
            let key = redis.keys().order_id(&day_text(*day));
            let before: Option<i64> = redis.pool().get(&key).await?;
            let missing = known - before.unwrap_or(0);
            // If it is sent twice, or a producer raises the counter at the same time, it leaves a gap, which is
            // harmless.
            let now =
                if missing > 0 { redis.pool().incr_by(&key, missing).await? } else { before.unwrap_or(0) };
            if *day == self.today || missing > 0 {
                raised.push(RaisedCounter { day: day_text(*day), before, now, raised: missing > 0 });
            }
        }
        Ok(raised)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order_id::{EPOCH_SECONDS, compose};

    #[test]
    fn the_highest_id_of_the_day_counts_and_one_that_was_made_otherwise_does_not() {
        let now = Timestamp::from_second(EPOCH_SECONDS + 5 * SECONDS_OF_A_DAY + 7_200).unwrap();
        let mut known = KnownSequences::at(now, &Partition::default());
        let seconds = now.as_second() - EPOCH_SECONDS;
        for sequence in [7, 9, 8, MAX_SEQUENCE] {
            known.note(compose(seconds, sequence).unwrap());
        }
        known.note(compose(seconds - SECONDS_OF_A_DAY, 100).unwrap());
        assert_eq!(known.days.values().copied().collect::<Vec<_>>(), [9, 0], "of today and of tomorrow");
    }
}
