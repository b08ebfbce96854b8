//! The command `tidegate gate`: the process that admits orders for HTTP clients.

use std::sync::Arc;

use clap::Args;
use tidegate_http::{
    gate::{HttpGate, Stopped},
    tokens::Tokens,
};
use tidegate_orders::scripts::SoldOut;
use tidegate_worker::service;
use tokio_util::sync::CancellationToken;

use crate::{config::Settings, exit::Exit, signals::Signals};

const EXAMPLES: &str = "\
Examples:
  tidegate gate
  tidegate gate --set gate.listen=127.0.0.1:8434
  curl -i http://127.0.0.1:8434/orders -H 'Content-Type: application/json' -d '{\"voucherId\": \"7\", \"userId\": \"1001\"}'

For applications that have no Redis client, or do not run Redis scripts themselves: POST /orders places an order, as
tidegate admit does. See docs/http-gate.md. While Redis cannot be reached, the gate keeps running and answers requests
with an error.

On SIGTERM or SIGINT, the gate still accepts requests for gate.leave_ms, while /readyz answers 503. It answers the
requests in progress, then it exits with 0. After a second signal, or if requests are still unanswered after
worker.stop_deadline_ms, it exits with 4. Clients may then send unanswered requests again with the same order id.";

/// The arguments of `tidegate gate`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct GateArgs {}

/// Runs the gate: serves HTTP requests until SIGTERM or SIGINT.
///
/// # Errors
/// When the gate cannot listen on its address.
pub async fn run(settings: &Settings, _args: &GateArgs) -> anyhow::Result<Exit> {
    let mut signals = Signals::listen()?;
    let stop = CancellationToken::new();
    let deadline = settings.worker.stop_deadline;
    let sold_out = Arc::new(SoldOut::new(settings.gate.sold_out_for));
    let tokens = Tokens::open(&settings.tokens)?;
    let gate = HttpGate::open(&settings.system, (&settings.gate, &tokens), &sold_out, stop.clone())?;
    tokio::spawn(tokens.follow());
    tokio::spawn(service::keep_told(gate.service()));
    let mut serving = std::pin::pin!(gate.serve(deadline));
    tokio::select! {
        ended = &mut serving => ended.map(exit),
        name = signals.next() => {
            tracing::info!(signal = name, "stopping: the gate answers the requests in progress first");
            stop.cancel();
            service::tell_stopping();
            tokio::select! {
                ended = serving => ended.map(exit),
                name = signals.next() => {
                    tracing::warn!(signal = name, "second signal: the gate exits now");
                    Ok(Exit::DeadlinePassed)
                }
            }
        }
    }
}

fn exit(stopped: Stopped) -> Exit {
    match stopped {
        Stopped::AllAnswered => Exit::Ok,
        Stopped::SomeUnanswered => Exit::DeadlinePassed,
    }
}
