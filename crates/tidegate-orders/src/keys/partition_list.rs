//! The keys of the list of partitions, which is one for all fleets.

use fred::types::Key;

/// Makes the keys of the list of partitions, and of those who work with it.
#[derive(Clone, Copy, Debug)]
pub struct PartitionListKeys<'a> {
    /// Before each of them.
    pub(super) prefix: &'a str,
}

impl PartitionListKeys<'_> {
    /// The tags of all partitions.
    #[must_use]
    pub fn tags(&self) -> Key {
        format!("{}tidegate:partitions", self.prefix).into()
    }

    /// Held by whoever changes the list.
    #[must_use]
    pub fn change(&self) -> Key {
        format!("{}tidegate:partitions:change", self.prefix).into()
    }

    /// The tags of partitions that were in the list once.
    #[must_use]
    pub fn retired(&self) -> Key {
        format!("{}tidegate:partitions:retired", self.prefix).into()
    }

    /// Which list the gate over HTTP of this name works with.
    #[must_use]
    pub fn gate(&self, name: &str) -> Key {
        format!("{}tidegate:partitions:gate:{name}", self.prefix).into()
    }
}
