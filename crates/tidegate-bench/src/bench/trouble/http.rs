//! A minimal HTTP client for probes.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// The timeout, as long as an orchestrator's probe waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether a page is answered with 200 within the timeout.
pub async fn is_ok(address: SocketAddr, path: &str) -> bool {
    matches!(timeout(PATIENCE, status(address, path)).await, Ok(Ok(status)) if status.contains(" 200 "))
}

async fn status(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: worker\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await?;
    Ok(String::from_utf8_lossy(&reply).lines().next().unwrap_or_default().to_owned())
}
