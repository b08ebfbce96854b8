//! A bare Redis connection: commands and replies as bytes, pipelined as needed. It costs only what Redis costs, because
//! it uses no client library.

use anyhow::{Context, Result, bail};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// A reply of Redis. Texts that are not UTF-8 lose the invalid bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Nil,
    Int(i64),
    Text(String),
    Error(String),
    List(Vec<Reply>),
}

impl Reply {
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            _ => "",
        }
    }

    pub fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    /// The value after `name` in a list of names and values.
    pub fn field(&self, name: &str) -> Option<&Self> {
        self.items().chunks_exact(2).find(|pair| pair[0].text() == name).map(|pair| &pair[1])
    }
}

/// Appends a command to the bytes.
pub fn put_command(out: &mut Vec<u8>, words: &[&str]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
}

/// The received bytes, and how many of them were parsed.
#[derive(Debug, Default)]
pub struct Replies {
    bytes: Vec<u8>,
    at: usize,
}

impl Replies {
    pub fn push(&mut self, bytes: &[u8]) {
        if self.at > 64 * 1024 || self.at == self.bytes.len() {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next reply; None until all of it has been received.
    pub fn next(&mut self) -> Result<Option<Reply>> {
        let mut at = self.at;
        let reply = parse(&self.bytes, &mut at)?;
        if reply.is_some() {
            self.at = at;
        }
        Ok(reply)
    }
}

fn parse(bytes: &[u8], at: &mut usize) -> Result<Option<Reply>> {
    let Some(line) = line(bytes, at) else { return Ok(None) };
    let (kind, rest) = line.split_at_checked(1).context("An empty line instead of a reply")?;
    Ok(Some(match kind {
        "+" => Reply::Text(rest.to_owned()),
        "-" => Reply::Error(rest.to_owned()),
        ":" => Reply::Int(rest.parse().context("An integer reply that is none")?),
        "$" => match usize::try_from(rest.parse::<i64>().context("A length that is none")?) {
            Err(_) => Reply::Nil,
            Ok(length) => {
                let Some(text) = bytes.get(*at..*at + length) else { return Ok(None) };
                if bytes.len() < *at + length + 2 {
                    return Ok(None);
                }
                *at += length + 2;
                Reply::Text(String::from_utf8_lossy(text).into_owned())
            }
        },
        "*" => match usize::try_from(rest.parse::<i64>().context("A length that is none")?) {
            Err(_) => Reply::Nil,
            Ok(length) => {
                let mut items = Vec::with_capacity(length);
                for _ in 0..length {
                    let Some(item) = parse(bytes, at)? else { return Ok(None) };
                    items.push(item);
                }
                Reply::List(items)
            }
        },
        other => bail!("A reply of an unknown kind: {other:?}"),
    }))
}

fn line<'a>(bytes: &'a [u8], at: &mut usize) -> Option<&'a str> {
    let rest = &bytes[*at..];
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    *at += end + 2;
    str::from_utf8(&rest[..end]).ok()
}

/// A connection to Redis.
pub struct Resp {
    stream: TcpStream,
    out: Vec<u8>,
    replies: Replies,
    chunk: Vec<u8>,
}

impl Resp {
    pub async fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.context("Failed to connect to Redis")?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, out: Vec::new(), replies: Replies::default(), chunk: vec![0; 64 * 1024] })
    }

    /// Puts a command into the next packet.
    pub fn queue(&mut self, words: &[&str]) {
        put_command(&mut self.out, words);
    }

    pub async fn flush(&mut self) -> Result<()> {
        self.stream.write_all(&self.out).await.context("Failed to write to Redis")?;
        self.out.clear();
        Ok(())
    }

    /// Waits for the next reply; an error reply is an error.
    pub async fn receive(&mut self) -> Result<Reply> {
        loop {
            match self.replies.next()? {
                Some(Reply::Error(error)) => bail!("Redis answers {error}"),
                Some(reply) => return Ok(reply),
                None => {
                    let read =
                        self.stream.read(&mut self.chunk).await.context("Failed to read from Redis")?;
                    if read == 0 {
                        bail!("Redis has closed the connection");
                    }
                    self.replies.push(&self.chunk[..read]);
                }
            }
        }
    }

    /// Sends one command, and returns its reply.
    pub async fn call(&mut self, words: &[&str]) -> Result<Reply> {
        self.queue(words);
        self.flush().await?;
        self.receive().await.with_context(|| format!("Failed: {}", words.join(" ")))
    }
}
