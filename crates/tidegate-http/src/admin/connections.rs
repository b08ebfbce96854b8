//! The connections to an admin page. There are few, so that they cost little, and none is kept by a client that says nothing:
//! a new one takes the place of whoever has kept us waiting for longest.

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::{task::JoinHandle, time::sleep};

/// Connections at a time, at most. Further ones wait in the kernel's queue until one of these gives way.
const PLACES: usize = 32;
/// As long, a client may keep us waiting and has its place for certain. Whoever connects to ask sends its request at
/// once; without this, a flood of connections would close it before it has.
const GRACE: Duration = Duration::from_millis(5);

/// All connections.
#[derive(Debug, Default)]
pub struct Connections {
    open: Vec<OpenConnection>,
}

#[derive(Debug)]
struct OpenConnection {
    tracked: TrackedConnection,
    task: JoinHandle<()>,
}

/// What is known of one connection.
#[derive(Clone, Debug)]
pub struct TrackedConnection(Arc<Mutex<State>>);

/// Whose turn it is, and since when. A connection that waits for its client gives way before one that is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// The client's: its request is not complete, or it does not take the answer.
    WaitsForClient(Instant),
    /// Ours, and the stores'.
    Answered(Instant),
    /// Nobody's: it goes on. There is other room for these, which is limited where they begin.
    Streams,
}

impl Connections {
    /// Runs a connection of its own. When all places are taken, another one is closed first.
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
            // Its request may come meanwhile.
            sleep(grace).await;
        };
        let OpenConnection { task, .. } = self.open.swap_remove(at);
        task.abort();
        // Its memory and its descriptor are free only now.
        let _ = task.await;
        tracing::debug!("a client of the admin server made room for another");
    }
}

impl State {
    /// Since when it is somebody's turn; None: it is nobody's.
    fn lasting(self) -> Option<Duration> {
        match self {
            Self::WaitsForClient(since) | Self::Answered(since) => Some(since.elapsed()),
            Self::Streams => None,
        }
    }
}

impl TrackedConnection {
    /// The request is here.
    pub fn is_answered(&self) {
        self.set(State::Answered(Instant::now()));
    }

    /// The answer is there for the client to take.
    pub fn waits_for_its_client(&self) {
        self.set(State::WaitsForClient(Instant::now()));
    }

    /// The answer goes on: it takes no place from others any more.
    pub fn streams(&self) {
        self.set(State::Streams);
    }

    /// It is a stream.
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
