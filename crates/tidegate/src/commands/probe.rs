//! `tidegate probe`: asks the worker beside it for `/livez` or `/readyz`, for probes that run a command.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde::Serialize;
use tidegate_compare::text::error_chain;
use tidegate_http::{
    AdminSettings,
    admin_client::{self, StatusCode},
};
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

For Kubernetes' exec probes and Docker's HEALTHCHECK. It asks the address of admin.listen with
admin.token. So it needs the configuration of the worker, and must run on its machine or in its
container. Exits with 1 if the worker says no, or does not answer within 5 s.

`livez` decides on restarts: it stays at 0 while a store is away. `readyz` does not.";

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
const TIMEOUT: Duration = Duration::from_secs(5);
/// Said with every failure: on another machine than the worker's, it would be taken for an answer of the worker.
const ONLY_HERE: &str = "This is admin.listen of this configuration; it says nothing of workers on other machines or at another address";

/// What the worker says, as it is printed.
#[derive(Debug, Serialize)]
struct ProbeReply {
    yes: bool,
    says: String,
}

/// Asks.
///
/// # Errors
/// When the configuration names no address, or stdout cannot be written to.
pub async fn run(settings: &Settings, args: &ProbeArgs) -> anyhow::Result<Exit> {
    let address = admin_client::address(&settings.admin).map_err(|why| WrongUsage(why.into()))?;
    let path = match args.page {
        Page::Livez => "/livez",
        Page::Readyz => "/readyz",
    };
    let asked = timeout(TIMEOUT, ask(address, path, &settings.admin)).await;
    let asked = asked.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within {TIMEOUT:?}")));
    let answer =
        asked.with_context(|| format!("Failed to ask the worker at {address}")).unwrap_or_else(|error| {
            ProbeReply { yes: false, says: format!("{}. {ONLY_HERE}", error_chain(&error)) }
        });
    args.output.print(&answer, |answer| answer.says.clone())?;
    Ok(if answer.yes { Exit::Ok } else { Exit::No })
}

async fn ask(address: SocketAddr, path: &str, admin: &AdminSettings) -> anyhow::Result<ProbeReply> {
    let (status, body) = admin_client::ask(address, path, admin).await?;
    let text = String::from_utf8_lossy(&body).trim_end().to_owned();
    Ok(match status {
        StatusCode::OK => ProbeReply { yes: true, says: text },
        StatusCode::SERVICE_UNAVAILABLE => ProbeReply { yes: false, says: text },
        _ => ProbeReply { yes: false, says: format!("{status}: {text}") },
    })
}
