//! The Redis keys of a fleet: the workers of one stream.

use fred::types::Key;

use super::Pattern;

/// The suffix after the key of a heartbeat, for the work in progress.
pub(crate) const IN_PROGRESS: &str = ":hands";

/// The first words of the names of these keys. By them, [`Keys::is_own`](super::Keys::is_own) recognizes the keys of a
/// fleet.
pub(super) const NAMES: [&str; 9] =
    ["worker", "log", "pause", "mark", "sweeper", "reconciler", "reconciled", "webhooks", "calendar"];

/// The maker of the keys that all workers of one stream and their operators share: heartbeats, pause, leases and the
/// log of actions.
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

    /// The key for the heartbeat of the worker process `name`.
    #[must_use]
    pub fn heartbeat(&self, name: &str) -> Key {
        format!("{}{name}", self.heartbeats).into()
    }

    /// The key for the start time of the oldest batch that the worker process `name` has in progress. The key begins
    /// with the key of the heartbeat of this process.
    #[must_use]
    pub fn work_in_progress(&self, name: &str) -> Key {
        format!("{}{name}{IN_PROGRESS}", self.heartbeats).into()
    }

    /// The pattern for all heartbeats and for the work in progress that worker processes publish, for SCAN.
    #[must_use]
    pub(crate) fn heartbeats(&self) -> Pattern<'_> {
        Pattern::beginning(&self.heartbeats)
    }

    /// The key for the log of actions by operators.
    #[must_use]
    pub fn log(&self) -> Key {
        self.key("log")
    }

    /// The key for the pause of all workers of the stream. While this key exists, workers read no entries.
    #[must_use]
    pub fn pause(&self) -> Key {
        self.key("pause")
    }

    /// The key for the restore counter, a number that shows whether Redis went back in time.
    #[must_use]
    pub fn restore_counter(&self) -> Key {
        self.key("mark")
    }

    /// The key for the lease of the worker that lets unpaid orders expire.
    #[must_use]
    pub fn sweeper(&self) -> Key {
        self.key("sweeper")
    }

    /// The key for the lease of the worker that marks sales as busy, so that scripts refuse new orders.
    #[must_use]
    pub fn busy_marker(&self) -> Key {
        self.key("sweeper:busy")
    }

    /// The key that exists while some sales are marked as busy without an expiry time. Scripts refuse orders of a
    /// marked sale until a worker removes the mark.
    #[must_use]
    pub fn sales_need_workers(&self) -> Key {
        self.key("sweeper:need-workers")
    }

    /// The key for the lease of the worker that carries changed windows from MySQL to Redis.
    #[must_use]
    pub fn calendar(&self) -> Key {
        self.key("calendar")
    }

    /// The key for the lease of the worker that loads vouchers before their sales begin.
    #[must_use]
    pub fn warm_up(&self) -> Key {
        self.key("calendar:warm-up")
    }

    /// The key for the lease of the program that compares Redis and MySQL, or that repairs or rebuilds Redis or MySQL.
    #[must_use]
    pub fn reconciler(&self) -> Key {
        self.key("reconciler")
    }

    /// The key for the findings of the last comparison of Redis and MySQL.
    #[must_use]
    pub fn reconciled(&self) -> Key {
        self.key("reconciled")
    }

    /// The key for the hash with the notes about webhooks: pauses, unsent results that were deleted, and senders.
    #[must_use]
    pub fn webhooks(&self) -> Key {
        self.key("webhooks")
    }

    /// The key for the lease of the worker that sends the results of the webhook `name`.
    #[must_use]
    pub fn webhook_sender(&self, name: &str) -> Key {
        self.key(&format!("webhooks:{name}"))
    }

    /// The key for a lock of the replay (the processing of old entries again) with the id `id`. The replay writes this
    /// key to check that replicas have the written data.
    #[must_use]
    pub fn replay(&self, id: &str) -> Key {
        self.key(&format!("log:replay:{id}"))
    }
}

/// The name of the worker process of a consumer. For example, the consumer `shop-7-1` is the first consumer of the
/// process `shop-7`. The heartbeat of the process shows whether the process is alive.
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
