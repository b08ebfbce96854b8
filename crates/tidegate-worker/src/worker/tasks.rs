//! The list of a worker's background tasks.

mod busy_marker;
mod calendar;
mod expire;
mod pause;
mod reconcile;
mod results;
mod stream;
pub mod summary;
mod unlocks;

use std::sync::Arc;

use fred::types::Key;
use tidegate_operations::{
    busy_marker::BusyMarker,
    calendar::{WarmUp, WindowCarrier},
    expirations::Sweeper,
    vouchers::VoucherStores,
};
use tidegate_orders::{LockedUsers, Publisher};
use tidegate_stream::{Leases, PauseSwitch};
use tokio::sync::Semaphore;

use self::{
    busy_marker::{MarkBusy, forget_marks, limited_log},
    expire::Expire,
    pause::watch_pause,
    reconcile::Reconciler,
    summary::summary,
};
use super::{
    background::{Background, NextRun, Periodic, Routine, Run, Task},
    fleet_lease::FleetLease,
    shard::Shard,
};
use crate::{on_heap::on_heap, settings::ProcessSettings, view::Parts};

/// Creates the list of background tasks of one worker.
pub fn tasks(
    settings: &ProcessSettings,
    parts: &Parts,
    shard: &Shard,
    (publisher, sweeper): (Publisher, Sweeper),
    pause_switch: Arc<PauseSwitch>,
    comparisons: Arc<Semaphore>,
    locked_users: Option<Arc<LockedUsers>>,
) -> Vec<Background> {
    let (ProcessSettings { worker, busy_marker, .. }, redis) = (settings, &parts.redis);
    let keys = redis.keys().fleet();
    let lease = |key: Key| FleetLease::new(Leases::new(redis), key, &worker.name);
    let (busy_marks, mysql) = (limited_log(), parts.sessions.pool(1));
    let marker = || BusyMarker::new(*busy_marker, redis.clone(), mysql.clone());
    let mut tasks = vec![
        Background::new(watch_pause(parts, pause_switch)),
        Background::new(stream::prune(settings, parts)),
        Background::new(stream::remove_consumers(settings, parts)),
        Background::new(stream::watch_server_clock(settings, parts)),
        Background::new(results::prune(settings, parts)),
        Background::new(results::publish_remembered(publisher)).when(shard.is_right()),
        Background::new(summary(settings, parts)),
        Background::new(Expire::new(sweeper)).when(shard.is_right()).under(lease(keys.sweeper())),
        Background::new(Reconciler::new(settings, parts, comparisons)).when(shard.is_right()),
        Background::new(forget_marks(marker(), Arc::clone(&busy_marks))),
    ];
    if busy_marker.is_used() {
        let task = MarkBusy { marker: marker(), busy: Arc::clone(&parts.busy), log: busy_marks };
        tasks.push(Background::new(task).under(lease(keys.busy_marker())));
    }
    tasks.extend(locked_users.map(|users| Background::new(unlocks::listen(settings, parts, users))));
    let within = settings.system.mysql.statement_timeout;
    if let Some(ahead) = settings.system.calendar.warm_up {
        let stores = VoucherStores::new(redis.clone(), parts.sessions.pool(1));
        let task = calendar::warm_up(WarmUp::new(stores, ahead, within), Arc::clone(&parts.not_loaded));
        tasks.push(Background::new(task).when(shard.is_right()).under(lease(keys.warm_up())));
    }
    if settings.system.calendar.carries_windows {
        let task = calendar::carry_windows(WindowCarrier::new(redis.clone(), parts.sessions.pool(1), within));
        tasks.push(Background::new(task).when(shard.is_right()).under(lease(keys.calendar())));
    }
    tasks
}
