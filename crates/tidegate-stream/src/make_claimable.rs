//! Offering what one consumer holds to all workers, so that nobody waits until it has lain idle for long enough.

use fred::{clients::Pool, types::Value};

use crate::{
    entry::{EntryId, bad_reply, parse_id},
    redis::{RedisKey, RedisPool},
    script::ScriptSource,
    stream::{StreamError, StreamNames},
};

/// Entries that one call looks at: few, because Redis has to fetch each to see whether it is there, and they may
/// be large.
const PAGE: u16 = 200;

/// An idle time beyond this is none: the entry was offered. `lua/make_claimable.lua` has the same number.
const TEN_YEARS_MS: u64 = 10 * 365 * 24 * 60 * 60 * 1000;

/// Whether an entry that was idle for so long is claimable: nobody has taken it since.
#[must_use]
pub const fn is_claimable(idle_ms: u64) -> bool {
    idle_ms > TEN_YEARS_MS
}

/// Offers pending entries. They keep their owner until somebody claims them, and their number of deliveries.
#[derive(Clone, Debug)]
pub struct MakeClaimable {
    pool: Pool,
    names: StreamNames,
    script: ScriptSource,
}

/// Whose entries are offered.
#[derive(Clone, Debug)]
pub struct Holder {
    /// Its name.
    pub consumer: String,
    /// The key that exists while its process lives, at which nothing is offered. None: even if it lives.
    pub heartbeat: Option<RedisKey>,
    /// Entries in progress that were delivered less than so long ago are not offered: somebody may be at work on them.
    pub young_ms: u64,
}

/// What became of a page of a consumer's pending entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClaimableStep {
    /// The last entry that was looked at; None: there was none left.
    pub last: Option<EntryId>,
    /// Offered now.
    pub offered: u64,
    /// Offered before, and not taken yet.
    pub before: u64,
    /// Delivered too lately.
    pub young: u64,
    /// Without payload: a worker's scan acknowledges them.
    pub gone: u64,
}

impl MakeClaimable {
    /// Offers entries of the group of `names`.
    #[must_use]
    pub fn new(pool: impl Into<RedisPool>, names: StreamNames) -> Self {
        Self {
            pool: pool.into().0,
            names,
            script: ScriptSource::new("make_claimable", include_str!("../lua/make_claimable.lua")),
        }
    }

    /// Offers some of the entries of `holder` that come after `after`. None: its process lives, nothing was done.
    ///
    /// # Errors
    /// When Redis does not answer, or stream or group are missing.
    pub async fn step(&self, holder: &Holder, after: EntryId) -> Result<Option<ClaimableStep>, StreamError> {
        let mut keys = vec![self.names.stream.as_str().into()];
        keys.extend(holder.heartbeat.clone().map(RedisKey::into_key));
        let args: Vec<Value> = vec![
            self.names.group.as_str().into(),
            holder.consumer.as_str().into(),
            format!("({after}").into(),
            i64::from(PAGE).into(),
            holder.young_ms.to_string().into(),
        ];
        let reply = self.script.call(&self.pool, keys, args).await?;
        match &reply {
            Value::Integer(0) => Ok(None),
            Value::Array(parts) if parts.len() == 5 => Ok(Some(offer(parts)?)),
            other => Err(bad_reply("[last id, four numbers]", other).into()),
        }
    }
}

fn offer(parts: &[Value]) -> Result<ClaimableStep, StreamError> {
    let last = if parts[0].as_bytes() == Some(b"") { None } else { Some(parse_id(&parts[0])?) };
    let number = |at: usize| parts[at].as_u64().unwrap_or_default();
    Ok(ClaimableStep { last, offered: number(1), before: number(2), young: number(3), gone: number(4) })
}
