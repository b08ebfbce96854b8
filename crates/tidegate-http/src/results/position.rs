//! A reader's position in the results stream of one partition, and the check that no result after it was lost.

use tidegate_stream::{EntryId, StreamSpan};

/// The time in milliseconds that reading goes back if the server may have other data than the data that was read: after
/// a restart or a failover, and in the stream of a new partition. The ids of entries contain this time. It covers the
/// difference between the clocks of two servers.
pub const OVERLAP_MS: u64 = 60_000;

/// A position in the results stream of one partition: the last result that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The id of the last entry that was read. The next read begins after it.
    pub after: EntryId,
    /// The number of entries that had been added to the stream up to `after`. None: this number is unknown.
    pub ordinal: Option<u64>,
    /// The hash that identifies the data of the server (`PositionReader::history`). None: the server was not asked yet.
    pub history: Option<u32>,
}

/// The state of a stream at a time: its span, and the identity of the server's data.
#[derive(Clone, Copy, Debug)]
pub struct StreamSnapshot {
    /// The first and the last entry of the stream, and the numbers of its entries.
    pub span: StreamSpan,
    /// The hash that identifies the data of the server.
    pub history: u32,
}

/// The loss of results before they were read, with the position of the oldest result that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost(pub Position);

impl Position {
    /// The position before the oldest result that is kept. The server is not asked before the first read.
    pub const OLDEST: Self = Self { after: EntryId::MIN, ordinal: None, history: None };

    /// Returns the position at which a reader of `self` begins in the stream of a partition that is new to the reader:
    /// earlier by the overlap.
    pub fn in_new_stream(&self) -> Self {
        Self { after: earlier(self.after), ordinal: None, history: None }
    }

    /// Returns the position after the newest entry of the stream.
    pub fn latest(view: &StreamSnapshot) -> Self {
        let StreamSnapshot { span, history } = view;
        Self { after: span.last_id, ordinal: span.added, history: Some(*history) }
    }

    /// Returns the position before the oldest entry of the stream.
    fn oldest(view: &StreamSnapshot) -> Self {
        match view.span.first {
            Some(first) => {
                Self { after: first.previous(), ordinal: view.span.removed(), history: Some(view.history) }
            }
            None => Self::latest(view),
        }
    }

    /// Returns the position from which to read, for the present state of the stream. `has_last` says whether the stream
    /// has the entry `after`; this only matters if the server's data changed.
    ///
    /// # Errors
    /// Fails if results after the position were trimmed or lost, or may have been.
    pub fn resume(&self, view: &StreamSnapshot, has_last: bool) -> Result<Self, Lost> {
        let StreamSnapshot { span, history } = view;
        let is_here = has_last || span.last_id == self.after;
        let from = match self.history {
            Some(own) if own == *history => {
                return if self.is_whole(span) { Ok(self.clone()) } else { Err(Lost(Self::oldest(view))) };
            }
            None if self.after == EntryId::MIN => return Ok(Self::oldest(view)),
            None => self.after,
            Some(_) => earlier(self.after),
        };
        let start = Self { after: from, ordinal: None, history: Some(*history) };
        let is_new = self.history.is_none();
        // A server that has the last entry that was read also has all entries before it, or trimmed them after it had
        // them: Redis replicates and stores a stream in its sequence.
        let is_all_read = is_here || is_new && span.last_id <= from;
        let has_trimmed_none = span.removed().unwrap_or(0) == 0
            && (is_new && span.added.is_some() || self.after == EntryId::MIN);
        if start.is_next_kept(span) {
            Ok(start)
        } else if is_all_read || has_trimmed_none {
            Ok(Self::oldest(view))
        } else {
            Err(Lost(Self::oldest(view)))
        }
    }

    /// Whether the stream still has all entries after this position. The stream is that of the position's server.
    pub fn is_whole(&self, span: &StreamSpan) -> bool {
        match (self.ordinal, span.added) {
            // The stream was deleted and begun anew.
            (Some(own), Some(added)) if added < own => false,
            (Some(own), Some(_)) => self.is_next_kept(span) || span.removed() == Some(own),
            (None, Some(_)) => self.is_next_kept(span),
            // Redis before version 7 does not count entries. Then a trimmed entry may have been read or not.
            (_, None) => self.is_next_kept(span) || self.after == EntryId::MIN,
        }
    }

    /// Whether the ids alone show that no entry after this position was trimmed.
    fn is_next_kept(&self, span: &StreamSpan) -> bool {
        match span.first {
            Some(first) => first <= self.after.next(),
            None => span.last_id == self.after,
        }
    }

    /// Returns the positions after each of these entries, which follow this position without a gap.
    pub fn over<'a>(
        &'a self,
        entries: &'a [EntryId],
        span: &'a StreamSpan,
    ) -> impl Iterator<Item = Self> + 'a {
        let before = match entries.first() {
            Some(first) if Some(*first) == span.first => span.removed().or(self.ordinal),
            _ => self.ordinal,
        };
        (1..).zip(entries).map(move |(count, id)| {
            let counted = before.map(|before: u64| before.saturating_add(count));
            let ordinal = if *id == span.last_id { span.added.or(counted) } else { counted };
            Self { after: *id, ordinal, history: self.history }
        })
    }
}

fn earlier(id: EntryId) -> EntryId {
    EntryId { ms: id.ms.saturating_sub(OVERLAP_MS), seq: 0 }.previous()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64) -> EntryId {
        EntryId { ms, seq: 0 }
    }

    /// A view of a stream to which entries were added at `1..=added` minutes, of which the first are trimmed.
    fn view(history: u32, removed: u64, added: u64) -> StreamSnapshot {
        let first = (removed < added).then(|| id((removed + 1) * 60_000));
        let span =
            StreamSpan { first, last_id: id(added * 60_000), length: added - removed, added: Some(added) };
        StreamSnapshot { span, history }
    }

    fn old(view: StreamSnapshot) -> StreamSnapshot {
        StreamSnapshot { span: StreamSpan { added: None, ..view.span }, ..view }
    }

    fn read_to(minute: u64) -> Position {
        Position { after: id(minute * 60_000), ordinal: Some(minute), history: Some(1) }
    }

    fn minute(position: Result<Position, Lost>) -> Result<(u64, Option<u64>), (u64, Option<u64>)> {
        let minutes = |it: Position| (it.after.ms.div_ceil(60_000), it.ordinal);
        position.map(minutes).map_err(|Lost(it)| minutes(it))
    }

    #[test]
    fn entries_that_were_trimmed_unread_are_noticed_and_no_others() {
        for removed in 0..=5 {
            let resumed = read_to(5).resume(&view(1, removed, 9), false);
            assert_eq!(resumed, Ok(read_to(5)), "{removed} were trimmed, all of them read");
        }
        assert_eq!(minute(read_to(5).resume(&view(1, 6, 9), false)), Err((7, Some(6))));
        assert_eq!(minute(read_to(5).resume(&view(1, 9, 9), false)), Err((9, Some(9))), "it is empty");
        assert_eq!(
            read_to(9).resume(&view(1, 9, 9), false),
            Ok(read_to(9)),
            "it is empty, and all were read"
        );
        // One more entry came in the same millisecond as the last entry that was read, and was trimmed.
        assert!(read_to(5).resume(&view(1, 6, 6), false).is_err());
    }

    #[test]
    fn a_stream_that_was_deleted_is_noticed() {
        let nothing = StreamSpan { added: Some(0), ..StreamSpan::default() };
        let emptied = StreamSnapshot { span: nothing, history: 1 };
        assert_eq!(minute(read_to(5).resume(&emptied, false)), Err((0, Some(0))));
        let mut again = view(1, 0, 2);
        again.span.first = Some(id(99 * 60_000));
        again.span.last_id = id(100 * 60_000);
        assert!(read_to(5).resume(&again, false).is_err(), "it has fewer entries than were read");
        let mut again = view(1, 0, 50);
        again.span.first = Some(id(99 * 60_000));
        assert!(read_to(5).resume(&again, false).is_err(), "its first entry is not the sixth");
    }

    #[test]
    fn a_server_that_does_not_count_is_doubted() {
        assert_eq!(read_to(5).resume(&old(view(1, 4, 9)), false), Ok(read_to(5)));
        assert!(
            read_to(5).resume(&old(view(1, 5, 9)), false).is_err(),
            "it may have trimmed an unread entry"
        );
        assert_eq!(read_to(9).resume(&old(view(1, 9, 9)), false), Ok(read_to(9)));
        let begin = Position { after: EntryId::MIN, ordinal: Some(0), history: Some(1) };
        assert_eq!(begin.resume(&old(view(1, 0, 3)), false), Ok(begin.clone()));
    }

    #[test]
    fn with_other_data_reading_goes_back_by_the_overlap() {
        let back = Position { after: earlier(id(300_000)), ordinal: None, history: Some(2) };
        assert_eq!(read_to(5).resume(&view(2, 0, 9), false), Ok(back.clone()));
        assert_eq!(back.after, EntryId { ms: 239_999, seq: u64::MAX });
        // The overlap was trimmed, but the server has the last entry, so everything before it was read.
        assert_eq!(minute(read_to(5).resume(&view(2, 4, 9), true)), Ok((5, Some(4))));
        assert_eq!(
            minute(read_to(9).resume(&view(2, 9, 9), false)),
            Ok((9, Some(9))),
            "and it is the last id"
        );
        assert_eq!(minute(read_to(5).resume(&view(2, 4, 9), false)), Err((5, Some(4))));
        assert!(read_to(5).resume(&view(2, 0, 0), false).is_err(), "the server has nothing");
        let none_read = Position { after: EntryId::MIN, ordinal: Some(0), history: Some(1) };
        assert_eq!(minute(none_read.resume(&view(2, 0, 3), false)), Ok((1, Some(0))));
        assert!(none_read.resume(&view(2, 1, 3), false).is_err());
    }

    #[test]
    fn the_stream_of_a_new_partition_is_read_from_its_begin_or_from_the_overlap() {
        let new = read_to(5).in_new_stream();
        assert_eq!(minute(new.resume(&view(2, 0, 0), false)), Ok((0, Some(0))));
        assert_eq!(minute(new.resume(&view(2, 0, 9), false)), Ok((4, None)));
        assert_eq!(minute(new.resume(&view(2, 9, 9), false)), Err((9, Some(9))));
        assert_eq!(minute(new.resume(&view(2, 3, 3), false)), Ok((3, Some(3))), "all of it is older");
        assert_eq!(minute(Position::OLDEST.resume(&view(2, 3, 9), false)), Ok((4, Some(3))));
    }

    #[test]
    fn entries_are_counted_again_where_the_server_tells_their_number() {
        let position = Position { ordinal: None, ..read_to(5) };
        let ids = [6, 7, 8].map(|minute| id(minute * 60_000));
        let counted =
            |view: StreamSnapshot| position.over(&ids, &view.span).map(|it| it.ordinal).collect::<Vec<_>>();
        assert_eq!(counted(view(1, 0, 9)), [None, None, None]);
        assert_eq!(counted(view(1, 0, 8)), [None, None, Some(8)], "the last is the newest");
        assert_eq!(counted(view(1, 5, 9)), [Some(6), Some(7), Some(8)], "the first is the oldest");
        let known: Vec<_> = read_to(5).over(&ids, &view(1, 0, 9).span).collect();
        assert_eq!(known, [read_to(6), read_to(7), read_to(8)]);
    }
}
