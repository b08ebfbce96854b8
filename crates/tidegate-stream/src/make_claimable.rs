//! Making the entries of one consumer claimable for all workers at once, instead of after the usual idle time.

use fred::{clients::Pool, types::Value};

use crate::{
    entry::{EntryId, bad_reply, parse_id},
    redis::{RedisKey, RedisPool},
    script::ScriptSource,
    stream::{StreamError, StreamNames},
};

/// The number of entries that one call handles. It is small, because Redis has to fetch each entry to see whether it
/// exists, and entries may be large.
const PAGE: u16 = 200;

/// The idle time above which an entry was made claimable by this command; real idle times are shorter.
/// `lua/make_claimable.lua` has the same number.
const TEN_YEARS_MS: u64 = 10 * 365 * 24 * 60 * 60 * 1000;

/// Returns whether an entry with this idle time was made claimable, and no consumer has claimed it since.
#[must_use]
pub const fn is_claimable(idle_ms: u64) -> bool {
    idle_ms > TEN_YEARS_MS
}

/// A command that makes pending entries claimable. They keep their consumer until another one claims them, and their
/// number of deliveries.
#[derive(Clone, Debug)]
pub struct MakeClaimable {
    pool: Pool,
    names: StreamNames,
    script: ScriptSource,
}

/// The consumer whose entries are made claimable, and the conditions.
#[derive(Clone, Debug)]
pub struct Holder {
    /// The name of the consumer.
    pub consumer: String,
    /// The key that exists while the process of the consumer lives; then no entry is made claimable. None: the command
    /// does not check whether the process lives.
    pub heartbeat: Option<RedisKey>,
    /// Entries in progress that were delivered less than this many milliseconds ago are not made claimable: a worker
    /// may be handling them.
    pub young_ms: u64,
}

/// The result for one page of a consumer's pending entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClaimableStep {
    /// The last entry that the call handled; None if none was left.
    pub last: Option<EntryId>,
    /// The number of entries that this call made claimable.
    pub offered: u64,
    /// The number of entries that were claimable before, and are not claimed yet.
    pub before: u64,
    /// The number of entries that were delivered too recently.
    pub young: u64,
    /// The number of entries without payload: the scan of a worker acknowledges them.
    pub gone: u64,
}

impl MakeClaimable {
    /// Creates the command for the group of `names`.
    #[must_use]
    pub fn new(pool: impl Into<RedisPool>, names: StreamNames) -> Self {
        Self {
            pool: pool.into().0,
            names,
            script: ScriptSource::new("make_claimable", include_str!("../lua/make_claimable.lua")),
        }
    }

    /// Makes some of the entries of `holder` claimable that come after `after`. None: the process of the consumer
    /// lives, and nothing was done.
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
