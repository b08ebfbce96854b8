//! Dead letters: counting, listing and reading them, and the three ways in which an operator ends them.

mod buried_events;
mod cancel;
mod change;
mod drop;
mod groups;
mod letter;
mod list;
mod outcome;
mod plan;
mod report;
mod request;
mod requeue;
mod selection;

use std::{cmp::Reverse, collections::BTreeMap};

use tidegate_compare::text::printable;
use tidegate_orders::{DeadLetters, RedisStore};
use tidegate_stream::{EntryId, StreamError};

pub(crate) use self::request::REQUEUE_LIMIT;
pub use self::{
    change::LetterChange,
    groups::{LetterCounts, LetterGroup},
    letter::{FullLetter, LetterSummary, reason_of},
    list::{LetterList, list},
    outcome::{EndedLetter, LetterBlocker, RetainedGroup, RetainedLetters},
    plan::{LetterPlan, PredictedFailures, ReasonCount, VoucherRelease},
    report::LetterReport,
    request::{LetterAction, LetterRequest},
    selection::{LetterPage, LetterPages, LetterSelection},
};

/// The letters that are read for a short summary.
const SAMPLE: u16 = 100;
/// The reasons that the summary names.
const NAMED_REASONS: usize = 5;

/// Counts the reasons why the oldest dead letters were buried, and formats the counts: `2 unknown_voucher, 1
/// bad_value`.
///
/// # Errors
/// If Redis does not answer, or the key holds no stream.
pub async fn oldest_reasons(redis: &RedisStore) -> Result<String, StreamError> {
    let letters = DeadLetters::new(redis.clone()).page((EntryId::MIN, EntryId::MAX), SAMPLE).await?;
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for letter in &letters {
        *counts.entry(printable(reason_of(letter))).or_default() += 1;
    }
    let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, letters)| Reverse(*letters));
    let named: Vec<String> =
        counts.iter().take(NAMED_REASONS).map(|(reason, letters)| format!("{letters} {reason}")).collect();
    let others = if counts.len() > NAMED_REASONS { ", and others" } else { "" };
    let of = if letters.len() == usize::from(SAMPLE) { "of the oldest 100, " } else { "" };
    Ok(format!("{of}{}{others}", named.join(", ")))
}
