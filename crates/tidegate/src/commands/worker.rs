//! The command `tidegate worker`: writes the orders of the stream to MySQL until a signal stops it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use tidegate_http::{
    admin,
    gate::{self, Stopped},
    tokens::Tokens,
    webhooks::Webhooks,
};
use tidegate_operations::partition_change::late;
use tidegate_orders::scripts::SoldOut;
use tidegate_worker::{NameTaken, Process, Traces, View, pause_signals::PauseSignals, service};

use crate::{config::Settings, exit::Exit, signals::Signals};

const EXAMPLES: &str = "\
Examples:
  tidegate worker
  tidegate worker --config /etc/tidegate.toml
  tidegate worker --set worker.name=shop-1 --set worker.lanes=4
  tidegate worker --gate

Logs to stderr. Waits for stores that cannot be reached. Its admin page is http://127.0.0.1:8433/ (admin.listen).

  SIGTERM, SIGINT     The worker finishes its batches, then it exits with 0. A second signal, or
                      worker.stop_deadline_ms, ends it at once with 4: entries in progress stay
                      pending, and nothing is lost. With --gate, 4 also means that clients got no
                      answer: they may send the request again with the same order id.
  SIGTSTP (Ctrl-Z)    The worker finishes its batches and reads no entries. The process stays.
  SIGCONT             The worker reads again, unless workers are paused (tidegate pause --workers).
  SIGUSR1             The worker logs the state of each of its loops (lanes).";

/// The arguments of `tidegate worker`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct WorkerArgs {
    /// Also serve the gate over HTTP, as `tidegate gate` does (gate.listen)
    #[arg(long)]
    gate: bool,
}

/// Runs a worker until SIGTERM or SIGINT, and then until the batch in progress is finished. After a second
/// signal, or after `worker.stop_deadline_ms`, the process ends at once, and entries in progress stay pending.
///
/// # Errors
/// When the worker cannot start, or a lane has failed.
pub async fn run(settings: &Settings, args: &WorkerArgs) -> anyhow::Result<Exit> {
    let mut signals = Signals::listen()?;
    let questions = signal(SignalKind::user_defined1())?;
    let stop = CancellationToken::new();
    let pauses = PauseSignals::listen()?;
    let settings_of_partitions = settings.processes();
    let sold_out = Arc::new(SoldOut::new(settings.gate.sold_out_for));
    let process = Process::new(&settings_of_partitions, &stop);
    let process = if args.gate { process.with_sold_out(Arc::clone(&sold_out)) } else { process };
    let views = process.views();
    let pause_switches = views.iter().map(|view| Arc::clone(view.pause_switch())).collect();
    tokio::spawn(pauses.obey(pause_switches));
    tokio::spawn(tell_lanes_on(questions, views.clone()));
    tokio::spawn(service::keep_told(service::Workers(views.clone())));
    // This task ends with the process: an entry that is taken twice is written once.
    tokio::spawn(late::watch(settings.system.clone(), stop.clone()));
    let traces = Traces::start(&settings_of_partitions[0])?.map(Arc::new);
    // The admin pages start first, so that they are visible while the worker waits for Redis or its name.
    let tokens = Tokens::open(&settings.tokens)?;
    let webhooks = Webhooks::open(&settings_of_partitions)?;
    admin::start(&views, &settings.admin, &tokens, webhooks.states()).await?;
    tokio::spawn(Arc::clone(&tokens).follow());
    let gate =
        async { stopping_on_error(&stop, serve(settings, args, (&sold_out, &tokens), stop.clone()).await) };
    let process = async { stopping_on_error(&stop, process.run_until_stopped(traces.clone()).await) };
    let work = async {
        // If one of both fails, the other one is not dropped: requests are answered, and entries in progress are
        // settled. The gate is polled first: if it cannot listen, no work has begun.
        let webhooks = send_apart(webhooks, &stop);
        let (gate, process, ()) = tokio::join!(biased; gate, process, webhooks);
        both(gate, process)
    };
    let mut work = std::pin::pin!(work);
    let mut stopping = None;
    let ended = tokio::select! {
        ended = &mut work => ended,
        name = signals.next() => {
            tracing::info!(signal = name, "stopping: the worker finishes the batch in progress first");
            stop.cancel();
            service::tell_stopping();
            stopping = Some(Instant::now());
            tokio::select! {
                ended = work => ended,
                name = signals.next() => {
                    tracing::warn!(signal = name, "second signal: the worker exits now; entries in progress stay pending");
                    return Ok(Exit::DeadlinePassed);
                }
                () = tokio::time::sleep(settings.worker.stop_deadline) => {
                    tracing::error!("stop deadline passed: the worker exits now; entries in progress stay pending");
                    return Ok(Exit::DeadlinePassed);
                }
            }
        }
    };
    if let Some(traces) = &traces {
        let spent = stopping.map_or(Duration::ZERO, |since| since.elapsed());
        finish(traces, settings.worker.stop_deadline.saturating_sub(spent), &mut signals).await;
    }
    exit(ended)
}

/// Runs the gate over HTTP until `stop`, if `--gate` was given.
async fn serve(
    settings: &Settings,
    args: &WorkerArgs,
    (sold_out, tokens): (&Arc<SoldOut>, &Arc<Tokens>),
    stop: CancellationToken,
) -> anyhow::Result<Stopped> {
    if !args.gate {
        return Ok(Stopped::AllAnswered);
    }
    let deadline = settings.worker.stop_deadline;
    gate::serve(&settings.system, (&settings.gate, tokens), sold_out, deadline, stop).await
}

/// Sends the results of webhooks until `stop`, in a task of its own: an error in the program there ends neither the gate
/// nor the worker.
async fn send_apart(webhooks: Webhooks, stop: &CancellationToken) {
    if let Err(error) = tokio::spawn(webhooks.run(stop.clone())).await {
        tracing::error!(%error, "the webhooks of this worker have failed: restart the worker, and report the error");
    }
}

/// Sends the remaining traces. It stops after the time `rest`, or at another signal.
async fn finish(traces: &Traces, rest: Duration, signals: &mut Signals) {
    tokio::select! {
        () = traces.finish(rest) => {}
        _ = signals.next() => {}
    }
}

/// Cancels `stop` if a task has failed, so that the other task ends, too.
fn stopping_on_error<T>(stop: &CancellationToken, ended: anyhow::Result<T>) -> anyhow::Result<T> {
    ended.inspect_err(|_| stop.cancel())
}

/// Combines the results of the gate and of the worker. An error has priority over unanswered requests.
fn both(gate: anyhow::Result<Stopped>, process: anyhow::Result<()>) -> anyhow::Result<Exit> {
    match (gate, process) {
        (Err(error), _) | (Ok(_), Err(error)) => Err(error),
        (Ok(Stopped::SomeUnanswered), Ok(())) => Ok(Exit::DeadlinePassed),
        (Ok(Stopped::AllAnswered), Ok(())) => Ok(Exit::Ok),
    }
}

/// Logs the activity of every lane each time SIGUSR1 comes.
async fn tell_lanes_on(mut questions: Signal, views: Vec<Arc<View>>) {
    while questions.recv().await.is_some() {
        views.iter().for_each(|view| view.tell_lanes());
    }
}

fn exit(ended: anyhow::Result<Exit>) -> anyhow::Result<Exit> {
    match ended {
        Err(error) if error.is::<NameTaken>() => {
            tracing::error!("{error}");
            Ok(Exit::NameTaken)
        }
        ended => ended,
    }
}
