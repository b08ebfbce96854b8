//! `tidegate probe`: asks the worker beside it for `/livez` or `/readyz`, for probes that run a command.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use anyhow::Context;
use clap::{Args, ValueEnum};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{
    Request, StatusCode,
    body::Bytes,
    client::conn::http1,
    header::{AUTHORIZATION, HOST},
};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::{net::TcpStream, time::timeout};

use crate::{
    config::{AdminSettings, Settings},
    exit::{Exit, WrongUsage},
    output::OutputArgs,
};

const EXAMPLES: &str = "\
Examples:
  tidegate probe livez
  tidegate probe readyz

For Kubernetes' exec probes and Docker's HEALTHCHECK. It asks the address of admin.listen with admin.token, so it needs
the configuration of the worker, and it must run on its machine or in its container. Exits with 1 where the worker says
no, or says nothing for 5 s. `livez` is for restarts: a store that is away leaves it at 0. `readyz` is not.";

/// What `tidegate probe` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ProbeArgs {
    /// What to ask
    page: Page,
    #[command(flatten)]
    output: OutputArgs,
}

/// What can be asked.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Page {
    /// Do its lanes turn?
    Livez,
    /// Do both stores answer, and is the consumer group there?
    Readyz,
}

/// Longer than `/readyz` waits for the stores.
const PATIENCE: Duration = Duration::from_secs(5);
/// More than a worker has to say; what listens there may be something else.
const ANSWER_BYTES: usize = 64 * 1024;

/// What `tidegate probe` prints.
#[derive(Debug, Serialize)]
struct Answer {
    yes: bool,
    says: String,
}

/// Asks.
///
/// # Errors
/// When the configuration names no address, or stdout cannot be written to.
pub async fn run(settings: &Settings, args: &ProbeArgs) -> anyhow::Result<Exit> {
    let address = address(&settings.admin)?;
    let path = match args.page {
        Page::Livez => "/livez",
        Page::Readyz => "/readyz",
    };
    let asked = timeout(PATIENCE, ask(address, path, &settings.admin)).await;
    let asked = asked.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within {PATIENCE:?}")));
    let answer = asked
        .with_context(|| format!("Failed to ask the worker at {address}"))
        .unwrap_or_else(|error| Answer { yes: false, says: format!("{error:#}") });
    args.output.print(&answer, |answer| answer.says.clone())?;
    Ok(if answer.yes { Exit::Ok } else { Exit::No })
}

/// Where the worker is to be asked from beside it.
fn address(admin: &AdminSettings) -> Result<SocketAddr, WrongUsage> {
    let Some(mut address) = admin.listen else {
        return Err(WrongUsage("admin.listen is off: the worker cannot be asked".into()));
    };
    if address.port() == 0 {
        return Err(WrongUsage("admin.listen has port 0: name the port to ask".into()));
    }
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    Ok(address)
}

async fn ask(address: SocketAddr, path: &str, admin: &AdminSettings) -> anyhow::Result<Answer> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let mut request = Request::get(path).header(HOST, address.to_string());
    if let Some(token) = &admin.token {
        request = request.header(AUTHORIZATION, format!("Bearer {}", token.reveal()));
    }
    let response = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!("{error}"))?.to_bytes();
    connection.abort();
    let text = String::from_utf8_lossy(&body).trim_end().to_owned();
    Ok(match status {
        StatusCode::OK => Answer { yes: true, says: text },
        StatusCode::SERVICE_UNAVAILABLE => Answer { yes: false, says: text },
        _ => Answer { yes: false, says: format!("{status}: {text}") },
    })
}
