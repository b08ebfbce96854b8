//! `tidegate probe`: asks the worker beside it for `/livez` or `/readyz`, for probes that run a command.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context;
use clap::{Args, ValueEnum};
use hyper::StatusCode;
use serde::Serialize;
use tokio::time::timeout;

use crate::{
    beside,
    config::{AdminSettings, Settings},
    exit::{Exit, WrongUsage},
    output::{OutputArgs, told},
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
/// Whoever types this far from the worker would take the answer for that of the worker.
const ELSEWHERE: &str = "This is admin.listen of this configuration: it says nothing of workers on other machines or with another address";

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
    let address = beside::address(&settings.admin).map_err(|why| WrongUsage(why.into()))?;
    let path = match args.page {
        Page::Livez => "/livez",
        Page::Readyz => "/readyz",
    };
    let asked = timeout(PATIENCE, ask(address, path, &settings.admin)).await;
    let asked = asked.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within {PATIENCE:?}")));
    let answer = asked
        .with_context(|| format!("Failed to ask the worker at {address}"))
        .unwrap_or_else(|error| Answer { yes: false, says: format!("{}. {ELSEWHERE}", told(&error)) });
    args.output.print(&answer, |answer| answer.says.clone())?;
    Ok(if answer.yes { Exit::Ok } else { Exit::No })
}

async fn ask(address: SocketAddr, path: &str, admin: &AdminSettings) -> anyhow::Result<Answer> {
    let (status, body) = beside::ask(address, path, admin).await?;
    let text = String::from_utf8_lossy(&body).trim_end().to_owned();
    Ok(match status {
        StatusCode::OK => Answer { yes: true, says: text },
        StatusCode::SERVICE_UNAVAILABLE => Answer { yes: false, says: text },
        _ => Answer { yes: false, says: format!("{status}: {text}") },
    })
}
