//! A preview of pruning: the entries that pruning would delete, and the group that still needs older entries. The
//! script `lua/trim.lua` decides which entries are deleted, and this preview follows the same rules.

use std::collections::HashMap;

use fred::{clients::Pool, interfaces::StreamsInterface, types::Value};

use crate::{
    entry::{EntryId, parse_id},
    inspect::{KeyKind, key_kind, pending},
    redis::RedisError,
    stream::StreamError,
};

/// The result of a preview of pruning: the first entry that stays, and the group that needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PruneLimit {
    /// The first entry to keep. Pruning may delete all earlier entries. None: the stream does not exist, or it is
    /// unknown which entries its groups need.
    pub keep_from: Option<EntryId>,
    /// The group that needs the first kept entry. None: no group needs the entry, which stays because it is within the
    /// retention.
    pub retained_by: Option<Retainer>,
}

/// A group that needs entries that are old enough to be pruned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retainer {
    /// The name of the consumer group.
    pub group: String,
    /// The first entry that the group needs.
    pub id: EntryId,
    /// The reason why the group needs the entry.
    pub need: RetainedFor,
}

/// The reason why a group still needs an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetainedFor {
    /// The entry is pending in the group.
    Pending,
    /// The entry is the last entry that was delivered to the group. The group has not read later entries.
    LastDelivered,
}

pub(crate) async fn plan(pool: &Pool, stream: &str, cutoff: EntryId) -> Result<PruneLimit, StreamError> {
    let mut retainers = Vec::new();
    if key_kind(pool, stream).await? != KeyKind::Missing {
        let groups: Vec<HashMap<String, Value>> = pool.xinfo_groups(stream).await.map_err(RedisError::new)?;
        for group in groups {
            retainers.push(retainer(pool, stream, &group).await?);
        }
    }
    let oldest = retainers.into_iter().min_by_key(|retainer| retainer.id);
    let keep_from = oldest.as_ref().map(|retainer| retainer.id.min(cutoff));
    Ok(PruneLimit { keep_from, retained_by: oldest.filter(|retainer| retainer.id < cutoff) })
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
