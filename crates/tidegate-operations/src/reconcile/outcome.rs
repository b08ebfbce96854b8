//! What the last look found, kept in Redis for metrics, `doctor` and people.

use std::collections::BTreeMap;

use fred::{clients::Pool, interfaces::KeysInterface};
use serde::{Deserialize, Serialize};
use tidegate_orders::Keys;
use tidegate_stream::StreamError;

use super::{difference::DifferenceKind, report::LookReport};

/// What the last look at all vouchers found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reconciled {
    /// When it ended, in Unix milliseconds by the clock of Redis.
    pub at_ms: i64,
    /// How long it took.
    pub took_ms: u64,
    /// When the last one ended that found everything to agree; None: none did.
    pub clean_at_ms: Option<i64>,
    /// How many differences there are, by the word of their kind.
    pub counts: BTreeMap<String, u64>,
    /// Vouchers whose keys hold something else than they should, or whose sum could not be told.
    pub unread: u64,
    /// By kind, what this look and the one before it found, the lower number: what stands.
    pub standing: BTreeMap<String, u64>,
    /// Units still to be deducted from MySQL's stocks: in flight and dead.
    pub units_to_deduct: i64,
}

impl Reconciled {
    /// The one that is kept; None: there was none, or another version wrote it.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn read(redis: &Pool, keys: &Keys) -> Result<Option<Self>, StreamError> {
        let text: Option<String> = redis.get(keys.reconciled()).await?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// Of a report on all vouchers, after the one that is kept.
    #[must_use]
    pub fn after(before: Option<Self>, report: &LookReport) -> Self {
        let before = before.unwrap_or_default();
        let at_ms = report.at_ms.saturating_add(i64::try_from(report.took_ms).unwrap_or(0));
        let counts: BTreeMap<String, u64> =
            report.counts().into_iter().map(|(kind, count)| (kind.word().to_owned(), count)).collect();
        let stands = |(kind, count): (&String, &u64)| {
            let both = *before.counts.get(kind)?.min(count);
            Some((kind.clone(), both))
        };
        let standing = counts.iter().filter_map(stands).collect();
        let books = report.vouchers.iter().map(|voucher| &voucher.books);
        let unread = books.clone().filter(|books| books.unreadable.is_some() || books.is_unsure).count();
        Self {
            at_ms,
            took_ms: report.took_ms,
            clean_at_ms: if report.is_clean() { Some(at_ms) } else { before.clean_at_ms },
            counts,
            unread: unread as u64,
            standing,
            units_to_deduct: books.map(|books| books.in_flight_units + books.dead_units).sum(),
        }
    }

    /// Keeps it in the place of the one before.
    ///
    /// # Errors
    /// When Redis does not answer, or takes no writes.
    pub async fn write(&self, redis: &Pool, keys: &Keys) -> Result<(), StreamError> {
        let text = serde_json::to_string(self).unwrap_or_default();
        Ok(redis.set::<(), _, _>(keys.reconciled(), text, None, None, false).await?)
    }

    /// How many differences of this kind it found.
    #[must_use]
    pub fn count(&self, kind: DifferenceKind) -> u64 {
        self.counts.get(kind.word()).copied().unwrap_or(0)
    }

    /// The kinds that must not be and that it found, each with its number.
    #[must_use]
    pub fn failures(&self) -> Vec<(DifferenceKind, u64)> {
        let failing = DifferenceKind::ALL.into_iter().filter(|kind| kind.is_failure());
        let counted = failing.map(|kind| (kind, self.count(kind)));
        counted.filter(|(_, count)| *count > 0).collect()
    }
}
