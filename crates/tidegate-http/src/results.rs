//! The page `/results`: what became of orders, for applications that have no Redis client. It reads the results streams
//! of all partitions, as pages of JSON with a long poll, or as server-sent events.

mod counts;
mod cursor;
mod event_stream;
mod follow;
mod newest;
mod position;
mod question;
mod reader;
mod source;
mod source_list;

use std::{sync::Arc, time::Duration};

use futures_util::stream::unfold;
use http_body_util::{Either, StreamBody};
use hyper::{
    HeaderMap, Response, StatusCode, Uri,
    body::{Bytes, Frame},
};
use tidegate_operations::System;
use tidegate_orders::Published;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

pub use self::counts::ResultCounts;
use self::{
    counts::CountedRequest,
    cursor::Cursor,
    event_stream::ResultEvents,
    follow::{Follow, ResultsPass},
    position::Position,
    question::{Question, ReadPosition},
    source_list::SourceList,
};
use crate::{
    answer::{Answer, JSON, answer},
    server_sent::{ClientEnd, StreamEnd, event_answer},
};

/// The largest number of followers at the same time. Followers are applications, not buyers.
const FOLLOWERS: usize = 128;
/// The size in bytes after which a page ends. All followers together take at most 64 MiB.
const PAGE_BYTES: usize = 512 << 10;
/// The shortest time for which a request looks for results of its kinds among others.
const SCAN_WITHIN: Duration = Duration::from_secs(2);

/// The reason why a request gets no results.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoResults {
    /// The request is invalid, with the reason.
    #[error("{0}")]
    BadQuestion(String),
    /// Too many clients follow the results at the same time.
    #[error("too many requests for results at the same time")]
    TooMany,
    /// Results were deleted before the client read them. The client can continue with this cursor.
    #[error(
        "results were deleted before you read them: look up the state of your orders, then continue with `cursor`"
    )]
    Lost(String),
    /// No partition answers.
    #[error("Redis does not answer, so the gate cannot read results")]
    Away,
}

/// The permit of a follower, and its part in the gauge of followers.
type FollowerPermit = (OwnedSemaphorePermit, CountedRequest);

/// The part of the page of results that stays when the list of partitions changes.
#[derive(Clone, Debug)]
pub struct SharedResults {
    counts: Arc<ResultCounts>,
    followers: Arc<Semaphore>,
}

impl Default for SharedResults {
    fn default() -> Self {
        Self { counts: Arc::default(), followers: Arc::new(Semaphore::new(FOLLOWERS)) }
    }
}

/// The page of results, for one list of partitions.
#[derive(Debug)]
pub struct ResultPages {
    system: System,
    sources: Arc<SourceList>,
    shared: SharedResults,
    stop: CancellationToken,
}

impl ResultPages {
    /// Creates the page of results of a system. It connects to Redis at the first request. Followers end at `stop`.
    pub fn new(system: &System, shared: SharedResults, stop: CancellationToken) -> Self {
        let sources = Arc::new(SourceList::new(system, Arc::clone(&shared.counts), stop.clone()));
        Self { system: system.clone(), sources, shared, stop }
    }

    /// The counts of results for `/metrics`.
    pub fn counts(&self) -> &ResultCounts {
        &self.shared.counts
    }

    /// Answers a request for results. If the client has closed its connection or its sending half, the answer has the
    /// present results, without a wait.
    ///
    /// # Errors
    /// Fails for the reasons in [`NoResults`].
    pub async fn answer(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        client: ClientEnd,
    ) -> Result<Answer, NoResults> {
        let query = uri.query().unwrap_or_default();
        let asked = Question::parse(query, headers, self.published()).map_err(NoResults::BadQuestion)?;
        let room = Arc::clone(&self.shared.followers).try_acquire_owned().map_err(|_| NoResults::TooMany)?;
        let permit = (room, self.shared.counts.follower());
        let cursor = self.cursor(asked.from).await?;
        let mut follow = Follow::new(cursor, asked.wanted, Arc::clone(&self.sources));
        if asked.wants_events {
            let counts = Arc::clone(&self.shared.counts);
            let end = StreamEnd::new(self.stop.clone(), client);
            return Ok(event_answer(ResultEvents::new(follow, counts, end, permit).texts()));
        }
        let until = Instant::now() + asked.wait;
        let next = next(&mut follow, asked.limit, until, &client.closed);
        let waited = client.access.run_until_cancelled(next);
        let pass = match self.stop.run_until_cancelled(waited).await.flatten() {
            Some(pass) => pass.inspect_err(|why| self.note(why))?,
            None => Vec::new(),
        };
        self.shared.counts.served(pass.len());
        let results: Vec<&str> =
            pass.iter().filter_map(|(_, kept)| Some(&*kept.result.as_ref()?.json)).collect();
        Ok(held(page(&results, &follow), permit))
    }

    fn note(&self, why: &NoResults) {
        if let NoResults::Lost(_) = why {
            self.shared.counts.lost();
        }
    }

    /// Closes the connections to Redis.
    pub async fn close(&self) {
        self.sources.close().await;
    }

    fn published(&self) -> Published {
        self.system.common().results.published
    }

    /// The cursor from which to read. It has the whole list of partitions, also if this gate serves only one of them: the
    /// positions of the others stay as they are.
    async fn cursor(&self, from: ReadPosition) -> Result<Cursor, NoResults> {
        let tags = self.system.common().partition().tags();
        match from {
            ReadPosition::Oldest => Ok(Cursor::new(tags, &Position::OLDEST)),
            ReadPosition::Latest => {
                let cursor = Cursor::new(tags, &Position::OLDEST);
                follow::latest(cursor, self.sources.present()).await.ok_or(NoResults::Away)
            }
            ReadPosition::Cursor(cursor) => Ok(cursor.for_list(tags)),
        }
    }
}

/// Reads the results of a page.
async fn next(
    follow: &mut Follow,
    limit: usize,
    until: Instant,
    closed: &CancellationToken,
) -> Result<Vec<follow::Taken>, NoResults> {
    let scan_until = until.max(Instant::now() + SCAN_WITHIN);
    loop {
        match follow.pass(limit, PAGE_BYTES).await {
            ResultsPass::Results(taken) => return Ok(taken),
            ResultsPass::Lost => return Err(NoResults::Lost(follow.cursor().text())),
            ResultsPass::Filtered if Instant::now() < scan_until && !closed.is_cancelled() => {}
            ResultsPass::End if follow.is_all_away() => return Err(NoResults::Away),
            ResultsPass::End if waited(follow, until, closed).await => {}
            ResultsPass::Filtered | ResultsPass::End => return Ok(Vec::new()),
        }
    }
}

/// Waits until there may be new results. Returns false if the time is over, or the client has gone.
async fn waited(follow: &mut Follow, until: Instant, closed: &CancellationToken) -> bool {
    matches!(closed.run_until_cancelled(timeout_at(until, follow.changed())).await, Some(Ok(())))
}

/// Writes a page of results as JSON.
fn page(results: &[&str], follow: &Follow) -> String {
    let cursor = follow.cursor().text();
    let away = match follow.away() {
        away if away.is_empty() => String::new(),
        away => format!(r#","away":{}"#, serde_json::json!(away)),
    };
    format!(r#"{{"results":[{}],"cursor":"{cursor}"{away}}}"#, results.join(","))
}

/// Creates an answer that holds the permit of its follower until the client takes the body.
fn held(body: String, permit: FollowerPermit) -> Answer {
    let frames = unfold((Some(Bytes::from(body)), permit), async |(body, permit)| {
        Some((Ok(Frame::data(body?)), (None, permit)))
    });
    let (head, _) = answer(StatusCode::OK, JSON, "").into_parts();
    Response::from_parts(head, Either::Right(StreamBody::new(Box::pin(frames))))
}
