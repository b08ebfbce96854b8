//! The pause of all workers: a key in Redis that each worker reads twice a second.

use std::{ops::RangeInclusive, time::Duration};

use fred::{
    interfaces::KeysInterface,
    prelude::FredResult,
    types::{Expiration, SetOptions, Value},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidegate_compare::text::{printable, span};
use tidegate_orders::RedisStore;
use tidegate_stream::{Leases, PauseSwitch, StreamError, server_time_ms};

use crate::change::InvalidInput;

/// The name of the pause of all workers, by which a worker's pause switch distinguishes this pause from other pauses.
pub const FLEET: &str = "fleet";

/// The times that a pause with an end may last. A longer one is a mistake.
const SPANS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(365 * 24 * 3600);
/// The number of characters that are shown of a value that was set manually.
const LONGEST_VALUE: usize = 200;

/// The pause of all workers of a consumer group, as Redis stores it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetPause {
    /// The name of the operator who paused the workers; None: an operator set the key manually.
    pub by: Option<String>,
    /// The time when the pause began, by the clock of Redis.
    pub since: Option<Timestamp>,
    /// The seconds since the pause began.
    pub lasting_s: Option<f64>,
    /// The seconds until the pause ends; None: the pause lasts until an operator resumes the workers.
    pub ends_in_s: Option<f64>,
    /// The reason that the operator gave for the pause; None: the operator gave no reason.
    pub reason: Option<String>,
    /// The value of the key, by which a command detects whether it is still the same pause.
    #[serde(skip)]
    raw: String,
}

/// The value of the key as JSON.
#[derive(Debug, Deserialize, Serialize)]
struct PauseRecord {
    by: String,
    at_ms: i64,
    reason: Option<String>,
}

/// The request to pause all workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetPauseRequest {
    by: String,
    pub(crate) span: Option<Duration>,
    pub(crate) reason: Option<String>,
}

impl FleetPauseRequest {
    /// Creates the request to pause all workers. `by` is the operator. `span` is the length of the pause; None: until
    /// an operator resumes the workers.
    ///
    /// # Errors
    /// If the pause would be too short or too long.
    pub fn new(by: String, span: Option<Duration>, reason: Option<String>) -> Result<Self, InvalidInput> {
        if span.is_some_and(|span| !SPANS.contains(&span)) {
            return Err(InvalidInput("a pause must last at least 1s and at most 365d".to_owned()));
        }
        Ok(Self { by, span, reason })
    }
}

impl FleetPause {
    /// Reads from Redis whether the workers are paused, and if so, by which operator, since when and why.
    ///
    /// # Errors
    /// If Redis does not answer, or the key does not hold a string.
    pub async fn read(redis: &RedisStore) -> Result<Option<Self>, StreamError> {
        let client = redis.pool().next();
        let (raw, left_ms) = tokio::try_join!(
            client.get::<Option<String>, _>(redis.keys().fleet().pause()),
            client.pttl::<i64, _>(redis.keys().fleet().pause())
        )?;
        let Some(raw) = raw else { return Ok(None) };
        let mut pause = Self::parse(raw);
        let now_ms = i64::try_from(server_time_ms(redis.pool()).await?).unwrap_or(i64::MAX);
        let age_ms =
            pause.since.map(|since| u64::try_from(now_ms - since.as_millisecond()).unwrap_or_default());
        pause.lasting_s = age_ms.map(|ms| Duration::from_millis(ms).as_secs_f64());
        pause.ends_in_s = u64::try_from(left_ms).ok().map(|ms| Duration::from_millis(ms).as_secs_f64());
        Ok(Some(pause))
    }

    /// Parses the value of the key. Every value is a pause.
    fn parse(raw: String) -> Self {
        let record = serde_json::from_str::<PauseRecord>(&raw).ok();
        let (by, since, reason) = match record {
            Some(PauseRecord { by, at_ms, reason }) => {
                (Some(printable(&by)), Timestamp::from_millisecond(at_ms).ok(), reason)
            }
            None => (None, None, Some(raw.chars().take(LONGEST_VALUE).collect())),
        };
        let reason = reason.map(|reason| printable(&reason));
        Self { by, since, lasting_s: None, ends_in_s: None, reason, raw }
    }

    /// Formats which operator paused the workers, since when and why: `by alice@shop since 2026-11-20T10:00:00Z (new
    /// disk)`.
    pub fn origin(&self) -> String {
        let by = self.by.as_deref().unwrap_or("an operator who set the key manually");
        let since = self.since.map(|since| format!(" since {}", since.strftime("%Y-%m-%dT%H:%M:%SZ")));
        let reason = self.reason.as_ref().map(|reason| format!(" ({reason})"));
        format!("by {by}{}{}", since.unwrap_or_default(), reason.unwrap_or_default())
    }

    /// Formats when the pause of all workers ends: `the pause ends in 9 min 30 s`, or `until it is resumed`.
    pub fn end(&self) -> String {
        self.ends_in_s.map_or_else(
            || "until it is resumed".to_owned(),
            |left_s| format!("the pause ends in {}", span(Duration::from_secs_f64(left_s.max(0.0)))),
        )
    }
}

/// Pauses all workers, or replaces the earlier pause `before`. Returns false if `before` is None, but another operator
/// has paused the workers in the meantime.
///
/// # Errors
/// If Redis does not answer or refuses; the workers may be paused then.
pub async fn begin(
    redis: &RedisStore,
    request: &FleetPauseRequest,
    before: Option<&FleetPause>,
) -> anyhow::Result<bool> {
    let at_ms = i64::try_from(server_time_ms(redis.pool()).await?).unwrap_or(i64::MAX);
    let record = PauseRecord { by: request.by.clone(), at_ms, reason: request.reason.clone() };
    let value = serde_json::to_string(&record)?;
    let expiry = request.span.map(|span| Expiration::PX(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)));
    // A single command replaces a pause. If there were a gap, workers would read entries in it.
    let only_new = before.is_none().then_some(SetOptions::NX);
    let key = redis.keys().fleet().pause();
    let set: Value = redis.pool().set(&key, value.clone(), expiry, only_new, false).await?;
    // The client sends the command again if its reply was lost. It then finds its own pause.
    Ok(!set.is_null() || redis.pool().get::<Option<String>, _>(key).await?.as_ref() == Some(&value))
}

/// Ends the given pause of all workers. Returns false if Redis stores another pause now.
///
/// # Errors
/// If Redis does not answer; the pause may be over then.
pub async fn end(redis: &RedisStore, pause: &FleetPause) -> FredResult<bool> {
    let ended = Leases::new(redis).end(vec![redis.keys().fleet().pause()], &pause.raw).await? == 1;
    // The client sends the command again if its reply was lost. It then finds no pause.
    Ok(ended || !redis.pool().exists::<bool, _>(redis.keys().fleet().pause()).await?)
}

/// Reads from Redis whether all workers are paused, and pauses or resumes the worker of this process.
///
/// # Errors
/// If Redis does not answer; the switch then stays as it was.
pub async fn update_switch(redis: &RedisStore, pause_switch: &PauseSwitch) -> FredResult<()> {
    match redis.pool().get::<Option<String>, _>(redis.keys().fleet().pause()).await? {
        Some(raw) => pause_switch.pause(FLEET, &FleetPause::parse(raw).origin()),
        None => pause_switch.resume(FLEET),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_stands_in_the_key_is_a_pause_and_steers_no_terminal() {
        let ours = FleetPause::parse(
            r#"{"by":"alice@shop","at_ms":1795168800000,"reason":"new \u001b[2Jdisk"}"#.into(),
        );
        assert_eq!(ours.origin(), "by alice@shop since 2026-11-20T10:00:00Z (new  [2Jdisk)");
        assert_eq!(ours.end(), "until it is resumed");
        for by_hand in ["1", "", "{}", "{\"by\":7}"] {
            let pause = FleetPause::parse(by_hand.into());
            assert_eq!(pause.origin(), format!("by an operator who set the key manually ({by_hand})"));
        }
        assert!(FleetPause::parse("x".repeat(10_000)).origin().len() < 300);
    }
}
