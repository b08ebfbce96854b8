//! What trimming would delete, and which group keeps it from more. The script `lua/trim.lua` decides when it comes to it;
//! what is said here is the same, as of now.

use std::collections::HashMap;

use fred::{clients::Pool, interfaces::StreamsInterface, types::Value};

use crate::{
    entry::{EntryId, parse_id},
    inspect::{KeyKind, key_kind, pending},
    redis::RedisError,
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
