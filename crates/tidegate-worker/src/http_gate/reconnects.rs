//! When the connections of a gate to Redis were made anew: another server may answer from then on, which lacks the last writes of the
//! one before.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use fred::{clients::Pool, interfaces::EventInterface, types::config::Server};
use tidegate_orders::gate::has_reconnected;
use tokio::{sync::broadcast::Receiver, time::Instant};

/// What the connections of a pool say.
#[derive(Debug)]
pub struct Reconnects(Mutex<Heard>);

#[derive(Debug)]
struct Heard {
    receivers: Vec<Receiver<Server>>,
    last: Option<Instant>,
}

impl Reconnects {
    /// From now on.
    pub fn of(pool: &Pool) -> Self {
        let receivers = pool.clients().iter().map(|client| client.reconnect_rx()).collect();
        Self(Mutex::new(Heard { receivers, last: None }))
    }

    /// Whether one was made anew within this time.
    pub fn is_within(&self, span: Duration) -> bool {
        let Heard { receivers, last } = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // All of them, so that none is heard of later.
        if receivers.iter_mut().filter_map(|it| has_reconnected(it).then_some(())).count() > 0 {
            *last = Some(Instant::now());
        }
        last.is_some_and(|last| last.elapsed() < span)
    }
}
