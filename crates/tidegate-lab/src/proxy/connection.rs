//! One client's connection through the proxy.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::net::{self, Ipv4Addr};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use procfs::net::{TcpNetEntry, TcpState};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::resp_frames::RespFrames;
use super::trap::{Kind, Sprung, Tail, Trap, Verdict};
use super::{Mode, Shared};

/// Serves until one side closes. Returning closes both.
pub(super) async fn serve(mut client: TcpStream, shared: &Shared) {
    let mut weather = shared.weather.subscribe();
    let at_start = *weather.borrow();
    if at_start.mode == Mode::BlackHole {
        return swallow(&mut client, shared).await;
    }
    let target = shared.target.load(Ordering::Relaxed);
    let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await else { return };
    // Small requests shall not wait for each other on our account. A closing socket refuses; never mind.
    let _ = client.set_nodelay(true).and(server.set_nodelay(true));
    let is_lost = tokio::select! {
        biased; // nothing goes through any more once a black hole has begun
        _ = weather.wait_for(|now| now.black_holes != at_start.black_holes) => true,
        () = exchange(&mut client, &mut server, shared) => false,
    };
    if is_lost {
        tokio::join!(swallow(&mut client, shared), swallow(&mut server, shared));
    }
}

/// Reads and forgets until the black hole is over. A side that closes is not noticed by the other.
async fn swallow(stream: &mut TcpStream, shared: &Shared) {
    let mut weather = shared.weather.subscribe();
    let mut is_over = std::pin::pin!(weather.wait_for(|now| now.mode != Mode::BlackHole));
    let mut lost = [0; 4096];
    loop {
        tokio::select! {
            _ = &mut is_over => return,
            read = stream.read(&mut lost) => match read {
                Ok(count @ 1..) => _ = shared.swallowed_bytes.fetch_add(count as u64, Ordering::Relaxed),
                _ => break,
            },
        }
    }
    let _ = is_over.await;
}

async fn exchange(client: &mut TcpStream, server: &mut TcpStream, shared: &Shared) {
    let awaited = Awaited::default();
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    tokio::select! {
        _ = forward_requests(from_client, to_server, shared, &awaited) => (),
        _ = forward_replies(from_server, to_client, shared, &awaited) => (),
    }
}

/// What the request side tells the reply side.
#[derive(Debug, Default)]
struct Awaited(Mutex<AwaitedState>);

#[derive(Debug, Default)]
struct AwaitedState {
    /// Whether this is RESP; known as soon as one side has spoken. MySQL's server speaks first.
    is_resp: Option<bool>,
    /// Traps whose reply is awaited, with the number of that reply (from 0; RESP only).
    traps: VecDeque<(u64, Trap)>,
}

impl Awaited {
    fn state(&self) -> MutexGuard<'_, AwaitedState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_resp(&self, first_guess: impl FnOnce() -> bool) -> bool {
        *self.state().is_resp.get_or_insert_with(first_guess)
    }
}

/// The connection is over.
#[derive(Debug)]
struct Closed;

impl From<std::io::Error> for Closed {
    fn from(_: std::io::Error) -> Self {
        Self
    }
}

async fn forward_requests(
    mut client: ReadHalf<'_>,
    mut server: WriteHalf<'_>,
    shared: &Shared,
    awaited: &Awaited,
) -> Result<(), Closed> {
    let mut tail = Tail::default();
    let mut frames = RespFrames::default();
    let mut fresh = Vec::new();
    loop {
        if fresh.is_empty() {
            read_some(&mut client, &mut fresh).await?;
        }
        let is_resp = awaited.is_resp(|| fresh[0] == b'*');
        lag(shared).await;
        let Some(Sprung { begin, end, mut trap }) = shared.traps.spring(&tail, &fresh) else {
            tail.push(&fresh);
            if is_resp {
                frames.feed(&fresh);
            }
            server.write_all(&fresh).await?;
            fresh.clear();
            continue;
        };
        let number = if is_resp { number_of_request(&mut frames, &fresh[..end]) } else { 0 };
        tail.forget();
        let rest = fresh.split_off(end);
        let mut caught = std::mem::replace(&mut fresh, rest);
        if trap.kind == Kind::HoldRequest {
            server.write_all(&caught[..begin]).await?;
            caught.drain(..begin);
            trap.reach();
            hold(&mut client, &mut fresh, &mut trap).await?;
        } else {
            awaited.state().traps.push_back((number, trap));
        }
        server.write_all(&caught).await?;
    }
}

/// Takes bytes up to a pattern's end; the request that the last of them belongs to.
fn number_of_request(frames: &mut RespFrames, caught: &[u8]) -> u64 {
    let (before, last) = caught.split_at(caught.len() - 1);
    frames.feed(before);
    let number = frames.complete();
    frames.feed(last);
    number
}

/// Waits for the verdict and goes on reading, so as to notice when the client goes: what a dead client had sent when
/// it was held must never reach the server.
async fn hold(client: &mut ReadHalf<'_>, fresh: &mut Vec<u8>, trap: &mut Trap) -> Result<(), Closed> {
    loop {
        tokio::select! {
            verdict = trap.verdict() => {
                return if verdict == Verdict::Release && is_there(client, fresh) { Ok(()) } else { Err(Closed) };
            }
            read = read_some(client, fresh) => read?,
        }
    }
}

/// Asks the kernel itself: the runtime may not have heard yet that a client, killed a moment ago, is gone.
fn is_there(client: &ReadHalf<'_>, fresh: &mut Vec<u8>) -> bool {
    let Ok(socket) = client.as_ref().as_fd().try_clone_to_owned() else { return false };
    let mut socket = net::TcpStream::from(socket);
    let has_no_end = matches!(socket.read_to_end(fresh), Err(error) if error.kind() == ErrorKind::WouldBlock);
    has_no_end && has_open_peer(&socket)
}

/// Whether the other end of a connection is open. On a busy machine its end may not have come here yet; but it is on this machine,
/// and its own state changes at once.
fn has_open_peer(socket: &net::TcpStream) -> bool {
    let (Ok(its), Ok(own)) = (socket.peer_addr(), socket.local_addr()) else { return false };
    // Some clients' sockets are of IPv6, whatever they are connected to.
    let sockets = procfs::net::tcp().into_iter().chain(procfs::net::tcp6()).flatten();
    let is_its = |entry: &TcpNetEntry| {
        (entry.local_address.port(), entry.remote_address.port()) == (its.port(), own.port())
    };
    sockets.filter(is_its).any(|entry| entry.state == TcpState::Established)
}

async fn forward_replies(
    mut server: ReadHalf<'_>,
    mut client: WriteHalf<'_>,
    shared: &Shared,
    awaited: &Awaited,
) -> Result<(), Closed> {
    let mut frames = RespFrames::default();
    let mut fresh = Vec::new();
    loop {
        read_some(&mut server, &mut fresh).await?;
        let is_resp = awaited.is_resp(|| false);
        lag(shared).await;
        while let Some((before, trap)) = next_awaited(awaited, is_resp, &mut frames, &fresh) {
            client.write_all(&fresh[..before]).await?;
            fresh.drain(..before);
            let Some(mut trap) = trap else { break };
            trap.reach();
            if trap.verdict().await == Verdict::Cut {
                return Err(Closed);
            }
        }
        if is_resp {
            frames.feed(&fresh);
        }
        client.write_all(&fresh).await?;
        fresh.clear();
    }
}

/// How many bytes of `fresh` come before the next reply that somebody awaits, and its trap when that reply has begun.
fn next_awaited(
    awaited: &Awaited,
    is_resp: bool,
    frames: &mut RespFrames,
    fresh: &[u8],
) -> Option<(usize, Option<Trap>)> {
    let mut state = awaited.state();
    let number = state.traps.front()?.0;
    let before = if is_resp { frames.feed_until(fresh, number) } else { 0 };
    let has_begun = before < fresh.len();
    Some((before, if has_begun { state.traps.pop_front().map(|(_, trap)| trap) } else { None }))
}

/// Appends what has come, at least one byte. Cancelling it loses nothing.
async fn read_some(from: &mut ReadHalf<'_>, fresh: &mut Vec<u8>) -> Result<(), Closed> {
    fresh.reserve(16 * 1024);
    match from.read_buf(fresh).await? {
        0 => Err(Closed),
        _ => Ok(()),
    }
}

async fn lag(shared: &Shared) {
    if let Mode::Delay(by) = shared.mode() {
        tokio::time::sleep(by).await;
    }
}
