//! Switches to another host if the current one accepts no orders, and back to the first when that is well again.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use sqlx::MySqlConnection;
use tokio::time::{MissedTickBehavior, interval};

use super::Sessions;

/// The time between two checks of the hosts.
const EVERY: Duration = Duration::from_millis(500);
/// The time after which a node that has not answered counts as away.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// The number of consecutive checks that the first host must pass before sessions return to it. Otherwise they would
/// follow a host that comes and goes.
const LOOKS_BEFORE_RETURN: u32 = 6;

impl Sessions {
    /// Checks the hosts again and again while the future is polled, and makes new sessions connect to a host that
    /// accepts orders. With a single host, the call does nothing.
    pub async fn watch(&self) {
        let hosts = self.shared.settings.hosts.len();
        if hosts == 1 {
            return std::future::pending().await;
        }
        let mut kept: Vec<Option<MySqlConnection>> = (0..hosts).map(|_| None).collect();
        self.log_hosts(&mut kept).await;
        let mut well_for = 0;
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let here = self.shared.current.load(Relaxed);
            if let Err(reason) = self.shared.look_at(here, &mut kept[here]).await {
                well_for = 0;
                self.leave(here, &reason, &mut kept).await;
            } else if here != 0 {
                let first = self.shared.look_at(0, &mut kept[0]).await;
                well_for = if first.is_ok() { well_for + 1 } else { 0 };
                if well_for >= LOOKS_BEFORE_RETURN
                    && let Ok(status) = first
                {
                    well_for = 0;
                    self.switch_to(0, &status);
                    tracing::info!(
                        host = self.host(),
                        "the first MySQL node takes orders again: sessions return to this node"
                    );
                }
            }
        }
    }

    async fn leave(&self, here: usize, reason: &str, kept: &mut [Option<MySqlConnection>]) {
        for at in (0..kept.len()).filter(|at| *at != here) {
            if let Ok(status) = self.shared.look_at(at, &mut kept[at]).await {
                self.switch_to(at, &status);
                tracing::warn!(
                    left = self.shared.name_of(here),
                    host = self.host(),
                    reason,
                    "a MySQL node takes no orders: sessions go to another node"
                );
                return;
            }
        }
    }

    /// Logs every host once, so that an operator learns of an unfit host before it is needed.
    async fn log_hosts(&self, kept: &mut [Option<MySqlConnection>]) {
        for (at, kept) in kept.iter_mut().enumerate() {
            let looked = self.shared.look_at(at, kept).await;
            let host = self.shared.name_of(at);
            match looked {
                Ok(_) => tracing::debug!(host, "a MySQL node takes orders"),
                Err(reason) => tracing::warn!(host, reason, "a MySQL node takes no orders"),
            }
        }
    }
}
