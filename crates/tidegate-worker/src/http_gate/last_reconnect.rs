//! How long ago the connections of a gate to Redis were made anew: another server may answer since then, which lacks the last writes of
//! the one before.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use fred::clients::Pool;
use tidegate_stream::Reconnects;
use tokio::time::Instant;

/// For so long after its connections were made anew, a gate takes the server for one that may lack what was admitted before.
const RECENT: Duration = Duration::from_secs(600);

/// The last time that a pool was connected anew.
#[derive(Debug)]
pub struct LastReconnect(Mutex<Heard>);

#[derive(Debug)]
struct Heard {
    reconnects: Reconnects,
    last: Option<Instant>,
}

impl LastReconnect {
    /// From now on.
    pub fn of(pool: &Pool) -> Self {
        Self(Mutex::new(Heard { reconnects: pool.into(), last: None }))
    }

    /// Whether a failover may have been so lately that callers ask again for what it took along.
    pub fn is_recent(&self) -> bool {
        let Heard { reconnects, last } = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if reconnects.seen() {
            *last = Some(Instant::now());
        }
        last.is_some_and(|last| last.elapsed() < RECENT)
    }
}
