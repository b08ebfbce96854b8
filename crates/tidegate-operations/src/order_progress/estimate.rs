//! Estimates when a waiting order is handled. The functions are pure.

use serde::Serialize;
use tidegate_stream::Backlog;

use crate::order_show::{EntryLocation, EntryRecord};

/// The estimated time until workers write a waiting order, calculated from the arrival times of entries and from the
/// rate at which workers read entries.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueEstimate {
    /// The position of the order's entry among the waiting entries.
    pub place: QueuePosition,
    /// The approximate number of entries that workers read before the order's entry; None: Redis cannot count these
    /// entries.
    pub ahead: Option<u64>,
    /// The approximate number of seconds until a worker handles the order. None: this time is unknown, or workers read
    /// no entries.
    pub expected_s: Option<f64>,
    /// The number of entries that workers currently read per second; None: the reading rate was measured only once so
    /// far.
    pub read_per_s: Option<f64>,
    /// Whether all workers are paused.
    pub paused: bool,
}

/// The position of a waiting order's entry: not read, being handled by a worker, or put off to a later try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QueuePosition {
    /// The entry is in the stream, and no worker has read it.
    Unread,
    /// The entry is in progress in a worker.
    InProgress,
    /// The entry is pending at a worker that retries it later, or at a dead worker.
    SetAside,
}

impl QueueEstimate {
    /// Estimates when a worker handles the entry of an order; None: a worker has already handled the entry.
    #[must_use]
    pub fn of(entry: &EntryRecord, backlog: &Backlog, read_per_s: Option<f64>, paused: bool) -> Option<Self> {
        let (place, ahead) = match entry.state {
            EntryLocation::Undelivered => (QueuePosition::Unread, backlog.ahead_of(entry.id)),
            EntryLocation::Pending { alive: true, deliveries: 1.., .. } => {
                (QueuePosition::InProgress, Some(0))
            }
            EntryLocation::Pending { .. } => (QueuePosition::SetAside, Some(0)),
            EntryLocation::Settled => return None,
        };
        let expected_s = match place {
            QueuePosition::Unread => ahead.zip(read_per_s).and_then(|(ahead, rate)| seconds_for(ahead, rate)),
            QueuePosition::InProgress => Some(0.0),
            QueuePosition::SetAside => None,
        };
        let expected_s = expected_s.filter(|_| !paused || place == QueuePosition::InProgress);
        Some(Self { place, ahead, expected_s, read_per_s, paused })
    }
}

/// Returns the seconds until workers that read `rate` entries per second read the entry behind `ahead` others. None:
/// workers read nothing.
#[must_use]
pub fn seconds_for(ahead: u64, rate: f64) -> Option<f64> {
    let entries = f64::from(u32::try_from(ahead).unwrap_or(u32::MAX)) + 1.0;
    // The result has tenths of a second: more digits would not be accurate.
    (rate > 0.0).then(|| (entries / rate * 10.0).ceil() / 10.0)
}

#[cfg(test)]
mod tests {
    use tidegate_stream::EntryId;

    use super::*;

    fn entry(ms: u64, state: EntryLocation) -> EntryRecord {
        EntryRecord { id: EntryId { ms, seq: 0 }, content: None, state }
    }

    fn pending(alive: bool, deliveries: u64) -> EntryLocation {
        EntryLocation::Pending { consumer: "w-0".to_owned(), alive, idle_ms: None, deliveries, crashes: 0 }
    }

    fn backlog(lag: Option<u64>) -> Backlog {
        let id = |ms| EntryId { ms, seq: 0 };
        Backlog {
            now_ms: 3_000,
            last_added: id(2_000),
            last_delivered: id(500),
            oldest_undelivered: Some(id(1_000)),
            lag,
            entries_read: Some(7),
        }
    }

    fn unread(lag: Option<u64>, rate: Option<f64>, paused: bool) -> QueueEstimate {
        let entry = entry(1_500, EntryLocation::Undelivered);
        QueueEstimate::of(&entry, &backlog(lag), rate, paused).unwrap()
    }

    #[test]
    fn whoever_stands_behind_others_waits_for_them() {
        let guess = unread(Some(101), Some(10.0), false);
        assert_eq!(
            (guess.place, guess.ahead, guess.expected_s),
            (QueuePosition::Unread, Some(50), Some(5.1))
        );
        let last = QueueEstimate::of(
            &entry(2_000, EntryLocation::Undelivered),
            &backlog(Some(101)),
            Some(1e6),
            false,
        );
        assert_eq!(last.unwrap().expected_s, Some(0.1), "never less than a tenth");
    }

    #[test]
    fn nothing_is_guessed_that_nobody_can_know() {
        for (lag, rate, paused) in [
            (None, Some(10.0), false),
            (Some(101), None, false),
            (Some(101), Some(0.0), false),
            (Some(101), Some(10.0), true),
        ] {
            assert_eq!(unread(lag, rate, paused).expected_s, None, "{lag:?} {rate:?} {paused}");
        }
        assert_eq!(unread(Some(101), None, true).ahead, Some(50), "the place is known all the same");
        let empty = Backlog { oldest_undelivered: None, ..backlog(Some(0)) };
        let guess =
            QueueEstimate::of(&entry(1_500, EntryLocation::Undelivered), &empty, Some(1.0), false).unwrap();
        assert_eq!((guess.ahead, guess.expected_s), (None, None), "an empty stream");
    }

    #[test]
    fn what_is_read_stands_behind_nobody_and_only_what_is_in_progress_is_soon_done() {
        let of = |state, paused| {
            let guess =
                QueueEstimate::of(&entry(400, state), &backlog(Some(101)), Some(1.0), paused).unwrap();
            (guess.place, guess.ahead, guess.expected_s)
        };
        assert_eq!(of(pending(true, 1), false), (QueuePosition::InProgress, Some(0), Some(0.0)));
        assert_eq!(
            of(pending(true, 1), true),
            (QueuePosition::InProgress, Some(0), Some(0.0)),
            "it is finished"
        );
        assert_eq!(of(pending(true, 0), false), (QueuePosition::SetAside, Some(0), None));
        assert_eq!(of(pending(false, 1), false), (QueuePosition::SetAside, Some(0), None));
        assert_eq!(QueueEstimate::of(&entry(400, EntryLocation::Settled), &backlog(None), None, false), None);
    }
}
