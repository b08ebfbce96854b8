//! The causes that are not known to be over, and the times at which a few entries of each are tried.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use crate::handler::Cause;

/// The part of a lane's time that failed tries may take: about 1 in this many.
const SHARE_OF_TIME: u32 = 10;

#[derive(Debug, Default)]
pub(super) struct Trials {
    due: BTreeSet<(Instant, Cause)>,
    /// The time before which no trial of these causes takes place.
    rest_until: Option<Instant>,
}

impl Trials {
    pub(super) fn add(&mut self, due: Instant, cause: Cause) {
        self.due.insert((due, cause));
    }

    pub(super) fn remove(&mut self, due: Instant, cause: Cause) -> bool {
        self.due.remove(&(due, cause))
    }

    /// Returns the time of the next trial; None: there is none.
    pub(super) fn next(&self) -> Option<Instant> {
        let (due, _) = self.due.first()?;
        Some(self.rest_until.map_or(*due, |rest| rest.max(*due)))
    }

    /// Returns the next trial, if it may take place by now.
    pub(super) fn first(&self, now: Instant) -> Option<(Instant, Cause)> {
        let is_rest_over = self.rest_until.is_none_or(|rest| rest <= now);
        self.due.first().copied().filter(|(due, _)| is_rest_over && *due <= now)
    }

    /// Returns the time of the trial of this cause, if it is due by now.
    pub(super) fn due_of(&self, cause: Cause, now: Instant) -> Option<Instant> {
        let mut due = self.due.iter().take_while(|(due, _)| *due <= now);
        due.find(|(_, other)| *other == cause).map(|(due, _)| *due)
    }

    /// Notes that a try has ended that took `time`.
    pub(super) fn end_try(&mut self, in_vain: bool, time: Duration, now: Instant) {
        self.rest_until = match in_vain {
            true => Some(now + time * (SHARE_OF_TIME - 1)),
            // A rest that is not over has nothing to do with this try.
            false => self.rest_until.filter(|rest| *rest > now),
        };
    }
}
