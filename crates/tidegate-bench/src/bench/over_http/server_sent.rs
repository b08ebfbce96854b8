//! A client of server-sent events and of pages with a long poll, on a connection of its own.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use http_body_util::{BodyExt, Empty};
use hyper::{
    Request, StatusCode,
    body::{Bytes, Incoming},
    client::conn::http1::{self, SendRequest},
    header::{ACCEPT, HOST},
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// A connection to the gate.
#[derive(Debug)]
pub struct GateClient(SendRequest<Empty<Bytes>>);

impl GateClient {
    pub async fn connect(gate: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(gate).await.context("Failed to connect")?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // The task ends with the sender.
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    async fn get(&mut self, path: &str, accept: &str) -> Result<Incoming> {
        self.0.ready().await?;
        let request = Request::get(path).header(HOST, "gate").header(ACCEPT, accept).body(Empty::new())?;
        let answer = self.0.send_request(request).await?;
        let status = answer.status();
        ensure!(status == StatusCode::OK, "The gate says {status} for {path}");
        Ok(answer.into_body())
    }

    /// Reads a whole page.
    pub async fn page(&mut self, path: &str) -> Result<String> {
        let body = self.get(path, "application/json").await?.collect().await?.to_bytes();
        Ok(String::from_utf8(body.into())?)
    }

    /// Begins a stream of events.
    pub async fn events(&mut self, path: &str) -> Result<Events> {
        Ok(Events { body: self.get(path, "text/event-stream").await?, line: Vec::new() })
    }
}

/// The data of server-sent events.
#[derive(Debug)]
pub struct Events {
    body: Incoming,
    /// The line that has not ended yet.
    line: Vec<u8>,
}

impl Events {
    /// Waits for the next piece of the stream, and calls `each` with the data of each event in it.
    pub async fn next(&mut self, mut each: impl FnMut(&[u8])) -> Result<()> {
        let frame = self.body.frame().await.context("The stream of events has ended")??;
        let Ok(bytes) = frame.into_data() else { return Ok(()) };
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if self.line.ends_with(b"\n") {
                if let Some(data) = self.line.strip_prefix(b"data: ") {
                    each(data);
                }
                self.line.clear();
            }
        }
        Ok(())
    }
}
