//! `tidegate dead`: looks at the dead letters, puts them back, gives their orders back, deletes them.

pub mod cancel;
mod course;
pub mod drop;
pub mod export;
mod groups;
mod letter;
pub mod list;
pub mod requeue;
mod selection;
pub mod show;

use std::{cmp::Reverse, collections::BTreeMap};

use fred::clients::Pool;
use tidegate_orders::{DeadLetters, Keys};
use tidegate_stream::{EntryId, StreamError};

use crate::config::Settings;

/// Letters that are read for a first impression.
const GLANCED_AT: u16 = 100;
/// Reasons that are named in it.
const NAMED_REASONS: usize = 5;

/// The door to them.
pub fn door(settings: &Settings, redis: &Pool) -> DeadLetters {
    DeadLetters::new(redis.clone(), Keys::new(settings.keys.clone()), settings.stream_names())
}

/// Why the oldest letters died, in few words: `2 unknown_voucher, 1 bad_value`.
///
/// # Errors
/// When Redis does not answer, or the key holds no stream.
pub async fn oldest_reasons(settings: &Settings, redis: &Pool) -> Result<String, StreamError> {
    let letters = door(settings, redis).page((EntryId::MIN, EntryId::MAX), GLANCED_AT).await?;
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for letter in &letters {
        *counts.entry(letter::plain(letter::reason_of(letter))).or_default() += 1;
    }
    let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, letters)| Reverse(*letters));
    let named: Vec<String> =
        counts.iter().take(NAMED_REASONS).map(|(reason, letters)| format!("{letters} {reason}")).collect();
    let others = if counts.len() > NAMED_REASONS { ", and others" } else { "" };
    let of = if letters.len() == usize::from(GLANCED_AT) { "of the oldest 100, " } else { "" };
    Ok(format!("{of}{}{others}", named.join(", ")))
}
