//! The keys of the list of partitions, which is one for all fleets.

use fred::types::Key;

/// Makes the keys of the list of partitions, and of those who work with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionListKeys {
    list: String,
}

impl PartitionListKeys {
    /// Keys with `prefix` before each.
    pub(super) fn new(prefix: &str) -> Self {
        Self { list: format!("{prefix}tidegate:partitions") }
    }

    /// The tags of all partitions.
    #[must_use]
    pub fn tags(&self) -> Key {
        Key::from(&self.list)
    }

    /// Held by whoever changes the list.
    #[must_use]
    pub fn change(&self) -> Key {
        format!("{}:change", self.list).into()
    }

    /// The tags of partitions that were in the list once.
    #[must_use]
    pub fn retired(&self) -> Key {
        format!("{}:retired", self.list).into()
    }

    /// Which list the gate over HTTP of this name works with.
    #[must_use]
    pub fn gate(&self, name: &str) -> Key {
        format!("{}:gate:{name}", self.list).into()
    }
}
