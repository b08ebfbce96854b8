//! The connection of one client through the proxy.

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

/// Serves until one side closes. Returning closes both sides.
pub(super) async fn serve(mut client: TcpStream, shared: &Shared) {
    let mut weather = shared.weather.subscribe();
    let at_start = *weather.borrow();
    if at_start.mode == Mode::BlackHole {
        return swallow(&mut client, shared).await;
    }
    let target = shared.target.load(Ordering::Relaxed);
    let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await else { return };
    // Small requests must not wait for each other because of the proxy. A closing socket refuses this; that does not
    // matter.
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

/// Reads and discards bytes until the black hole ends. If one side closes, the other does not notice.
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

/// The state that the request side passes to the reply side.
#[derive(Debug, Default)]
struct Awaited(Mutex<AwaitedState>);

#[derive(Debug, Default)]
struct AwaitedState {
    /// Whether the protocol is RESP; known once one side has sent bytes. The server of MySQL sends first.
    is_resp: Option<bool>,
    /// The traps whose reply is awaited, with the number of that reply (from 0; RESP only).
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

/// The error that the connection has ended.
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

/// Consumes the bytes up to the end of a pattern, and returns the number of the request that has its last byte.
fn number_of_request(frames: &mut RespFrames, caught: &[u8]) -> u64 {
    let (before, last) = caught.split_at(caught.len() - 1);
    frames.feed(before);
    let number = frames.complete();
    frames.feed(last);
    number
}

/// Waits for the verdict and continues reading, to notice when the client goes: the held bytes of a dead client must
/// never reach the server.
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

/// Whether the client is still connected, by the kernel: the runtime may not know yet that a client was killed a moment
/// ago.
fn is_there(client: &ReadHalf<'_>, fresh: &mut Vec<u8>) -> bool {
    let Ok(socket) = client.as_ref().as_fd().try_clone_to_owned() else { return false };
    let mut socket = net::TcpStream::from(socket);
    let has_no_end = matches!(socket.read_to_end(fresh), Err(error) if error.kind() == ErrorKind::WouldBlock);
    has_no_end && has_open_peer(&socket)
}

/// Whether the other end of a connection is open. On a busy machine, its end may not have arrived here yet; but it is
/// on this machine, and its own state changes at once.
fn has_open_peer(socket: &net::TcpStream) -> bool {
    let (Ok(its), Ok(own)) = (socket.peer_addr(), socket.local_addr()) else { return false };
    // Some clients use IPv6 sockets, whatever they are connected to.
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

/// The number of bytes of `fresh` before the next awaited reply, and its trap if that reply has begun.
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

/// Appends the received bytes, at least one. Cancelling it loses nothing.
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
