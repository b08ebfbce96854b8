//! What died, and why: all letters counted, and the newest of them.

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

/// The selected letters.
#[derive(Clone, Debug, Serialize)]
pub struct LetterList {
    /// The stream in which they stand.
    pub stream: String,
    /// All of them.
    #[serde(flatten)]
    pub counts: LetterCounts,
    /// The newest of them, which come first.
    pub newest: VecDeque<LetterSummary>,
}

/// Counts the selected letters, and reads the newest `limit` of them.
///
/// # Errors
/// When Redis does not answer, or the key holds no stream.
pub async fn list(
    dead: &DeadLetters,
    selection: LetterSelection,
    limit: usize,
    progress: &dyn Progress,
) -> anyhow::Result<LetterList> {
    let all = dead.count().await.context("Failed to read the dead letters")?;
    let selection = selection.up_to_now(dead).await?;
    progress.expect(all, "letters looked at");
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
