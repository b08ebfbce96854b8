//! Clients, each with its own connection, that send the next request as soon as they have an answer.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

use super::answers::Answers;
use crate::bench::orders::NewOrder;

/// The number of concurrent clients.
pub const CALLERS: usize = 256;

/// The address of the server, and the expected status of its answers.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub address: SocketAddr,
    pub wanted_status: u16,
}

impl Load {
    /// Returns the time that this many clients together take for all requests.
    pub async fn closed_loop(self, requests: Vec<Vec<u8>>, callers: usize) -> Result<Duration> {
        let mut connections = Vec::new();
        for _ in 0..callers {
            connections.push(Caller::connect(self).await?);
        }
        let (requests, next) = (Arc::new(requests), Arc::new(AtomicUsize::new(0)));
        let mut asking = JoinSet::new();
        let began = Instant::now();
        for mut caller in connections {
            let (requests, next) = (Arc::clone(&requests), Arc::clone(&next));
            asking.spawn(async move {
                while let Some(request) = requests.get(next.fetch_add(1, Relaxed)) {
                    caller.ask(request).await?;
                }
                Ok::<(), anyhow::Error>(())
            });
        }
        while let Some(ended) = asking.join_next().await {
            ended??;
        }
        Ok(began.elapsed())
    }
}

/// The request of an order, which is the same for both servers: the bare handler does not read the body.
pub fn request(order: NewOrder) -> Vec<u8> {
    let body = format!(r#"{{"voucherId":"{}","userId":"{}"}}"#, order.voucher, order.user);
    post("/orders", "application/json", &body)
}

/// A request with this body.
pub fn post(path: &str, content_type: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nHost: gate\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// One client with its connection.
#[derive(Debug)]
pub struct Caller {
    stream: TcpStream,
    answers: Answers,
    wanted_status: u16,
}

impl Caller {
    pub async fn connect(load: Load) -> Result<Self> {
        let stream = TcpStream::connect(load.address).await.context("Failed to connect")?;
        stream.set_nodelay(true)?;
        Ok(Self::over(stream, load.wanted_status))
    }

    pub fn over(stream: TcpStream, wanted_status: u16) -> Self {
        Self { stream, answers: Answers::default(), wanted_status }
    }

    pub async fn ask(&mut self, request: &[u8]) -> Result<()> {
        self.stream.write_all(request).await.context("Failed to ask")?;
        self.hear().await
    }

    /// Waits for the next answer.
    pub async fn hear(&mut self) -> Result<()> {
        let mut chunk = [0; 4096];
        while !self.answers.take(self.wanted_status)? {
            let read = self.stream.read(&mut chunk).await.context("Failed to hear")?;
            ensure!(read > 0, "The connection was closed");
            self.answers.push(&chunk[..read]);
        }
        Ok(())
    }

    /// Whether the connection is open and nothing has been received.
    pub fn is_idle(&self) -> bool {
        let tried = self.stream.try_read(&mut [0]);
        tried.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }
}
