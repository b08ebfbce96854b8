//! The clock of Redis, which leases, claims and ages go by, and what is to be done when somebody sets it.

use std::time::{Duration, Instant};

use fred::{clients::Pool, types::Value};

use crate::{
    entry::bad_reply,
    inspect::server_time_ms,
    redis::RedisPool,
    script::ScriptSource,
    stream::{StreamError, StreamNames},
};

/// A clock that is kept right by being slowed down or hurried stays below this between two looks.
const TOLERANCE_MS: i64 = 1_000;
/// Entries that one call looks at, so that it is short.
const PAGE: usize = 1_000;

/// Compares the clock of Redis with this process' own, which nobody can set.
#[derive(Debug)]
pub struct ServerClock {
    pool: Pool,
    names: StreamNames,
    reset_delivery_times: ScriptSource,
    last: Option<Look>,
}

/// What Redis said, and between which moments of our own.
#[derive(Clone, Copy, Debug)]
struct Look {
    asked: Instant,
    answered: Instant,
    server_ms: i64,
}

impl ServerClock {
    /// That of the Redis behind `pool`, where the stream of `names` is.
    #[must_use]
    pub fn new(pool: impl Into<RedisPool>, names: StreamNames) -> Self {
        let reset_delivery_times = ScriptSource::new("reset_delivery_times", include_str!("../lua/reset_delivery_times.lua"));
        Self { pool: pool.into().0, names, reset_delivery_times, last: None }
    }

    /// Looks once. Says so when the clock was set since the last look; when it was set back, or may have been before
    /// the first look, lets entries that were delivered in the future be claimed as others are.
    ///
    /// # Errors
    /// When Redis does not answer; the next look does what this one has not done.
    pub async fn run_once(&mut self) -> Result<(), StreamError> {
        let asked = Instant::now();
        let server_ms =
            i64::try_from(server_time_ms(RedisPool(self.pool.clone())).await?).unwrap_or(i64::MAX);
        let look = Look { asked, answered: Instant::now(), server_ms };
        let jump_ms = self.last.map(|last| jump_ms(last, look));
        match jump_ms {
            Some(back) if back < -TOLERANCE_MS => {
                tracing::warn!(by_ms = -back, "the clock of Redis was set back: ages are wrong by as much")
            }
            Some(ahead) if ahead > TOLERANCE_MS => tracing::warn!(
                by_ms = ahead,
                "the clock of Redis was set ahead, or this process slept: leases have ended, entries in progress may be claimed"
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
            // Those of this very millisecond are among them.
            tracing::debug!(reset, "entries that were delivered in the future can be claimed like others");
        }
        Ok(())
    }
}

/// By how much the clock went ahead (or, negative, back) of what the time between two looks explains.
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
