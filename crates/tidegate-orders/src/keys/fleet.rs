//! The Redis keys of a fleet: the workers of one stream.

use fred::types::Key;

use super::Pattern;

/// The suffix after the key of a heartbeat, for the work in progress.
pub(crate) const IN_PROGRESS: &str = ":hands";

/// The first words of the names of these keys. By them, [`Keys::is_own`](super::Keys::is_own) recognizes the keys of a
/// fleet.
pub(super) const NAMES: [&str; 7] = ["worker", "log", "pause", "mark", "sweeper", "reconciler", "reconciled"];

/// Makes the keys that the workers of a fleet and its operators share: heartbeats, pause, leases, the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetKeys {
    /// The prefix of every key.
    prefix: String,
    /// The prefix before the name of a worker process.
    heartbeats: String,
}

impl FleetKeys {
    /// The keys of `fleet`, each behind `prefix`.
    pub(super) fn new(prefix: &str, fleet: &str) -> Self {
        let prefix = format!("{prefix}{fleet}tidegate:");
        let heartbeats = format!("{prefix}worker:");
        Self { prefix, heartbeats }
    }

    /// The key of the fleet that ends with `name`.
    pub(super) fn key(&self, name: &str) -> Key {
        format!("{}{name}", self.prefix).into()
    }

    /// The key of the heartbeat of the worker process `name`.
    #[must_use]
    pub fn heartbeat(&self, name: &str) -> Key {
        format!("{}{name}", self.heartbeats).into()
    }

    /// The key of the time since when the worker process `name` has its oldest batch in progress. Its name begins with
    /// that of the heartbeat.
    #[must_use]
    pub fn work_in_progress(&self, name: &str) -> Key {
        format!("{}{name}{IN_PROGRESS}", self.heartbeats).into()
    }

    /// The pattern for all heartbeats and for the work in progress that worker processes publish, for SCAN.
    #[must_use]
    pub(crate) fn heartbeats(&self) -> Pattern<'_> {
        Pattern::beginning(&self.heartbeats)
    }

    /// The key of the log of operators' actions.
    #[must_use]
    pub fn log(&self) -> Key {
        self.key("log")
    }

    /// The key of the pause of the fleet. While it exists, workers read nothing.
    #[must_use]
    pub fn pause(&self) -> Key {
        self.key("pause")
    }

    /// The key of the restore counter, a number that shows when Redis went back in time.
    #[must_use]
    pub fn restore_counter(&self) -> Key {
        self.key("mark")
    }

    /// The key of the lease of the worker that lets unpaid orders expire.
    #[must_use]
    pub fn sweeper(&self) -> Key {
        self.key("sweeper")
    }

    /// The key of the lease of the worker that marks sales as busy.
    #[must_use]
    pub fn busy_marker(&self) -> Key {
        self.key("sweeper:busy")
    }

    /// The key that exists while sales need workers, because their marks do not expire by themselves.
    #[must_use]
    pub fn sales_need_workers(&self) -> Key {
        self.key("sweeper:need-workers")
    }

    /// The key of the lease of the program that compares both stores, or repairs or rebuilds one of them.
    #[must_use]
    pub fn reconciler(&self) -> Key {
        self.key("reconciler")
    }

    /// The key of the findings of the last comparison of both stores.
    #[must_use]
    pub fn reconciled(&self) -> Key {
        self.key("reconciled")
    }

    /// The key of the lock of the replay `id`. By this lock, the replay sees that replicas have the written data.
    #[must_use]
    pub fn replay(&self, id: &str) -> Key {
        self.key(&format!("log:replay:{id}"))
    }
}

/// The name of the worker process that a consumer belongs to. The heartbeat of that process says whether it lives:
/// `shop-7-1` is lane 1 of `shop-7`.
#[must_use]
pub fn process_of(consumer: &str) -> &str {
    match consumer.rsplit_once('-') {
        Some((process, lane)) if !lane.is_empty() && lane.bytes().all(|byte| byte.is_ascii_digit()) => {
            process
        }
        _ => consumer,
    }
}

#[cfg(test)]
mod tests {
    use super::process_of;

    #[test]
    fn a_consumer_belongs_to_the_process_before_its_lane_number() {
        assert_eq!(process_of("shop-7f9c-1"), "shop-7f9c");
        assert_eq!(process_of("shop-12"), "shop");
        assert_eq!(process_of("c1"), "c1");
        assert_eq!(process_of("shop-a"), "shop-a");
        assert_eq!(process_of("shop-"), "shop-");
    }
}
