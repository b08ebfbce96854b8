//! The command `tidegate probe`: requests `/livez` or `/readyz` of the local worker, for probes that run a command.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde::Serialize;
use tidegate_compare::text::error_chain;
use tidegate_http::admin_client::{self, StatusCode};
use tokio::time::timeout;

use crate::{
    config::Settings,
    exit::{Exit, WrongUsage},
    output::OutputArgs,
};

const EXAMPLES: &str = "\
Examples:
  tidegate probe livez
  tidegate probe readyz

For Kubernetes' exec probes and Docker's HEALTHCHECK. It sends a request to admin.listen, without a token. It needs the
configuration of the worker, and must run on the worker's machine or in its container. Exits with 1 if the worker
answers no, or does not answer within 5 s.

While a store cannot be reached, `livez` exits with 0, and `readyz` with 1. So restart a worker only if `livez` fails.";

/// The arguments of `tidegate probe`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ProbeArgs {
    /// The page to request from the worker
    page: Page,
    #[command(flatten)]
    output: OutputArgs,
}

/// The pages that the command can request.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Page {
    /// Do all loops (lanes) of the worker make progress?
    Livez,
    /// Do both stores answer, and does the consumer group exist?
    Readyz,
}

/// The timeout of the request. It is longer than `/readyz` waits for the stores.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The note after every failure. Without it, a failure on a machine without a worker would be mistaken for an answer of
/// the worker.
const ONLY_HERE: &str =
    "The probe checks only the worker at the address in admin.listen, not workers at other addresses";

/// The reply of the worker, as the command prints it.
#[derive(Debug, Serialize)]
struct ProbeReply {
    yes: bool,
    says: String,
}

/// Requests an admin page from the worker over HTTP, and prints the reply.
///
/// # Errors
/// When the configuration names no address, or stdout cannot be written to.
pub async fn run(settings: &Settings, args: &ProbeArgs) -> anyhow::Result<Exit> {
    let address = admin_client::address(&settings.admin).map_err(|why| WrongUsage(why.into()))?;
    let path = match args.page {
        Page::Livez => "/livez",
        Page::Readyz => "/readyz",
    };
    let asked = timeout(TIMEOUT, ask(address, path)).await;
    let asked = asked.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within {TIMEOUT:?}")));
    let answer =
        asked.with_context(|| format!("Failed to ask the worker at {address}")).unwrap_or_else(|error| {
            ProbeReply { yes: false, says: format!("{}. {ONLY_HERE}", error_chain(&error)) }
        });
    args.output.print(&answer, |answer| answer.says.clone())?;
    Ok(if answer.yes { Exit::Ok } else { Exit::No })
}

async fn ask(address: SocketAddr, path: &str) -> anyhow::Result<ProbeReply> {
    let (status, body) = admin_client::ask(address, path, None).await?;
    let text = String::from_utf8_lossy(&body).trim_end().to_owned();
    Ok(match status {
        StatusCode::OK => ProbeReply { yes: true, says: text },
        StatusCode::SERVICE_UNAVAILABLE => ProbeReply { yes: false, says: text },
        _ => ProbeReply { yes: false, says: format!("{status}: {text}") },
    })
}
