//! The command `tidegate probe`: requests `/livez` or `/readyz` of the local worker or gate, for probes that run a command.

use std::{io::ErrorKind, net::SocketAddr, time::Duration};

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde::Serialize;
use tidegate_compare::text::error_chain;
use tidegate_http::{
    admin_client::{self, StatusCode},
    gate,
};
use tokio::{net::TcpStream, time::timeout};

use crate::{
    config::Settings,
    exit::{Exit, WrongUsage},
    output::OutputArgs,
};

const EXAMPLES: &str = "\
Examples:
  tidegate probe livez
  tidegate probe readyz
  tidegate probe --gate readyz
  tidegate probe --any livez

For Kubernetes' exec probes and Docker's HEALTHCHECK. It sends a request to admin.listen, or with --gate to gate.listen,
without a token. It needs the configuration of the worker or the gate, and must run on the same machine or in the same
container. Exits with 1 if the answer is no, or if there is no answer within 5 s.

While a store cannot be reached, `livez` exits with 0, and `readyz` with 1. So restart a process only if `livez` fails.

Over TLS, the probe does not check the name or the authority of the gate's certificate. If the gate requires certificates
of clients (gate.tls_client_ca), the probe sends the gate's own certificate. If the gate would refuse it, `livez` only
checks that the gate begins a TLS connection, and `readyz` fails.";

/// The arguments of `tidegate probe`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ProbeArgs {
    /// The page to request
    page: Page,
    /// Ask the gate (gate.listen) instead of the worker (admin.listen)
    #[arg(long)]
    gate: bool,
    /// Ask the worker, or the gate if no worker listens: for a container that runs one of both
    #[arg(long, conflicts_with = "gate")]
    any: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// The pages that the command can request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Page {
    /// Worker: do all loops (lanes) make progress? Gate: does it answer?
    Livez,
    /// Worker: do both stores answer, and does the consumer group exist? Gate: does it admit orders?
    Readyz,
}

/// The timeout of the request. It is longer than `/readyz` waits for the stores.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The server that the command asks.
#[derive(Clone, Copy, Debug)]
enum Server {
    Worker,
    Gate,
}

impl Server {
    async fn of(args: &ProbeArgs, settings: &Settings) -> Self {
        match (args.gate, args.any) {
            (true, _) => Self::Gate,
            (_, true) => Self::listening(settings).await,
            _ => Self::Worker,
        }
    }

    /// The worker, or the gate if no worker listens. The admin page of `tidegate worker --gate` knows more than its gate.
    async fn listening(settings: &Settings) -> Self {
        let Ok(address) = Self::Worker.address(settings) else { return Self::Gate };
        match timeout(TIMEOUT, TcpStream::connect(address)).await {
            Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => Self::Gate,
            _ => Self::Worker,
        }
    }

    /// The word for the server, and the setting with its address.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Worker => ("worker", "admin.listen"),
            Self::Gate => ("gate", "gate.listen"),
        }
    }

    fn address(self, settings: &Settings) -> Result<SocketAddr, WrongUsage> {
        match self {
            Self::Worker => admin_client::address(&settings.admin),
            Self::Gate => admin_client::address_of(settings.gate.listen, self.names().1),
        }
        .map_err(WrongUsage)
    }

    async fn ask(self, settings: &Settings, address: SocketAddr, page: Page) -> anyhow::Result<ProbeReply> {
        let path = match page {
            Page::Livez => "/livez",
            Page::Readyz => "/readyz",
        };
        let asked = match self {
            Self::Worker => Some(admin_client::ask(address, path, None).await?),
            Self::Gate => gate::probe::ask(&settings.gate, address, path).await?,
        };
        let Some((status, body)) = asked else { return reply_to_handshake(page) };
        let text = String::from_utf8_lossy(&body).trim_end().to_owned();
        Ok(match status {
            StatusCode::OK => ProbeReply { yes: true, says: text },
            StatusCode::SERVICE_UNAVAILABLE => ProbeReply { yes: false, says: text },
            _ => ProbeReply { yes: false, says: format!("{status}: {text}") },
        })
    }
}

/// The reply of the server, as the command prints it.
#[derive(Debug, Serialize)]
struct ProbeReply {
    yes: bool,
    says: String,
}

/// The reply if the gate has begun a handshake, but answers only clients with another certificate.
fn reply_to_handshake(page: Page) -> anyhow::Result<ProbeReply> {
    anyhow::ensure!(
        page == Page::Livez,
        "the gate answers only clients with a certificate of gate.tls_client_ca, and would refuse its own certificate: \
         let one of these authorities sign gate.tls_cert, also for clients"
    );
    Ok(ProbeReply { yes: true, says: "alive (the gate began a TLS connection)".to_owned() })
}

/// Requests a page from the worker or the gate over HTTP, and prints the reply.
///
/// # Errors
/// When the configuration names no address, or stdout cannot be written to.
pub async fn run(settings: &Settings, args: &ProbeArgs) -> anyhow::Result<Exit> {
    let server = Server::of(args, settings).await;
    let (address, (word, setting)) = (server.address(settings)?, server.names());
    let asked = timeout(TIMEOUT, server.ask(settings, address, args.page)).await;
    let asked = asked.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within {TIMEOUT:?}")));
    let asked = asked.with_context(|| format!("Failed to ask the {word} at {address}"));
    let answer = asked.unwrap_or_else(|error| {
        // Without this note, a failure on a machine without the server would be mistaken for an answer of the server.
        let only_here = format!(
            "The probe checks only the {word} at the address in {setting}, not {word}s at other addresses"
        );
        ProbeReply { yes: false, says: format!("{}. {only_here}", error_chain(&error)) }
    });
    args.output.print(&answer, |answer| answer.says.clone())?;
    Ok(if answer.yes { Exit::Ok } else { Exit::No })
}
