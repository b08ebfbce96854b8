//! The number of the sweeper's own events that are still unread. Events that were read and set aside do not count, so
//! that a voucher with a held row does not hold up the expirations of others.

use std::collections::VecDeque;

use tidegate_stream::{EntryId, GroupPosition};

/// The events that may be unread at once.
pub(super) const MOST_UNREAD: usize = 5_000;

/// The appended events that may be unread: the last entry and the size of each chunk.
#[derive(Debug, Default)]
pub(super) struct UnreadEvents(VecDeque<(EntryId, usize)>);

impl UnreadEvents {
    pub fn note(&mut self, last: EntryId, appended: usize) {
        self.0.push_back((last, appended));
    }

    /// Returns how many `expired` events may be appended now. A limit prevents unread events from filling the stream.
    pub fn room(&mut self, position: GroupPosition) -> usize {
        let GroupPosition { last_delivered, last_added } = position;
        // An entry after the last one that was ever added is gone: Redis lost it.
        self.0.retain(|(last, _)| *last > last_delivered && *last <= last_added);
        let unread = self.0.iter().map(|(_, appended)| appended).sum();
        MOST_UNREAD.saturating_sub(unread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_unread_and_still_there_takes_room() {
        let entry = |ms| EntryId { ms, seq: 0 };
        let position =
            |delivered, added| GroupPosition { last_delivered: entry(delivered), last_added: entry(added) };
        let mut unread = UnreadEvents::default();
        assert_eq!(unread.room(position(0, 0)), MOST_UNREAD);
        for (last, appended) in [(10, 1_000), (20, 1_000), (30, 3_000)] {
            unread.note(entry(last), appended);
        }
        assert_eq!(unread.room(position(5, 30)), 0);
        // A chunk that is read in part counts as a whole.
        assert_eq!(unread.room(position(15, 40)), 1_000);
        assert_eq!(unread.room(position(15, 25)), 4_000, "the last chunk is lost");
        assert_eq!(unread.room(position(30, 40)), MOST_UNREAD);
    }
}
