//! Callers, each with a connection of its own, who ask again as soon as they are answered.

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
use crate::bench::orders::{NewOrder, Orders};

/// At once.
pub const CALLERS: usize = 256;

/// Who is asked, and how it must answer.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub address: SocketAddr,
    pub wanted_status: u16,
}

impl Load {
    /// How long all callers together take for all orders.
    pub async fn closed_loop(self, orders: &Orders) -> Result<Duration> {
        let mut connections = Vec::new();
        for _ in 0..CALLERS {
            connections.push(Caller::connect(self).await?);
        }
        let (orders, next) = (Arc::new(orders.iter().collect::<Vec<_>>()), Arc::new(AtomicUsize::new(0)));
        let mut callers = JoinSet::new();
        let began = Instant::now();
        for mut caller in connections {
            let (orders, next) = (Arc::clone(&orders), Arc::clone(&next));
            callers.spawn(async move {
                while let Some(order) = orders.get(next.fetch_add(1, Relaxed)) {
                    caller.ask(order).await?;
                }
                Ok::<(), anyhow::Error>(())
            });
        }
        while let Some(ended) = callers.join_next().await {
            ended??;
        }
        Ok(began.elapsed())
    }
}

/// The same for whoever is asked: the bare handler does not look at the body.
pub fn request(order: &NewOrder) -> Vec<u8> {
    let body = format!(r#"{{"voucherId":"{}","userId":"{}"}}"#, order.voucher, order.user);
    let length = body.len();
    format!("POST /orders HTTP/1.1\r\nHost: gate\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// One of them.
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

    pub async fn ask(&mut self, order: &NewOrder) -> Result<()> {
        self.stream.write_all(&request(order)).await.context("Failed to ask")?;
        self.hear().await
    }

    /// The next answer.
    pub async fn hear(&mut self) -> Result<()> {
        let mut chunk = [0; 4096];
        while !self.answers.take(self.wanted_status)? {
            let read = self.stream.read(&mut chunk).await.context("Failed to hear")?;
            ensure!(read > 0, "The connection was closed");
            self.answers.push(&chunk[..read]);
        }
        Ok(())
    }

    /// Nothing has come, and it was not closed.
    pub fn is_idle(&self) -> bool {
        let tried = self.stream.try_read(&mut [0]);
        tried.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }
}
