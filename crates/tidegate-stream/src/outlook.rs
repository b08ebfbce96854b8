//! What trimming would delete, and which group keeps it from more. The script `lua/trim.lua` decides when it comes to it;
//! what is said here is the same, as of now.

use std::collections::HashMap;

use fred::{clients::Pool, interfaces::StreamsInterface, types::Value};

use crate::{
    entry::{EntryId, parse_id},
    inspect::{COUNT_PAGE, KeyKind, entries_between, key_kind, pending},
    stream::StreamError,
};

/// What trimming would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// Entries before this one may go; None: there is no stream, or no group that says what it needs.
    pub keep_from: Option<EntryId>,
    /// The group that needs the oldest entry, if that lies before the cutoff.
    pub held_by: Option<Hold>,
}

/// A group that needs entries which are old enough to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Its name.
    pub group: String,
    /// The first entry that it needs.
    pub id: EntryId,
    /// What for.
    pub need: Need,
}

/// Why a group needs an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It is pending.
    Pending,
    /// It is the last that was delivered: what comes after it is unread.
    LastDelivered,
}

pub(crate) async fn outlook(pool: &Pool, stream: &str, cutoff: EntryId) -> Result<Outlook, StreamError> {
    let mut holds = Vec::new();
    if key_kind(pool, stream).await? != KeyKind::Missing {
        let groups: Vec<HashMap<String, Value>> = pool.xinfo_groups(stream).await?;
        for group in groups {
            holds.push(hold(pool, stream, &group).await?);
        }
    }
    let oldest = holds.into_iter().min_by_key(|hold| hold.id);
    let keep_from = oldest.as_ref().map(|hold| hold.id.min(cutoff));
    Ok(Outlook { keep_from, held_by: oldest.filter(|hold| hold.id < cutoff) })
}

async fn hold(pool: &Pool, stream: &str, group: &HashMap<String, Value>) -> Result<Hold, StreamError> {
    let name = group.get("name").and_then(Value::as_string).unwrap_or_default();
    let (_, oldest_pending) = pending(pool, stream, &name).await?;
    Ok(match oldest_pending {
        Some(id) => Hold { group: name, id, need: Need::Pending },
        None => {
            let id = parse_id(group.get("last-delivered-id").unwrap_or(&Value::Null))?;
            Hold { group: name, id, need: Need::LastDelivered }
        }
    })
}

/// Counts the entries before an id, page by page, and ends once there are `enough`; `seen` is told of each page.
///
/// # Errors
/// When Redis does not answer, or the key holds no stream.
pub async fn count_before(
    pool: &Pool,
    stream: &str,
    end: EntryId,
    enough: u64,
    seen: impl Fn(u64),
) -> Result<u64, StreamError> {
    let (mut counted, mut after) = (0, EntryId::MIN);
    // Not `(end`: Redis knows nothing before 0-0, which is where a group stands that has read nothing yet.
    let last = end.previous().to_string();
    loop {
        let page = entries_between(pool, stream, after, &last, COUNT_PAGE).await?;
        counted += page.len() as u64;
        seen(page.len() as u64);
        match page.last() {
            Some(last) if page.len() as u64 == COUNT_PAGE && counted < enough => after = *last,
            _ => return Ok(counted),
        }
    }
}
