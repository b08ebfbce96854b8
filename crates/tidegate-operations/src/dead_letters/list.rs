//! Lists dead letters: counts of all by reason and voucher, and the newest letters.

use std::collections::VecDeque;

use anyhow::Context;
use serde::Serialize;
use tidegate_compare::Progress;
use tidegate_orders::DeadLetters;

use super::{
    groups::{LetterCounter, LetterCounts},
    letter::LetterSummary,
    selection::LetterSelection,
};

/// The counts of the selected dead letters, and the newest selected letters.
#[derive(Clone, Debug, Serialize)]
pub struct LetterList {
    /// The key of the stream that holds the dead letters.
    pub stream: String,
    /// The counts of all selected letters.
    #[serde(flatten)]
    pub counts: LetterCounts,
    /// The newest of the selected letters, sorted from new to old.
    pub newest: VecDeque<LetterSummary>,
}

/// Counts the selected dead letters, and reads the newest `limit` letters.
///
/// # Errors
/// If Redis does not answer, or the key holds no stream.
pub async fn list(
    dead: &DeadLetters,
    selection: LetterSelection,
    limit: usize,
    progress: &dyn Progress,
) -> anyhow::Result<LetterList> {
    let all = dead.count().await.context("Failed to read the dead letters")?;
    let selection = selection.up_to_now(dead).await?;
    progress.expect(all, "letters read");
    let (mut counter, mut newest) = (LetterCounter::default(), VecDeque::new());
    let mut pages = selection.pages(dead);
    while let Some(page) = pages.next().await.context("Failed to read the dead letters")? {
        progress.add(page.looked_at);
        for letter in &page.letters {
            counter.add(dead.fields(), letter);
            newest.push_front(LetterSummary::of(dead.fields(), letter));
            newest.truncate(limit);
        }
    }
    Ok(LetterList { stream: dead.stream_name().to_owned(), counts: counter.counts(), newest })
}
