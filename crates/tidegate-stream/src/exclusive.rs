//! A lock for handling one entry while the process has nothing else in progress.

use std::sync::Arc;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, watch};

/// A lock that all lanes (consumers) of a process share. A lane takes this lock to handle an entry alone if the entry
/// was in progress when earlier processes crashed. If the process then crashes again, that entry must be the cause,
/// because nothing else was in progress.
#[derive(Debug, Default)]
pub struct Exclusive {
    in_progress: Arc<RwLock<()>>,
    wanted: watch::Sender<usize>,
}

/// The guard that a lane holds while it may have entries in progress.
pub(crate) type SharedGuard = OwnedRwLockReadGuard<()>;

impl Exclusive {
    /// Waits until no lane handles an entry alone.
    pub(crate) async fn shared(&self) -> SharedGuard {
        Arc::clone(&self.in_progress).read_owned().await
    }

    /// Like [`Exclusive::shared`], but returns None if a lane handles an entry alone or waits to do so.
    pub(crate) fn try_shared(&self) -> Option<SharedGuard> {
        Arc::clone(&self.in_progress).try_read_owned().ok()
    }

    /// Waits until no lane has entries in progress. Blocked reads of other lanes end: see
    /// [`Exclusive::exclusive_wanted`].
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

/// A request for exclusive use, which ends with the wait, also if that is cancelled.
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
