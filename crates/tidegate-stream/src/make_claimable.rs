//! A command that makes entries of one consumer claimable at once, instead of after the usual idle time.

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

/// Returns whether an entry with the given idle time may be claimed at once, because [`MakeClaimable`] changed its idle
/// time.
#[must_use]
pub const fn is_claimable(idle_ms: u64) -> bool {
    idle_ms > TEN_YEARS_MS
}

/// A command that lets other consumers claim pending entries at once. The entries keep their delivery counts, and keep
/// their consumer until another consumer claims them.
#[derive(Clone, Debug)]
pub struct MakeClaimable {
    pool: Pool,
    names: StreamNames,
    script: ScriptSource,
}

/// The consumer whose entries others may claim at once, and the conditions for claiming these entries.
#[derive(Clone, Debug)]
pub struct Holder {
    /// The name of the consumer that holds the entries.
    pub consumer: String,
    /// The key that exists while the process of the consumer lives. If the key exists, no other consumer may claim an
    /// entry. None: the command does not check whether the process lives.
    pub heartbeat: Option<RedisKey>,
    /// The smallest time since the delivery of an entry, in milliseconds. Entries that were delivered more recently
    /// stay with their consumer, because a worker may be handling them.
    pub young_ms: u64,
}

/// The result of making one page of a consumer's pending entries claimable by others at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClaimableStep {
    /// The last entry that the call handled. None: no entries are left.
    pub last: Option<EntryId>,
    /// The number of entries that other consumers may claim at once because of this call.
    pub offered: u64,
    /// The number of entries that other consumers could claim already before this call.
    pub before: u64,
    /// The number of entries that were delivered so recently that others may not claim them yet.
    pub young: u64,
    /// The number of pending entries without payload, which workers acknowledge later.
    pub gone: u64,
}

impl MakeClaimable {
    /// Creates the command for the consumer group of `names`.
    #[must_use]
    pub fn new(pool: impl Into<RedisPool>, names: StreamNames) -> Self {
        Self {
            pool: pool.into().0,
            names,
            script: ScriptSource::new("make_claimable", include_str!("../lua/make_claimable.lua")),
        }
    }

    /// Lets others claim some entries of the consumer `holder` at once, in the order of their ids from the entry after
    /// `after`. None: the process of the consumer lives, so nothing changed.
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
