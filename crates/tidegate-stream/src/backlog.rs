//! How far a group has come in its stream, and how fast it comes on: what a guess is made of when an entry's turn comes.

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

/// A rate is that of so long, where somebody looks as often.
const WINDOW: Duration = Duration::from_secs(5);
/// What was seen longer ago says nothing of the present.
const OLDEST: Duration = Duration::from_secs(30);
/// Between two looks that are closer to each other, a batch more or less is all that is seen.
const CLOSEST: Duration = Duration::from_millis(400);

/// Where a group is between the first entry of its stream and the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPosition {
    /// All entries up to this one were read by some consumer.
    pub last_delivered: EntryId,
    /// No entry was ever added behind this one.
    pub last_added: EntryId,
}

/// How far a group has come in its stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// The server's clock: Unix time in milliseconds.
    pub now_ms: u64,
    /// The last entry that was ever added.
    pub last_added: EntryId,
    /// The last entry that was delivered to the group.
    pub last_delivered: EntryId,
    /// The first entry after it.
    pub oldest_undelivered: Option<EntryId>,
    /// Entries that are not delivered yet. None where the server cannot tell: before Redis 7, and after XDEL.
    pub lag: Option<u64>,
    /// Entries that were ever delivered to the group. None as for `lag`.
    pub entries_read: Option<u64>,
}

impl Backlog {
    /// Somebody has read it: it is in progress, set aside, or done.
    #[must_use]
    pub fn is_delivered(&self, entry: EntryId) -> bool {
        entry <= self.last_delivered
    }

    /// About how many undelivered entries stand before `entry`; None: nobody can tell.
    ///
    /// Redis counts all that are undelivered and not those before one of them, so entries are taken to have come evenly
    /// between the first and the last.
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
    /// Where the group is; None where there is no stream or no group.
    ///
    /// # Errors
    /// As for every call here.
    pub async fn position(self) -> Result<Option<GroupPosition>, StreamError> {
        Ok(self.group_in_stream().await?.map(|(position, ..)| position))
    }

    /// How far the group has come; None where there is no stream or no group.
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
        // Null after XDEL, absent before Redis 7, and known to be wrong at times.
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

    /// With what XINFO tells of the group and of the stream. The group is read first: what it was delivered was added before.
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

/// How fast a group reads, by looks at its backlog.
#[derive(Clone, Debug, Default)]
pub struct ReadRate {
    looks: VecDeque<(Instant, u64)>,
}

impl ReadRate {
    /// Takes note of a look.
    pub fn note(&mut self, at: Instant, backlog: &Backlog) {
        let Some(read) = backlog.entries_read else { return self.looks.clear() };
        // Somebody moved the group, or another server answers.
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

    /// Entries a second that the group has read lately; None: two looks are needed, and some time between them.
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
            // By a clock that is ahead of the stream's.
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
