//! The open connections to the admin pages. There are few, so that they cost little. If all are in use, the server
//! closes the one whose client has kept it waiting the longest, and a new connection takes its place.

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::{task::JoinHandle, time::sleep};

/// The largest number of connections at a time. Further connections wait in the kernel's queue until one of these
/// ends.
const PLACES: usize = 32;
/// The time for which a new connection is never closed to make room. A real client sends its request at once. Without
/// this time, a flood of connections would close such a client's connection before its request arrives.
const GRACE: Duration = Duration::from_millis(5);

/// The open connections of the admin server.
#[derive(Debug, Default)]
pub struct Connections {
    open: Vec<OpenConnection>,
}

#[derive(Debug)]
struct OpenConnection {
    tracked: TrackedConnection,
    task: JoinHandle<()>,
}

/// The state of one connection to the admin server, shared by the connection's task and [`Connections`].
#[derive(Clone, Debug)]
pub struct TrackedConnection(Arc<Mutex<State>>);

/// The side that has to act next, and since when. The server closes a connection that waits for its client before one
/// whose answer it still prepares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// The client has to act: its request is not complete, or it does not read the answer.
    WaitsForClient(Instant),
    /// The server has to act: it prepares the answer, or waits for the stores.
    Answered(Instant),
    /// Neither side has to act: the answer is a stream. Streams are limited where they begin, so they count here for
    /// nothing.
    Streams,
}

impl Connections {
    /// Serves a new connection in its own task. If too many connections are open, this function first closes an open
    /// connection.
    pub async fn give<F>(&mut self, connection: impl FnOnce(TrackedConnection) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.open.retain(|open| !open.task.is_finished());
        if self.open.iter().filter(|open| !open.tracked.is_stream()).count() >= PLACES {
            self.close_one().await;
        }
        let tracked = TrackedConnection(Arc::new(Mutex::new(State::WaitsForClient(Instant::now()))));
        let task = tokio::spawn(connection(tracked.clone()));
        self.open.push(OpenConnection { tracked, task });
    }

    async fn close_one(&mut self) {
        let at = loop {
            let states = self.open.iter().map(|open| open.tracked.state()).enumerate();
            let Some((at, state)) = states.min_by_key(|(_, state)| *state) else { return };
            let Some(lasting) = state.lasting() else { return };
            let grace = GRACE.saturating_sub(lasting);
            if grace.is_zero() {
                break at;
            }
            // A request may arrive during this wait.
            sleep(grace).await;
        };
        let OpenConnection { task, .. } = self.open.swap_remove(at);
        task.abort();
        // The connection's memory and its file descriptor are free only after the task has ended.
        let _ = task.await;
        tracing::debug!(
            "closed a waiting connection to the admin server, because too many connections were open"
        );
    }
}

impl State {
    /// The time since when one side has to act. None: the connection is a stream.
    fn lasting(self) -> Option<Duration> {
        match self {
            Self::WaitsForClient(since) | Self::Answered(since) => Some(since.elapsed()),
            Self::Streams => None,
        }
    }
}

impl TrackedConnection {
    /// Notes that the request of this connection has arrived, and is being answered.
    pub fn is_answered(&self) {
        self.set(State::Answered(Instant::now()));
    }

    /// Notes that the connection waits until the client reads the answer.
    pub fn waits_for_its_client(&self) {
        self.set(State::WaitsForClient(Instant::now()));
    }

    /// Notes that the answer is a stream. The limit on open connections does not count streams.
    pub fn streams(&self) {
        self.set(State::Streams);
    }

    /// Whether the answer of this connection is a stream.
    pub fn is_stream(&self) -> bool {
        self.state() == State::Streams
    }

    fn set(&self, state: State) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    fn state(&self) -> State {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
