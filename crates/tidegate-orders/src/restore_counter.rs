//! A number that a fleet raises in MySQL and in Redis, and that shows when one of them went back in time.
//!
//! Raising it takes three steps: MySQL gets the number, Redis gets the number, and MySQL notes that Redis has it. So
//! between the steps, and after a crash between them, `confirmed <= Redis <= mark` holds. If Redis is below that, it
//! lost its last entries, or all of them. If it is above, MySQL lost its last transactions. A loss that is younger than
//! the last raise is not detected.

use fred::{error::Error, interfaces::KeysInterface};
use serde::Serialize;
use sqlx::{MySqlConnection, Row};
use tidegate_stream::Script;

use crate::scripts::RedisStore;

/// The bound of the number: Lua compares numbers up to 2^53 exactly. At one raise a second, the number never comes near
/// it.
const MOST: i64 = 1 << 52;

/// Whether the data of Redis and MySQL match each other, or one of them went back in time, for example by a restored
/// backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RestoreState {
    /// The stores match, as far as the numbers show.
    #[default]
    Whole,
    /// Redis has a lower number than before: Redis loaded an older file, a replica lacked some data, or all data is
    /// lost.
    RedisWentBack,
    /// MySQL never raised its counter to the number in Redis: MySQL was restored, or replaced by a server that lacked
    /// some data.
    MySqlWentBack,
}

/// The values of the restore counter, which shows whether Redis or MySQL lost its newest data. 0 for a value that does
/// not exist yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RestoreCounters {
    /// The value in MySQL above which the counter in Redis may not be. A higher value in Redis shows that MySQL lost
    /// data.
    pub mark: i64,
    /// The value in MySQL below which the counter in Redis may not be. A lower value in Redis shows that Redis lost
    /// data.
    pub confirmed: i64,
    /// The value of the counter in Redis.
    pub redis: i64,
}

impl RestoreCounters {
    /// Decides whether the data of Redis and MySQL match each other.
    #[must_use]
    pub const fn state(&self) -> RestoreState {
        if self.redis < self.confirmed {
            RestoreState::RedisWentBack
        } else if self.redis > self.mark {
            RestoreState::MySqlWentBack
        } else {
            RestoreState::Whole
        }
    }
}

/// The reason why the restore counter (a number that shows lost data) could not be read or raised.
#[derive(Debug, thiserror::Error)]
pub enum RestoreCounterError {
    /// Redis does not answer, or refuses the call.
    #[error("Redis: {0}")]
    Redis(#[from] Error),
    /// MySQL does not answer, or refuses the statement.
    #[error("MySQL: {0}")]
    MySql(#[from] sqlx::Error),
}

/// A counter in both stores, shared by all workers of one stream, which shows whether Redis or MySQL lost its newest
/// data.
#[derive(Clone, Debug)]
pub struct RestoreCounter {
    redis: RedisStore,
    raise: Script,
}

impl RestoreCounter {
    /// Creates access to the restore counter of the workers that read the stream of the given store. The counter shows
    /// whether Redis or MySQL lost its newest data.
    #[must_use]
    pub fn new(redis: RedisStore) -> Self {
        let raise =
            Script::new("raise_restore_counter", include_str!("../../../lua/raise_restore_counter.lua"));
        Self { redis, raise }
    }

    /// Reads the values of the restore counter from both stores. Another process may raise the values at the same time.
    /// So the call reads MySQL before and after Redis, and a raise does not look like lost data.
    ///
    /// # Errors
    /// Fails if a store does not answer.
    pub async fn read(&self, mysql: &mut MySqlConnection) -> Result<RestoreCounters, RestoreCounterError> {
        let (_, confirmed) = self.read_mysql(mysql).await?;
        let redis = self.read_redis().await?;
        let (mark, _) = self.read_mysql(mysql).await?;
        Ok(RestoreCounters { mark, confirmed, redis })
    }

    /// Raises the restore counter by one in both stores. If the counter shows that a store lost data, the call does
    /// nothing. Several processes may call this method at the same time.
    ///
    /// # Errors
    /// Fails if a store does not answer; the next call continues.
    pub async fn raise(&self, mysql: &mut MySqlConnection) -> Result<RestoreState, RestoreCounterError> {
        let counters = self.read(mysql).await?;
        if counters.state() != RestoreState::Whole {
            return Ok(counters.state());
        }
        let to = counters.mark + 1;
        let insert = "INSERT INTO tidegate_fleet_mark (stream, mark, confirmed) VALUES (?, 0, 0) \
                      ON DUPLICATE KEY UPDATE mark = mark";
        if counters.mark == 0 {
            sqlx::query(insert).bind(self.stream()).execute(&mut *mysql).await?;
        }
        // Only if nothing has changed since the read: a server that took the place of the other would not hold this
        // number.
        let update = "UPDATE tidegate_fleet_mark SET mark = ? WHERE stream = ? AND mark = ?";
        let update = sqlx::query(update).bind(to).bind(self.stream()).bind(counters.mark);
        if update.execute(&mut *mysql).await?.rows_affected() == 0 {
            return Ok(self.read(mysql).await?.state());
        }
        let args = vec![counters.confirmed.to_string().into(), to.to_string().into()];
        let reply = self
            .raise
            .call(self.redis.pool(), vec![self.redis.keys().fleet().restore_counter()], args)
            .await?;
        let redis: i64 = reply.convert()?;
        if redis < to {
            return Ok(RestoreState::RedisWentBack);
        }
        self.confirm(mysql, to).await?;
        Ok(RestoreState::Whole)
    }

    /// Accepts the present data of both stores, even if one store lost data. All three values of the restore counter
    /// get the same new value, which is higher than all old values.
    ///
    /// # Errors
    /// Fails if a store does not answer; repeat the call.
    pub async fn renew(&self, mysql: &mut MySqlConnection) -> Result<RestoreCounters, RestoreCounterError> {
        let before = self.read(mysql).await?;
        let to = before.mark.max(before.confirmed).max(before.redis) + 1;
        let mark = "INSERT INTO tidegate_fleet_mark (stream, mark, confirmed) VALUES (?, ?, 0) \
                    ON DUPLICATE KEY UPDATE mark = GREATEST(mark, ?)";
        sqlx::query(mark).bind(self.stream()).bind(to).bind(to).execute(&mut *mysql).await?;
        // A worker may have raised the number meanwhile: it is never lowered.
        let args = vec!["0".into(), to.to_string().into()];
        self.raise.call(self.redis.pool(), vec![self.redis.keys().fleet().restore_counter()], args).await?;
        // The key held a value that is no number of ours.
        if self.read_redis().await? < to {
            let key = self.redis.keys().fleet().restore_counter();
            self.redis.pool().set::<(), _, _>(key, to, None, None, false).await?;
        }
        self.confirm(mysql, to).await?;
        self.read(mysql).await
    }

    /// Notes in MySQL that Redis has this number.
    async fn confirm(&self, mysql: &mut MySqlConnection, number: i64) -> sqlx::Result<()> {
        let sql = "UPDATE tidegate_fleet_mark SET confirmed = GREATEST(confirmed, ?) WHERE stream = ? AND mark >= ?";
        sqlx::query(sql).bind(number).bind(self.stream()).bind(number).execute(mysql).await?;
        Ok(())
    }

    async fn read_mysql(&self, mysql: &mut MySqlConnection) -> Result<(i64, i64), sqlx::Error> {
        let sql = "SELECT mark, confirmed FROM tidegate_fleet_mark WHERE stream = ?";
        let row = sqlx::query(sql).bind(self.stream()).fetch_optional(mysql).await?;
        row.map_or(Ok((0, 0)), |row| Ok((row.try_get(0)?, row.try_get(1)?)))
    }

    fn stream(&self) -> &str {
        &self.redis.inspector().names().stream
    }

    /// Reads the number in Redis. A value that is no number of ours reads as 0.
    async fn read_redis(&self) -> Result<i64, Error> {
        let value: Option<String> =
            self.redis.pool().get(self.redis.keys().fleet().restore_counter()).await?;
        let mark = value.and_then(|value| value.parse().ok());
        Ok(mark.filter(|mark| (0..MOST).contains(mark)).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_went_back_shows_in_the_numbers_and_a_crash_between_two_steps_does_not() {
        use RestoreState::{MySqlWentBack, RedisWentBack, Whole};
        let table = [
            // mark, confirmed, Redis
            ((0, 0, 0), Whole),         // nothing was raised yet
            ((7, 7, 7), Whole),         // at rest
            ((8, 7, 7), Whole),         // died after the first step
            ((8, 7, 8), Whole),         // died after the second step
            ((7, 7, 6), RedisWentBack), // one raise is lost
            ((8, 7, 6), RedisWentBack),
            ((7, 7, 0), RedisWentBack), // all of Redis is lost
            ((6, 6, 7), MySqlWentBack), // one raise is lost
            ((8, 6, 9), MySqlWentBack),
            ((0, 0, 7), MySqlWentBack), // all of MySQL is lost
            ((9, 9, 9), Whole),         // an operator has renewed the counter
        ];
        for ((mark, confirmed, redis), expected) in table {
            let counters = RestoreCounters { mark, confirmed, redis };
            assert_eq!(counters.state(), expected, "{counters:?}");
        }
    }
}
