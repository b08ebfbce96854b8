//! Supervision of the clock of Redis, which determines leases, claims and ages. If the clock is set, this repairs the
//! delivery times.

use std::time::{Duration, Instant};

use fred::{clients::Pool, types::Value};

use crate::{
    entry::bad_reply,
    inspect::server_time_ms,
    redis::RedisPool,
    script::ScriptSource,
    stream::{StreamError, StreamNames},
};

/// The difference between two checks that a clock which is only slowed down or sped up does not reach.
const TOLERANCE_MS: i64 = 1_000;
/// The number of entries that one call reads, so that it is short.
const PAGE: usize = 1_000;

/// A check whether the clock of the Redis server was set. The check compares that clock with this process's monotonic
/// clock, which no program can set.
#[derive(Debug)]
pub struct ServerClock {
    pool: Pool,
    names: StreamNames,
    reset_delivery_times: ScriptSource,
    last: Option<Look>,
}

/// One reading of the clock of Redis, with the times before and after it by our own clock.
#[derive(Clone, Copy, Debug)]
struct Look {
    asked: Instant,
    answered: Instant,
    server_ms: i64,
}

impl ServerClock {
    /// Creates a clock check for the Redis behind `pool`, which holds the stream of `names`.
    #[must_use]
    pub fn new(pool: impl Into<RedisPool>, names: StreamNames) -> Self {
        let reset_delivery_times =
            ScriptSource::new("reset_delivery_times", include_str!("../lua/reset_delivery_times.lua"));
        Self { pool: pool.into().0, names, reset_delivery_times, last: None }
    }

    /// Checks the clock of Redis once, and logs if the clock was set since the last check. If the clock was set back,
    /// some entries have a delivery time in the future. The call then lets other consumers claim those entries at once.
    /// The first check always lets others claim entries with a delivery time in the future, because the clock may have
    /// been set earlier.
    ///
    /// # Errors
    /// When Redis does not answer; the next check does what this one has not done.
    pub async fn run_once(&mut self) -> Result<(), StreamError> {
        let asked = Instant::now();
        let server_ms =
            i64::try_from(server_time_ms(RedisPool(self.pool.clone())).await?).unwrap_or(i64::MAX);
        let look = Look { asked, answered: Instant::now(), server_ms };
        let jump_ms = self.last.map(|last| jump_ms(last, look));
        match jump_ms {
            Some(back) if back < -TOLERANCE_MS => {
                tracing::warn!(
                    by_ms = -back,
                    "the clock of Redis was set back: ages of entries are too low until the clock catches up"
                )
            }
            Some(ahead) if ahead > TOLERANCE_MS => tracing::warn!(
                by_ms = ahead,
                "the clock of Redis was set ahead, or this process slept: leases have ended, and other consumers may claim entries in progress"
            ),
            _ => {}
        }
        if jump_ms.is_none_or(|jump_ms| jump_ms < -TOLERANCE_MS) {
            self.reset_delivery_times().await?;
        }
        self.last = Some(look);
        Ok(())
    }

    async fn reset_delivery_times(&self) -> Result<(), StreamError> {
        let mut from = "-".to_owned();
        let mut reset = 0;
        loop {
            let keys = vec![self.names.stream.as_str().into()];
            let args: Vec<Value> =
                vec![self.names.group.as_str().into(), from.into(), PAGE.to_string().into()];
            let reply = self.reset_delivery_times.call(&self.pool, keys, args).await?;
            let Ok((last, count)) = reply.clone().convert::<(String, u64)>() else {
                return Err(bad_reply("a last id and a number", &reply).into());
            };
            reset += count;
            if last.is_empty() {
                break;
            }
            from = format!("({last}");
        }
        if reset > 0 {
            // Entries of this very millisecond are among them, so the log level is debug.
            tracing::debug!(
                reset,
                "delivery times in the future were reset, so that consumers can claim the entries"
            );
        }
        Ok(())
    }
}

/// Returns by how much the clock went ahead (or, if negative, back) beyond the time that passed between two checks.
fn jump_ms(last: Look, look: Look) -> i64 {
    let ms = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    let at_least = last.server_ms.saturating_add(ms(look.asked.saturating_duration_since(last.answered)));
    let at_most = last.server_ms.saturating_add(ms(look.answered.saturating_duration_since(last.asked)));
    if look.server_ms < at_least { look.server_ms - at_least } else { (look.server_ms - at_most).max(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_neither_time_nor_the_way_explains_is_a_jump() {
        let began = Instant::now();
        let at = |asked_ms: u64, answered_ms: u64, server_ms| Look {
            asked: began + Duration::from_millis(asked_ms),
            answered: began + Duration::from_millis(answered_ms),
            server_ms,
        };
        let first = at(0, 100, 1_000_000);
        for explained in [1_004_900, 1_005_000, 1_005_100] {
            assert_eq!(jump_ms(first, at(5_000, 5_100, explained)), 0);
        }
        assert_eq!(jump_ms(first, at(5_000, 5_100, 1_005_101)), 1);
        assert_eq!(jump_ms(first, at(5_000, 5_100, 1_004_899)), -1);
        assert_eq!(jump_ms(first, at(5_000, 5_100, 1_004_900 - 3_600_000)), -3_600_000);
    }
}
