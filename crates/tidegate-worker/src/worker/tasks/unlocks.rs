//! The task that listens for the ends of user locks, so that the orders of a locked user are tried again at once.

use std::{sync::Arc, time::Duration};

use tidegate_orders::{LockedUsers, UnlockListener};

use super::{NextRun, Parts, Periodic, ProcessSettings, Routine, Task};

/// The pause before the next connection, after the last one has failed.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

pub fn listen(settings: &ProcessSettings, parts: &Parts, users: Arc<LockedUsers>) -> impl Task + use<> {
    let causes = Arc::clone(parts.counters.set_aside());
    let listener = UnlockListener::new(users, causes, parts.redis.keys().clone());
    let connection = settings.system.redis.connection();
    let routine = Routine::new("listen for the ends of user locks", AFTER_FAILURE).without_first_pause();
    Periodic(routine, async move || {
        listener.run(&connection).await?;
        Ok(NextRun::AtOnce)
    })
}
