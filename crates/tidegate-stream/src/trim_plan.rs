//! What trimming would delete, and which group keeps it from more. The script `lua/trim.lua` decides when it comes to it;
//! what is said here is the same, as of now.

use std::collections::HashMap;

use fred::{clients::Pool, interfaces::StreamsInterface, types::Value};

use crate::{
    entry::{EntryId, parse_id},
    inspect::{COUNT_PAGE, KeyKind, entries_between, key_kind, pending},
    redis::{RedisError, RedisPool},
    stream::StreamError,
};

/// What trimming would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrimLimit {
    /// Entries before this one may go; None: there is no stream, or no group that says what it needs.
    pub keep_from: Option<EntryId>,
    /// The group that needs the oldest entry, if that lies before the cutoff.
    pub retained_by: Option<Retainer>,
}

/// A group that needs entries which are old enough to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retainer {
    /// Its name.
    pub group: String,
    /// The first entry that it needs.
    pub id: EntryId,
    /// What for.
    pub need: RetainedFor,
}

/// Why a group needs an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetainedFor {
    /// It is pending.
    Pending,
    /// It is the last that was delivered: what comes after it is unread.
    LastDelivered,
}

pub(crate) async fn plan(pool: &Pool, stream: &str, cutoff: EntryId) -> Result<TrimLimit, StreamError> {
    let mut retainers = Vec::new();
    if key_kind(pool, stream).await? != KeyKind::Missing {
        let groups: Vec<HashMap<String, Value>> = pool.xinfo_groups(stream).await.map_err(RedisError::new)?;
        for group in groups {
            retainers.push(retainer(pool, stream, &group).await?);
        }
    }
    let oldest = retainers.into_iter().min_by_key(|retainer| retainer.id);
    let keep_from = oldest.as_ref().map(|retainer| retainer.id.min(cutoff));
    Ok(TrimLimit { keep_from, retained_by: oldest.filter(|retainer| retainer.id < cutoff) })
}

async fn retainer(
    pool: &Pool,
    stream: &str,
    group: &HashMap<String, Value>,
) -> Result<Retainer, StreamError> {
    let name = group.get("name").and_then(Value::as_string).unwrap_or_default();
    let (_, oldest_pending) = pending(pool, stream, &name).await?;
    Ok(match oldest_pending {
        Some(id) => Retainer { group: name, id, need: RetainedFor::Pending },
        None => {
            let id = parse_id(group.get("last-delivered-id").unwrap_or(&Value::Null))?;
            Retainer { group: name, id, need: RetainedFor::LastDelivered }
        }
    })
}

/// Counts the entries before an id, page by page, and ends once there are `enough`; `seen` gets the size of each page.
///
/// # Errors
/// When Redis does not answer, or the key holds no stream.
pub async fn count_before(
    pool: impl Into<RedisPool>,
    stream: &str,
    end: EntryId,
    enough: u64,
    seen: impl Fn(u64),
) -> Result<u64, StreamError> {
    let RedisPool(pool) = pool.into();
    let (mut counted, mut after) = (0, EntryId::MIN);
    // Not `(end`: Redis knows nothing before 0-0, which is where a group stands that has read nothing yet.
    let last = end.previous().to_string();
    loop {
        let page = entries_between(&pool, stream, after, &last, COUNT_PAGE).await?;
        counted += page.len() as u64;
        seen(page.len() as u64);
        match page.last() {
            Some(last) if page.len() as u64 == COUNT_PAGE && counted < enough => after = *last,
            _ => return Ok(counted),
        }
    }
}
