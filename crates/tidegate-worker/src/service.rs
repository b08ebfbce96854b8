//! The reports to a service manager (systemd, with `sd_notify`) about a worker or a gate: whether it takes orders, its
//! status, its stop, and a signal for the watchdog. Without `NOTIFY_SOCKET`, nothing is sent.

use std::{env, future::Future, sync::Arc, time::Duration};

use sd_notify::NotifyState;
use tidegate_stream::breaker::State;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::view::{Phase, View};

/// The pause between two checks for a new status.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A service that reports to a service manager such as systemd whether it is ready.
pub trait Service: Send + Sync {
    /// Whether the service does its work now, and its status in one line, without values that always change.
    fn state(&self) -> impl Future<Output = (bool, String)> + Send;

    /// The stuck lanes and stores, one sentence for each. While this list is not empty, the watchdog gets no signal.
    fn stuck(&self) -> Vec<String>;
}

/// The workers of a process as a systemd service, with the state of each partition's worker.
#[derive(Debug)]
pub struct Workers(pub Vec<Arc<View>>);

impl Service for Workers {
    async fn state(&self) -> (bool, String) {
        // The order matters: a service that takes orders now must not get the status that it waits.
        let takes_orders = self.0.iter().any(|view| view.takes_orders());
        (takes_orders, status_of_all(&self.0))
    }

    fn stuck(&self) -> Vec<String> {
        self.0.iter().flat_map(|view| view.stuck()).collect()
    }
}

/// Reports the state of a service to the service manager (systemd) until the process ends.
pub async fn keep_told(service: impl Service) {
    if env::var_os("NOTIFY_SOCKET").is_some() {
        tokio::join!(tell_states(&service), keep_watchdog_calm(&service));
    }
}

/// Reports to the service manager that the process will stop. The code that decides to stop must call this function
/// itself, because there may be no time later.
pub fn tell_stopping() {
    send(&[NotifyState::Stopping, NotifyState::Status("stopping: finishing the work in progress")]);
}

async fn tell_states(service: &impl Service) {
    let (mut told, mut is_ready) = (String::new(), false);
    loop {
        let (takes_orders, status) = service.state().await;
        if takes_orders && !is_ready {
            is_ready = true;
            send(&[NotifyState::Ready]);
        }
        if status != told {
            send(&[NotifyState::Status(&status)]);
            told = status;
        }
        sleep(LOOK_EVERY).await;
    }
}

/// The status in one line, without values that always change: of the first partition with a problem, or of all of
/// them.
fn status_of_all(partitions: &[Arc<View>]) -> String {
    let told = partitions.iter().map(|view| (view, status(view)));
    let not_well = told.clone().find(|(view, _)| !view.takes_orders() || view.pause_switch().is_paused());
    match not_well {
        Some((view, status)) if partitions.len() > 1 => {
            format!("partition {}: {status}", view.settings().system.partition())
        }
        Some((_, status)) => status,
        None => told.map(|(_, status)| status).next().unwrap_or_default(),
    }
}

fn status(view: &View) -> String {
    let parts = match (view.phase(), view.parts()) {
        (Phase::Stopping, _) => return "stopping: finishing the work in progress".into(),
        (Phase::Starting, _) | (_, None) => {
            return "waiting for Redis, the consumer group or the lease of the worker's name".into();
        }
        (Phase::Running, Some(parts)) => parts,
    };
    if !view.stuck().is_empty() {
        return "stuck: send SIGUSR1, and the worker logs the state of every lane (consumer)".into();
    }
    if view.pause_switch().is_paused() {
        return "paused: the worker reads no entries until the pause ends".into();
    }
    match parts.breaker.state() {
        State::Open { outage, .. } => format!("{} is unavailable: the worker reads nothing", outage.store),
        State::Closed => "writing orders".into(),
    }
}

/// Sends the watchdog signal twice within its time limit, while no part is stuck.
async fn keep_watchdog_calm(service: &impl Service) {
    let Some(bites_after) = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()) else { return };
    let mut ticks = interval(bites_after / 2);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut was_stuck = false;
    loop {
        ticks.tick().await;
        let stuck = service.stuck();
        if stuck.is_empty() {
            send(&[NotifyState::Watchdog]);
        } else if !was_stuck {
            tracing::warn!(
                stuck = stuck.join("; "),
                "parts of the process are stuck, so the watchdog gets no signal any more"
            );
        }
        was_stuck = !stuck.is_empty();
    }
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "could not report to the service manager");
    }
}
