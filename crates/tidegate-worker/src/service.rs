//! What a service manager (systemd, by `sd_notify`) is told of a worker or of a gate: that it takes orders, how it goes, that it
//! stops, and that its watchdog need not bite. Nothing is sent where nobody asked for it (`NOTIFY_SOCKET`).

use std::{env, future::Future, sync::Arc, time::Duration};

use sd_notify::NotifyState;
use tidegate_stream::breaker::State;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::view::{Phase, View};

/// How often it is looked whether there is anything new to tell.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What a service manager is told of.
pub trait Service: Send + Sync {
    /// Whether it does its work now, and how it goes: one line, without what changes all the time.
    fn state(&self) -> impl Future<Output = (bool, String)> + Send;

    /// What has been at one thing for too long. The watchdog is told nothing while there is any.
    fn stuck(&self) -> Vec<String>;
}

/// The workers of a process, one for each partition.
#[derive(Debug)]
pub struct Workers(pub Vec<Arc<View>>);

impl Service for Workers {
    async fn state(&self) -> (bool, String) {
        // In this order: who takes orders now is not said to wait for something.
        let takes_orders = self.0.iter().any(|view| view.takes_orders());
        (takes_orders, status_of_all(&self.0))
    }

    fn stuck(&self) -> Vec<String> {
        self.0.iter().flat_map(|view| view.stuck()).collect()
    }
}

/// Tells all there is to tell, until the process ends.
pub async fn keep_told(service: impl Service) {
    if env::var_os("NOTIFY_SOCKET").is_some() {
        tokio::join!(tell_states(&service), keep_watchdog_calm(&service));
    }
}

/// The process ends soon. Told by whoever decides so: afterwards there may be no time.
pub fn tell_stopping() {
    send(&[NotifyState::Stopping, NotifyState::Status("stopping: what is in progress is finished")]);
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

/// One line, without what changes all the time: of the first partition that is not well, or of all.
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
        (Phase::Stopping, _) => return "stopping: what is in progress is finished".into(),
        (Phase::Starting, _) | (_, None) => {
            return "waiting for Redis, its consumer group or the name of the worker".into();
        }
        (Phase::Running, Some(parts)) => parts,
    };
    if !view.stuck().is_empty() {
        return "stuck: SIGUSR1 writes the state of every lane to the log".into();
    }
    if view.pause_switch().is_paused() {
        return "paused: nothing is read until it is resumed".into();
    }
    match parts.breaker.state() {
        State::Open { outage, .. } => format!("{} is away: nothing is read until it answers", outage.store),
        State::Closed => "writing orders".into(),
    }
}

/// Says that all is well twice within the time after which the watchdog bites, for as long as nothing is stuck.
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
            tracing::warn!(stuck = stuck.join("; "), "the watchdog is not told any more that all is well");
        }
        was_stuck = !stuck.is_empty();
    }
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager cannot be told");
    }
}
