//! Causes that nobody has said are over, and when a few entries of each are tried.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use crate::handler::Cause;

/// Tries in vain take at most about this part of a lane's time: 1 of so many.
const SHARE_OF_TIME: u32 = 10;

#[derive(Debug, Default)]
pub(super) struct Trials {
    due: BTreeSet<(Instant, Cause)>,
    /// No such trial before this.
    rest_until: Option<Instant>,
}

impl Trials {
    pub(super) fn add(&mut self, due: Instant, cause: Cause) {
        self.due.insert((due, cause));
    }

    pub(super) fn remove(&mut self, due: Instant, cause: Cause) -> bool {
        self.due.remove(&(due, cause))
    }

    /// When the next one is tried; None: there is none.
    pub(super) fn next(&self) -> Option<Instant> {
        let (due, _) = self.due.first()?;
        Some(self.rest_until.map_or(*due, |rest| rest.max(*due)))
    }

    /// The next one, if it may be tried by now.
    pub(super) fn first(&self, now: Instant) -> Option<(Instant, Cause)> {
        let is_rest_over = self.rest_until.is_none_or(|rest| rest <= now);
        self.due.first().copied().filter(|(due, _)| is_rest_over && *due <= now)
    }

    /// Of this cause, the trial that is due by now.
    pub(super) fn due_of(&self, cause: Cause, now: Instant) -> Option<Instant> {
        let mut due = self.due.iter().take_while(|(due, _)| *due <= now);
        due.find(|(_, other)| *other == cause).map(|(due, _)| *due)
    }

    /// A try has ended that took `time`.
    pub(super) fn end_try(&mut self, in_vain: bool, time: Duration, now: Instant) {
        self.rest_until = match in_vain {
            true => Some(now + time * (SHARE_OF_TIME - 1)),
            // A rest that is not over has been no business of this try.
            false => self.rest_until.filter(|rest| *rest > now),
        };
    }
}
