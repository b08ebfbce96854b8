//! The position of a group in its stream, and its read rate: the input for an estimate of when an entry will be
//! handled.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use fred::types::Value;

use crate::{
    entry::{EntryId, parse_id},
    group_inspector::GroupInspector,
    inspect::server_time_ms,
    inspector::field,
    stream::StreamError,
};

/// The time span over which a rate is measured, if the backlog is read often enough.
const WINDOW: Duration = Duration::from_secs(5);
/// The greatest age of a sample that still counts for the present rate.
const OLDEST: Duration = Duration::from_secs(30);
/// The least time between two samples. In a shorter time, the rate would depend on whether one batch more was read.
const CLOSEST: Duration = Duration::from_millis(400);

/// The position of a consumer group in its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPosition {
    /// The id of the last entry that was delivered to the group.
    pub last_delivered: EntryId,
    /// The id of the last entry that was ever added to the stream.
    pub last_added: EntryId,
}

/// The number of entries that a consumer group has read, and the number that it has not read, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// The time by the server's clock, in Unix milliseconds.
    pub now_ms: u64,
    /// The id of the last entry that was ever added to the stream.
    pub last_added: EntryId,
    /// The id of the last entry that was delivered to the group.
    pub last_delivered: EntryId,
    /// The id of the first entry that no consumer has read yet. None: all entries were read.
    pub oldest_undelivered: Option<EntryId>,
    /// The number of entries that are not delivered yet. None: the server does not know the number, because the server
    /// is older than Redis 7, or because of an XDEL.
    pub lag: Option<u64>,
    /// The number of entries that were ever delivered to the group. None: the server does not know the number, because
    /// the server is older than Redis 7, or because of an XDEL.
    pub entries_read: Option<u64>,
}

impl Backlog {
    /// Whether a consumer has read `entry`. A delivered entry is either pending or acknowledged.
    #[must_use]
    pub fn is_delivered(&self, entry: EntryId) -> bool {
        entry <= self.last_delivered
    }

    /// An estimate of how many undelivered entries come before `entry`. None: the server does not know the number of
    /// undelivered entries.
    ///
    /// Redis counts all undelivered entries, and not those before one of them. So the estimate assumes that entries
    /// were added evenly between the first and the last.
    #[must_use]
    pub fn ahead_of(&self, entry: EntryId) -> Option<u64> {
        if self.is_delivered(entry) {
            return Some(0);
        }
        let most = self.lag?.saturating_sub(1);
        let first = self.oldest_undelivered?;
        if entry.ms <= first.ms {
            return Some(entry.seq.saturating_sub(first.seq).min(most));
        }
        let (before, all) = (entry.ms - first.ms, self.last_added.ms.saturating_sub(first.ms));
        let share = u128::from(most) * u128::from(before) / u128::from(all.max(before));
        Some(u64::try_from(share).unwrap_or(most).min(most))
    }
}

impl GroupInspector<'_> {
    /// Reads the position of the group in the stream. None: the stream or the group does not exist.
    ///
    /// # Errors
    /// As for every call here.
    pub async fn position(self) -> Result<Option<GroupPosition>, StreamError> {
        Ok(self.group_in_stream().await?.map(|(position, ..)| position))
    }

    /// Reads how many entries the group has read and has not read. None: the stream or the group does not exist.
    ///
    /// # Errors
    /// As for every call here.
    pub async fn backlog(self) -> Result<Option<Backlog>, StreamError> {
        let Some((position, group, stream)) = self.group_in_stream().await? else { return Ok(None) };
        let GroupPosition { last_delivered, last_added } = position;
        let number = |of: &Value, name: &str| field(of, name).and_then(Value::as_u64);
        let (key, after) = (&self.inspector.names().stream, (last_delivered, EntryId::MAX));
        let oldest = self.inspector.page(key, after, 1).await?;
        let oldest_undelivered = oldest.first().map(|entry| entry.id);
        // The lag is null after XDEL, absent before Redis 7, and known to be wrong at times.
        let length = number(&stream, "length").unwrap_or_default();
        let lag = match oldest_undelivered {
            None => Some(0),
            Some(_) => number(&group, "lag").filter(|lag| (1..=length).contains(lag)),
        };
        Ok(Some(Backlog {
            now_ms: server_time_ms(self.inspector.pool()).await?,
            last_added,
            last_delivered,
            oldest_undelivered,
            lag,
            entries_read: number(&group, "entries-read"),
        }))
    }

    /// Reads the position, and the replies of XINFO for the group and for the stream. It reads the group first, so
    /// every entry that was delivered to the group had been added before the stream was read.
    async fn group_in_stream(self) -> Result<Option<(GroupPosition, Value, Value)>, StreamError> {
        let Some(group) = self.info().await? else { return Ok(None) };
        let Some(last_delivered) = field(&group, "last-delivered-id") else { return Ok(None) };
        let last_delivered = parse_id(last_delivered)?;
        let args = vec!["STREAM".into(), self.inspector.names().stream.as_str().into()];
        let stream = self.inspector.call("XINFO", args).await?;
        let last_added = field(&stream, "last-generated-id").map_or(Ok(EntryId::MIN), parse_id)?;
        Ok(Some((GroupPosition { last_delivered, last_added }, group, stream)))
    }
}

/// The read rate of a group, measured from samples of its backlog.
#[derive(Clone, Debug, Default)]
pub struct ReadRate {
    looks: VecDeque<(Instant, u64)>,
}

impl ReadRate {
    /// Adds a sample of the backlog, the numbers of read and unread entries, that was taken at the time `at`.
    pub fn note(&mut self, at: Instant, backlog: &Backlog) {
        let Some(read) = backlog.entries_read else { return self.looks.clear() };
        // An operator moved the group, or another server answers.
        if self.looks.back().is_some_and(|(_, before)| read < *before) {
            self.looks.clear();
        }
        self.looks.push_back((at, read));
        let is_older = |look: &(Instant, u64), than: Duration| at.saturating_duration_since(look.0) > than;
        while self.looks.get(1).is_some_and(|second| is_older(second, WINDOW))
            || self.looks.front().is_some_and(|first| is_older(first, OLDEST))
        {
            self.looks.pop_front();
        }
    }

    /// The number of entries per second that the group has read lately. None: there are not yet two samples with enough
    /// time between them.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        let ((began, before), (ended, after)) = (self.looks.front()?, self.looks.back()?);
        let lasted = ended.saturating_duration_since(*began);
        let read = u32::try_from(after - before).unwrap_or(u32::MAX);
        (lasted >= CLOSEST).then(|| f64::from(read) / lasted.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64, seq: u64) -> EntryId {
        EntryId { ms, seq }
    }

    fn backlog() -> Backlog {
        Backlog {
            now_ms: 2_000,
            last_added: id(2_000, 0),
            last_delivered: id(100, 7),
            oldest_undelivered: Some(id(1_000, 3)),
            lag: Some(101),
            entries_read: Some(5),
        }
    }

    #[test]
    fn entries_are_taken_to_have_come_evenly() {
        let backlog = backlog();
        for (entry, ahead) in [
            (id(100, 7), 0),
            (id(50, 0), 0),
            (id(1_000, 3), 0),
            (id(1_000, 9), 6),
            (id(1_500, 0), 50),
            (id(2_000, 0), 100),
            // An id by a clock that is ahead of the clock of the stream.
            (id(9_000, 0), 100),
            (id(600, 0), 0),
        ] {
            assert_eq!(backlog.ahead_of(entry), Some(ahead), "{entry}");
        }
    }

    #[test]
    fn where_the_server_cannot_tell_the_lag_nobody_knows_who_is_ahead() {
        let unknown = Backlog { lag: None, ..backlog() };
        assert_eq!(unknown.ahead_of(id(1_500, 0)), None);
        assert_eq!(unknown.ahead_of(id(50, 0)), Some(0), "what was read is not in the queue any more");
        let empty = Backlog { lag: Some(0), oldest_undelivered: None, ..backlog() };
        assert_eq!(empty.ahead_of(id(1_500, 0)), None, "it was deleted, or is not there yet");
        let one = Backlog { lag: Some(1), last_added: id(1_000, 3), ..backlog() };
        assert_eq!(one.ahead_of(id(1_000, 3)), Some(0));
        let one_moment = Backlog { last_added: id(1_000, 103), ..backlog() };
        assert_eq!(one_moment.ahead_of(id(1_000, 103)), Some(100));
    }

    fn seen(looks: &[(u64, Option<u64>)]) -> Option<f64> {
        let (mut rate, began) = (ReadRate::default(), Instant::now());
        for (ms, entries_read) in looks {
            let look = Backlog { entries_read: *entries_read, ..Backlog::default() };
            rate.note(began + Duration::from_millis(*ms), &look);
        }
        rate.rate()
    }

    #[test]
    fn a_rate_is_that_of_the_last_seconds() {
        assert_eq!(seen(&[]), None);
        assert_eq!(seen(&[(0, Some(5))]), None);
        assert_eq!(seen(&[(0, Some(5)), (100, Some(9))]), None, "too close");
        assert_eq!(seen(&[(0, Some(5)), (1_000, Some(105))]), Some(100.0));
        assert_eq!(seen(&[(0, Some(5)), (1_000, Some(5))]), Some(0.0));
        assert_eq!(
            seen(&[(0, Some(0)), (1_000, Some(900)), (6_000, Some(900)), (7_000, Some(900))]),
            Some(0.0)
        );
        assert_eq!(seen(&[(0, Some(0)), (20_000, Some(100))]), Some(5.0), "seldom looked at");
        assert_eq!(seen(&[(0, Some(0)), (31_000, Some(100))]), None, "too long ago");
        assert_eq!(seen(&[(0, Some(100)), (1_000, Some(0))]), None, "the group was moved back");
        assert_eq!(seen(&[(0, Some(5)), (500, None), (1_000, Some(9))]), None);
    }
}
