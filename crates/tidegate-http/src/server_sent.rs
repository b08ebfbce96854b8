//! The parts that all streams of server-sent events share: heartbeats, the longest duration, and the HTTP answer.

use std::{convert::Infallible, time::Duration};

use futures_util::Stream;
use http_body_util::{Either, StreamBody};
use hyper::{
    Response, StatusCode,
    body::{Bytes, Frame},
};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::answer::{Answer, answer};

/// The content type of server-sent events.
pub const EVENTS: &str = "text/event-stream";
/// The longest time that an event stream stays open. After this time, the client connects again.
pub const STREAM_WITHIN: Duration = Duration::from_secs(300);
/// The pause between heartbeats. They keep proxies between the server and the client from closing an idle connection.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);
/// The time after which a client connects again when a stream has ended.
pub const RETRY_MS: u32 = 2_000;
/// The comment that keeps an idle connection open.
pub const HEARTBEAT: &str = ": still there\n";

/// The end of a wait for the next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleEnd {
    /// There was no event for so long that a heartbeat is due.
    Heartbeat,
    /// The stream has to end, with the reason.
    Over(&'static str),
}

/// The signals that end a long answer: the client has gone, or may have lost its access.
#[derive(Clone, Debug, Default)]
pub struct ClientEnd {
    /// Cancelled when the list of tokens changes: the client may have lost its access.
    pub access: CancellationToken,
    /// Cancelled when the client closes its connection, or only its sending half. Then the answer ends as a complete answer.
    pub closed: CancellationToken,
}

/// The end of an event stream: after the longest duration, when the client may have lost its access or has gone, or when
/// the server stops.
#[derive(Debug)]
pub struct StreamEnd {
    /// The time when the stream ends at the latest.
    pub at: Instant,
    /// The token that is cancelled when the server stops.
    pub stop: CancellationToken,
    /// The signals that come from the client.
    pub client: ClientEnd,
}

impl StreamEnd {
    /// Creates the end of a stream that begins now.
    pub fn new(stop: CancellationToken, client: ClientEnd) -> Self {
        Self { at: Instant::now() + STREAM_WITHIN, stop, client }
    }

    /// Returns the time of the next heartbeat, if no event comes before.
    pub fn next_heartbeat() -> Instant {
        Instant::now() + HEARTBEAT_EVERY
    }

    /// Waits until a heartbeat is due at `heartbeat_at`, or the stream has to end.
    pub async fn quiet(&self, heartbeat_at: Instant) -> IdleEnd {
        tokio::select! {
            () = self.stop.cancelled() => IdleEnd::Over("the server stops"),
            () = self.client.access.cancelled() => IdleEnd::Over("come again"),
            () = self.client.closed.cancelled() => IdleEnd::Over("come again"),
            () = sleep_until(self.at) => IdleEnd::Over("come again"),
            () = sleep_until(heartbeat_at) => IdleEnd::Heartbeat,
        }
    }
}

/// Creates the HTTP answer of an event stream with these texts.
pub fn event_answer(texts: impl Stream<Item = String> + Send + 'static) -> Answer {
    use futures_util::StreamExt;

    let frames = texts.map(|text| Ok::<_, Infallible>(Frame::data(Bytes::from(text))));
    let (head, _) = answer(StatusCode::OK, EVENTS, "").into_parts();
    Response::from_parts(head, Either::Right(StreamBody::new(Box::pin(frames))))
}
