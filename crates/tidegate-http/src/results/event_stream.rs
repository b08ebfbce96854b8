//! Results as server-sent events. The id of each event is the cursor after its result.

use std::sync::Arc;

use futures_util::{Stream, stream::unfold};
use serde_json::json;
use tidegate_orders::PublishedResult;
use tokio::time::Instant;

use super::{
    FollowerPermit,
    counts::ResultCounts,
    cursor::Cursor,
    follow::{Follow, ResultsPass, Taken},
};
use crate::server_sent::{ClientEnd, HEARTBEAT, IdleEnd, RETRY_MS, StreamEnd};

/// The largest number of results in one piece of the stream. A client that reads slowly keeps one piece in memory.
const PIECE: usize = 100;
/// The size in bytes after which a piece of the stream ends.
const PIECE_BYTES: usize = 64 << 10;

/// A stream of server-sent events with results.
#[derive(Debug)]
pub struct ResultEvents {
    follow: Follow,
    /// The cursor that the client got last.
    sent: Cursor,
    /// The partitions that the client knows to be away.
    away: Vec<String>,
    is_begun: bool,
    is_over: bool,
    end: StreamEnd,
    counts: Arc<ResultCounts>,
    _permit: FollowerPermit,
}

impl ResultEvents {
    /// Creates a stream of the results that `follow` reads, until `end`.
    pub fn new(follow: Follow, counts: Arc<ResultCounts>, end: StreamEnd, permit: FollowerPermit) -> Self {
        let sent = follow.cursor().clone();
        Self { follow, sent, away: Vec::new(), is_begun: false, is_over: false, end, counts, _permit: permit }
    }

    /// Converts the event stream to the texts of its events.
    pub fn texts(self) -> impl Stream<Item = String> + Send + 'static {
        unfold(self, async |mut stream| {
            let text = stream.next().await?;
            Some((text, stream))
        })
    }

    /// Waits for the next text to send. None: the stream is over.
    async fn next(&mut self) -> Option<String> {
        if self.is_over {
            return None;
        }
        if !self.is_begun {
            self.is_begun = true;
            // The client knows a cursor even if no result comes.
            return Some(format!("retry: {RETRY_MS}\nid: {}\n\n", self.sent.text()));
        }
        let heartbeat_at = StreamEnd::next_heartbeat();
        loop {
            let ClientEnd { access, closed } = &self.end.client;
            if access.is_cancelled() || self.end.at <= Instant::now() {
                return Some(self.after(IdleEnd::Over("come again")));
            }
            self.sent = self.follow.cursor().clone();
            match self.follow.pass(PIECE, PIECE_BYTES).await {
                ResultsPass::Results(taken) => return Some(self.events(&taken)),
                ResultsPass::Lost => return Some(self.gap()),
                ResultsPass::Filtered
                    if Instant::now() < heartbeat_at
                        && !self.end.stop.is_cancelled()
                        && !closed.is_cancelled() => {}
                ResultsPass::Filtered | ResultsPass::End => {
                    if let Some(comment) = self.change_of_away() {
                        return Some(comment);
                    }
                    let quiet = tokio::select! {
                        () = self.follow.changed() => continue,
                        quiet = self.end.quiet(heartbeat_at) => quiet,
                    };
                    return Some(self.after(quiet));
                }
            }
        }
    }

    fn events(&mut self, taken: &[Taken]) -> String {
        let mut text = String::new();
        for (at, kept) in taken {
            self.sent.positions[*at].1 = kept.position.clone();
            if let Some(PublishedResult { json, .. }) = &kept.result {
                text.push_str(&format!("id: {}\ndata: {json}\n\n", self.sent.text()));
            }
        }
        self.sent = self.follow.cursor().clone();
        self.counts.served(taken.len());
        text
    }

    /// The event which says that results were lost before the client got them. The stream continues behind the loss.
    fn gap(&mut self) -> String {
        self.counts.lost();
        self.sent = self.follow.cursor().clone();
        let cursor = self.sent.text();
        format!("event: gap\nid: {cursor}\ndata: {}\n\n", json!({ "cursor": cursor }))
    }

    /// The comment which names the partitions that cannot be read. None: they are the same as before.
    fn change_of_away(&mut self) -> Option<String> {
        let away: Vec<String> = self.follow.away().into_iter().map(str::to_owned).collect();
        let is_other = away != self.away;
        self.away = away;
        is_other.then(|| format!(": away {}\n\n", json!(self.away)))
    }

    /// The text after a time without results. It has the cursor, which may have passed results of other kinds.
    fn after(&mut self, quiet: IdleEnd) -> String {
        let comment = match quiet {
            IdleEnd::Heartbeat => HEARTBEAT.to_owned(),
            IdleEnd::Over(why) => {
                self.is_over = true;
                format!(": {why}\n")
            }
        };
        self.sent = self.follow.cursor().clone();
        format!("{comment}id: {}\n\n", self.sent.text())
    }
}
