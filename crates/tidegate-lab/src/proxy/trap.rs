//! Traps: patterns that wait for a request, and the handles for their owners.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{oneshot, watch};

/// The time that a test waits for a trap before it fails.
const REACHED_WITHIN: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    HoldRequest,
    HoldReply,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Release,
    Cut,
}

/// An armed trap, which catches one request.
#[derive(Debug)]
pub(super) struct Trap {
    pub kind: Kind,
    pattern: Vec<u8>,
    reached: watch::Sender<bool>,
    /// None: every caught connection is cut.
    verdict: Option<oneshot::Receiver<Verdict>>,
}

impl Trap {
    /// Whether the trap has no owner any more: its [`Hold`] was released or dropped before anything was caught.
    fn is_disarmed(&mut self) -> bool {
        self.verdict.as_mut().is_some_and(|verdict| verdict.try_recv() != Err(TryRecvError::Empty))
    }

    pub fn reach(&self) {
        self.reached.send_replace(true);
    }

    /// The decision of the owner of the trap; a dropped [`Hold`] releases.
    pub async fn verdict(&mut self) -> Verdict {
        match &mut self.verdict {
            Some(verdict) => verdict.await.unwrap_or(Verdict::Release),
            None => Verdict::Cut,
        }
    }
}

/// A request or reply that a [`Proxy`](crate::Proxy) holds. Dropping this value releases it (or disarms the trap), so
/// that a failed test cannot hang.
#[derive(Debug)]
#[must_use = "a dropped hold holds nothing"]
pub struct Hold {
    pattern: Vec<u8>,
    reached: watch::Receiver<bool>,
    verdict: oneshot::Sender<Verdict>,
}

impl Hold {
    /// Waits until something is held; an error after 30 s.
    pub async fn reached(&self) -> Result<()> {
        wait(&self.reached, &self.pattern).await
    }

    /// Whether something is held, or was.
    pub fn is_reached(&self) -> bool {
        *self.reached.borrow()
    }

    /// Forwards the held bytes.
    pub fn release(self) {
        // Its connection may have ended meanwhile; then there is nothing to release.
        let _ = self.verdict.send(Verdict::Release);
    }

    /// Discards the held bytes, and closes the connection.
    pub fn cut(self) {
        let _ = self.verdict.send(Verdict::Cut);
    }
}

/// A reply that will be discarded. Dropping this value changes nothing.
#[derive(Debug)]
pub struct DroppedReply {
    pattern: Vec<u8>,
    reached: watch::Receiver<bool>,
}

impl DroppedReply {
    /// Waits until the reply was discarded, so the request has been executed; an error after 30 s.
    pub async fn reached(&self) -> Result<()> {
        wait(&self.reached, &self.pattern).await
    }
}

async fn wait(reached: &watch::Receiver<bool>, pattern: &[u8]) -> Result<()> {
    let mut reached = reached.clone();
    let pattern = pattern.escape_ascii();
    tokio::time::timeout(REACHED_WITHIN, reached.wait_for(|reached| *reached))
        .await
        .with_context(|| format!("Nothing with {pattern} was caught within {REACHED_WITHIN:?}"))?
        .with_context(|| format!("The connection or the proxy ended before {pattern} was caught"))?;
    Ok(())
}

/// The armed traps of one proxy.
#[derive(Debug, Default)]
pub(super) struct Traps(Mutex<Vec<Trap>>);

impl Traps {
    pub fn hold(&self, kind: Kind, pattern: &[u8]) -> Hold {
        let (verdict, receiver) = oneshot::channel();
        let reached = self.arm(kind, pattern, Some(receiver));
        Hold { pattern: pattern.into(), reached, verdict }
    }

    pub fn drop_reply(&self, pattern: &[u8]) -> DroppedReply {
        let reached = self.arm(Kind::HoldReply, pattern, None);
        DroppedReply { pattern: pattern.into(), reached }
    }

    fn arm(
        &self,
        kind: Kind,
        pattern: &[u8],
        verdict: Option<oneshot::Receiver<Verdict>>,
    ) -> watch::Receiver<bool> {
        assert!(!pattern.is_empty(), "an empty pattern is in every request");
        assert!(pattern.len() <= Tail::KEPT, "a pattern has at most {} bytes", Tail::KEPT);
        let (sender, reached) = watch::channel(false);
        let trap = Trap { kind, pattern: pattern.into(), reached: sender, verdict };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(trap);
        reached
    }

    /// The trap whose pattern ends first in `fresh`, which are the bytes after `tail`.
    pub fn spring(&self, tail: &Tail, fresh: &[u8]) -> Option<Sprung> {
        let mut traps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        traps.retain_mut(|trap| !trap.is_disarmed());
        let found = traps
            .iter()
            .enumerate()
            .filter_map(|(index, trap)| Some((tail.find(&trap.pattern, fresh)?, index)));
        let (end, index) = found.min()?;
        let trap = traps.remove(index);
        Some(Sprung { begin: end.saturating_sub(trap.pattern.len()), end, trap })
    }
}

/// A trap, and where its pattern lies in the fresh bytes.
#[derive(Debug)]
pub(super) struct Sprung {
    /// The begin of the pattern; 0 if it began before the fresh bytes.
    pub begin: usize,
    pub end: usize,
    pub trap: Trap,
}

/// The last bytes that went through, in which a pattern may have begun.
#[derive(Debug, Default)]
pub(super) struct Tail(Vec<u8>);

impl Tail {
    const KEPT: usize = 1024;

    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        self.0.drain(..self.0.len().saturating_sub(Self::KEPT));
    }

    /// Forgets the bytes, because bytes that triggered one trap must not trigger a second one.
    pub fn forget(&mut self) {
        self.0.clear();
    }

    /// The end of the first occurrence in `fresh`.
    fn find(&self, pattern: &[u8], fresh: &[u8]) -> Option<usize> {
        let kept = &self.0[self.0.len().saturating_sub(pattern.len() - 1)..];
        let window = [kept, fresh].concat();
        let begin = window.windows(pattern.len()).position(|candidate| candidate == pattern)?;
        Some(begin + pattern.len() - kept.len())
    }
}
