//! The times at which entries were added and acknowledged, as a replica sees them. Redis sends its replicas every
//! change at once, so no polling is needed, and no script or worker has to cooperate. It costs Redis a copy of the
//! bytes that it writes to its append-only file anyway.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::TcpStream,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};

use super::orders::Orders;

/// The time at which each order was added to the stream, and the time at which its entry was acknowledged.
#[derive(Debug)]
pub struct Seen {
    pub added: Vec<Option<Instant>>,
    pub acknowledged: Vec<Option<Instant>>,
}

/// A replica that stores only times.
pub struct Tap {
    acknowledged: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    listener: JoinHandle<Result<Seen>>,
}

impl Tap {
    /// Begins to listen for `orders`. Redis should hold little data, because it sends all of it first.
    pub fn start(port: u16, orders: &Orders) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        (&stream).write_all(b"SYNC\r\n")?;
        let mut input = BufReader::with_capacity(256 * 1024, stream);
        skip_snapshot(&mut input).context("Failed to become a replica")?;
        input.get_ref().set_read_timeout(Some(Duration::from_millis(50)))?;

        let (acknowledged, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let mut ears = Ears {
            first: orders.ids().0,
            entries: HashMap::with_capacity(orders.len()),
            seen: Seen { added: vec![None; orders.len()], acknowledged: vec![None; orders.len()] },
            count: Arc::clone(&acknowledged),
        };
        let is_over = Arc::clone(&stop);
        let listener = thread::spawn(move || {
            ears.listen(&mut input, &is_over)?;
            Ok(ears.seen)
        });
        Ok(Self { acknowledged, stop, listener })
    }

    /// The number of orders that are acknowledged so far.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged.load(Relaxed)
    }

    pub fn finish(self) -> Result<Seen> {
        self.stop.store(true, Relaxed);
        self.listener.join().map_err(|_| anyhow!("The tap panicked"))?
    }
}

/// Skips `$<length>\r\n<snapshot>`, with empty lines before it while Redis makes the snapshot.
fn skip_snapshot(input: &mut BufReader<TcpStream>) -> Result<()> {
    let mut line = String::new();
    while line.trim().is_empty() {
        line.clear();
        ensure!(input.read_line(&mut line)? > 0, "Redis has closed the connection");
    }
    let length: u64 = line.trim().strip_prefix('$').and_then(|length| length.parse().ok()).context(line)?;
    std::io::copy(&mut input.take(length), &mut std::io::sink())?;
    Ok(())
}

struct Ears {
    first: i64,
    entries: HashMap<Box<[u8]>, usize>,
    seen: Seen,
    count: Arc<AtomicUsize>,
}

impl Ears {
    fn listen(&mut self, input: &mut BufReader<TcpStream>, stop: &AtomicBool) -> Result<()> {
        let mut bytes = input.buffer().to_vec();
        let mut chunk = vec![0; 256 * 1024];
        let mut words = Vec::new();
        while !stop.load(Relaxed) {
            let read = match input.get_mut().read(&mut chunk) {
                Ok(0) => return Err(anyhow!("Redis has closed the replica's connection")),
                Ok(read) => read,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
                Err(error) => return Err(error.into()),
            };
            let now = Instant::now();
            bytes.extend_from_slice(&chunk[..read]);
            let mut at = 0;
            while let Some(end) = next_command(&bytes, at, &mut words)? {
                self.hear(&bytes, &words, now);
                at = end;
            }
            bytes.drain(..at);
        }
        Ok(())
    }

    fn hear(&mut self, bytes: &[u8], words: &[Range<usize>], now: Instant) {
        let word = |at: usize| &bytes[words[at].clone()];
        let Some(name) = words.first().map(|name| &bytes[name.clone()]) else { return };
        if name.eq_ignore_ascii_case(b"XADD") {
            let Some(id) = (1..words.len() - 1).rev().find(|at| word(*at) == b"id") else { return };
            // The id of the entry comes before the fields: it is the first word that begins with a digit and has a
            // dash.
            let entry = (2..id).map(word).find(|word| word[0].is_ascii_digit() && word.contains(&b'-'));
            if let (Some(entry), Some(order)) = (entry, self.index(word(id + 1))) {
                self.entries.insert(entry.into(), order);
                self.seen.added[order] = Some(now);
            }
        } else if name.eq_ignore_ascii_case(b"XACK") || name.eq_ignore_ascii_case(b"XACKDEL") {
            for entry in words.iter().skip(3) {
                let Some(order) = self.entries.get(&bytes[entry.clone()]) else { continue };
                if self.seen.acknowledged[*order].replace(now).is_none() {
                    self.count.fetch_add(1, Relaxed);
                }
            }
        }
    }

    fn index(&self, id: &[u8]) -> Option<usize> {
        let id: i64 = str::from_utf8(id).ok()?.parse().ok()?;
        usize::try_from(id - self.first).ok().filter(|index| *index < self.seen.added.len())
    }
}

/// Finds the words of the command that begins at `at`, and returns its end. None: the command is not complete yet.
fn next_command(bytes: &[u8], at: usize, words: &mut Vec<Range<usize>>) -> Result<Option<usize>> {
    words.clear();
    let mut at = at;
    // A line by itself is a keepalive.
    while bytes.get(at) == Some(&b'\n') {
        at += 1;
    }
    let Some(count) = number(bytes, b'*', &mut at)? else { return Ok(None) };
    for _ in 0..count {
        let Some(length) = number(bytes, b'$', &mut at)? else { return Ok(None) };
        if bytes.len() < at + length + 2 {
            return Ok(None);
        }
        words.push(at..at + length);
        at += length + 2;
    }
    Ok(Some(at))
}

/// Parses `<kind><digits>\r\n`, and returns the number.
fn number(bytes: &[u8], kind: u8, at: &mut usize) -> Result<Option<usize>> {
    let Some(first) = bytes.get(*at) else { return Ok(None) };
    ensure!(*first == kind, "{:?} instead of {:?} in the replica's stream", *first as char, kind as char);
    let Some(length) = bytes[*at..].iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let digits = str::from_utf8(&bytes[*at + 1..*at + length])?.trim_end();
    *at += length + 1;
    Ok(Some(digits.parse()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_whole_or_not_at_all() {
        let bytes = b"\n*2\r\n$4\r\nPING\r\n$2\r\nhi\r\n*1\r\n$4\r\nEX";
        let mut words = Vec::new();
        let end = next_command(bytes, 0, &mut words).unwrap().unwrap();
        assert_eq!(words.iter().map(|word| &bytes[word.clone()]).collect::<Vec<_>>(), [&b"PING"[..], b"hi"]);
        assert_eq!(next_command(bytes, end, &mut words).unwrap(), None);
    }
}
