//! When the connections of a gate to Redis were made anew: another server may answer from then on, which lacks the last writes of the
//! one before.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use fred::clients::Pool;
use tokio::time::Instant;

/// What the connections of a pool say.
#[derive(Debug)]
pub struct Reconnects(Mutex<Heard>);

#[derive(Debug)]
struct Heard {
    reconnects: tidegate_stream::Reconnects,
    last: Option<Instant>,
}

impl Reconnects {
    /// From now on.
    pub fn of(pool: &Pool) -> Self {
        Self(Mutex::new(Heard { reconnects: pool.into(), last: None }))
    }

    /// Whether one was made anew within this time.
    pub fn is_within(&self, span: Duration) -> bool {
        let Heard { reconnects, last } = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if reconnects.seen() {
            *last = Some(Instant::now());
        }
        last.is_some_and(|last| last.elapsed() < span)
    }
}
