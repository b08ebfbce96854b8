//! The counters of order ids after a loss of data: raised above all ids that anybody still knows, so that none is given out twice.

use std::collections::BTreeMap;

use fred::{interfaces::KeysInterface, prelude::FredResult};
use jiff::Timestamp;
use serde::Serialize;
use sqlx::MySqlPool;

use super::{MAX_SEQUENCE, SECONDS_OF_A_DAY, day_of, day_text, decompose, ids_of};
use crate::{
    gate::RedisStore,
    order::OrderId,
    partition::{MOST_PARTITIONS, Partition},
    records::{Records, RecordsError},
};

/// So many ids have to be left for the rest of a day. A higher sequence is of a producer that makes its ids in another way.
const LEFT_FOR_THE_DAY: i64 = 1 << 24;
/// So many ids may be in the hands of producers that took them before a counter was left behind.
const IN_PROGRESS: i64 = 1 << 12;
/// Ids of the day before may be given out by clocks that are behind, for so long.
const AFTER_MIDNIGHT_S: i64 = 3_600;

/// The highest sequences that are known, of the days that ids are given out on about now.
#[derive(Clone, Debug)]
pub struct KnownSequences {
    /// Days since 1970-01-01, and the highest sequence.
    days: BTreeMap<i64, i64>,
    today: i64,
    known_today: u64,
    partition: Partition,
}

/// The counter of a day, before and after it was raised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RaisedCounter {
    /// The day, `yyyy:MM:dd`.
    pub day: String,
    /// What Redis had; None: nothing.
    pub before: Option<i64>,
    /// What it has at least from now on.
    pub now: i64,
    /// It was behind what is known: it went back, or never counted these ids.
    pub raised: bool,
}

impl KnownSequences {
    /// Those that MySQL has, of the ids that a partition gives out. `now` tells the days.
    ///
    /// # Errors
    /// When MySQL does not answer.
    pub async fn in_mysql(
        now: Timestamp,
        partition: &Partition,
        mysql: &MySqlPool,
    ) -> Result<Self, RecordsError> {
        let mut known = Self::at(now, partition);
        known.read(mysql).await?;
        Ok(known)
    }

    /// None is known yet, of the ids that a partition gives out. `now` tells the days.
    fn at(now: Timestamp, partition: &Partition) -> Self {
        let seconds = now.as_second();
        let today = seconds.div_euclid(SECONDS_OF_A_DAY);
        let is_night = seconds.rem_euclid(SECONDS_OF_A_DAY) < AFTER_MIDNIGHT_S;
        let first = if is_night { today - 1 } else { today };
        let days = (first..=today + 1).map(|day| (day, 0)).collect();
        Self { days, today, known_today: 0, partition: partition.clone() }
    }

    /// Takes note of an id. One that leaves too few for its day was made in another way, and is passed over.
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

    /// The partition that gives out these ids.
    #[must_use]
    pub const fn partition(&self) -> &Partition {
        &self.partition
    }

    /// How many ids of today some side knows, by what was read of MySQL and said by [`KnownSequences::add_known`].
    #[must_use]
    pub const fn known_today(&self) -> u64 {
        self.known_today
    }

    /// An order that MySQL does not know.
    pub fn add_known(&mut self, order: OrderId) {
        let is_own = self.partition.number(decompose(order).1).is_some();
        self.known_today += u64::from(day_of(order) == self.today && is_own);
        self.note(order);
    }

    /// Takes note of all ids that the counters of another partition have given out, perhaps one of another list of partitions, and
    /// of so many more as its producers may have in progress: what this partition gives out is above them.
    ///
    /// # Errors
    /// When Redis does not answer, or a counter is no number.
    pub async fn read_counters(&mut self, redis: &RedisStore) -> FredResult<()> {
        for (day, known) in &mut self.days {
            let given: Option<i64> = redis.pool().get(redis.keys().order_id(&day_text(*day))).await?;
            let Some(given) = given else { continue };
            let highest = redis.keys().partition().sequence(given + IN_PROGRESS);
            // The sequence as it would be here, or the next above it.
            let number = match self.partition.tag() {
                None => highest,
                Some(_) => highest / i64::try_from(MOST_PARTITIONS).unwrap_or(i64::MAX) + 1,
            };
            *known = number.max(*known);
        }
        Ok(())
    }

    /// Takes note of all ids of these days that MySQL has. Reads the orders of these days.
    ///
    /// # Errors
    /// When MySQL does not answer.
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

    /// Raises the counters in Redis to what is known, where they are lower. None is ever lowered.
    ///
    /// # Errors
    /// When Redis does not answer, or a counter is no number.
    pub async fn raise(&self, redis: &RedisStore) -> FredResult<Vec<RaisedCounter>> {
        let mut raised = Vec::new();
        for (day, known) in &self.days {
            let key = redis.keys().order_id(&day_text(*day));
            let before: Option<i64> = redis.pool().get(&key).await?;
            let missing = known - before.unwrap_or(0);
            // Sent twice, or beside a producer, it leaves a gap, which is harmless.
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
