//! The task that listens for releases of user locks, so that the orders of a locked user are retried at once.

use std::{sync::Arc, time::Duration};

use tidegate_orders::{LockedUsers, UnlockListener};

use super::{Parts, Periodic, ProcessSettings, Routine, Task};

/// The pause before the next connection, after the last one has failed.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

pub fn listen(settings: &ProcessSettings, parts: &Parts, users: Arc<LockedUsers>) -> impl Task + use<> {
    let causes = Arc::clone(parts.counters.set_aside());
    let connection = settings.system.redis.connection();
    let mut listener = UnlockListener::new(users, causes, parts.redis.keys().clone(), connection);
    let routine = Routine::new("listen for releases of user locks", AFTER_FAILURE).without_first_pause();
    Periodic(routine, async move || {
        let Err(error) = listener.run().await;
        Err(error.into())
    })
}
