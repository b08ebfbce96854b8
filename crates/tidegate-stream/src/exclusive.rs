//! Handling one entry while the process has nothing else in progress.

use std::sync::Arc;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, watch};

/// Shared by all lanes of a process. An entry that processes died of is handled alone: if it takes the process along
/// again, nothing else was in progress, and no entry is blamed for what another one did in the lane beside it.
#[derive(Debug, Default)]
pub struct Exclusive {
    in_progress: Arc<RwLock<()>>,
    wanted: watch::Sender<usize>,
}

/// A lane may have entries in progress for as long as it holds this.
pub(crate) type SharedGuard = OwnedRwLockReadGuard<()>;

impl Exclusive {
    /// Waits until no lane handles an entry alone.
    pub(crate) async fn shared(&self) -> SharedGuard {
        Arc::clone(&self.in_progress).read_owned().await
    }

    /// As [`Exclusive::shared`], where nobody has begun.
    pub(crate) fn try_shared(&self) -> Option<SharedGuard> {
        Arc::clone(&self.in_progress).try_read_owned().ok()
    }

    /// Waits until nobody has anything in progress. Blocked reads of others end: [`Exclusive::exclusive_wanted`].
    pub(crate) async fn exclusive(&self) -> OwnedRwLockWriteGuard<()> {
        let _wish = Wish::new(&self.wanted);
        Arc::clone(&self.in_progress).write_owned().await
    }

    /// Whether a lane waits for [`Exclusive::exclusive`].
    pub(crate) fn is_exclusive_wanted(&self) -> bool {
        *self.wanted.borrow() > 0
    }

    /// Waits until a lane waits for [`Exclusive::exclusive`].
    pub(crate) async fn exclusive_wanted(&self) {
        // The sender lives as long as self, so this cannot fail.
        let _ = self.wanted.subscribe().wait_for(|wanted| *wanted > 0).await;
    }
}

/// Ends with the wait, also when that is given up.
struct Wish<'a>(&'a watch::Sender<usize>);

impl<'a> Wish<'a> {
    fn new(wanted: &'a watch::Sender<usize>) -> Self {
        wanted.send_modify(|count| *count += 1);
        Self(wanted)
    }
}

impl Drop for Wish<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
