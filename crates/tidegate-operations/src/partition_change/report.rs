//! The report of a change of the partition list.

use serde::Serialize;
use serde_json::{Value as Json, json};

use crate::{change::Report, partition_list::ChangeStep};

/// The report of a change of the partition list: what this run has done.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ChangeReport {
    /// The tags of the old list; empty: the system has no partitions before the change.
    pub from: Vec<String>,
    /// The tags of the new list; empty: the system has no partitions after the change.
    pub to: Vec<String>,
    /// The last step that this run began. A change of the list of partitions has several steps.
    pub step: Option<ChangeStep>,
    /// The number of sales that this run of the change closed for buyers.
    pub closed: u64,
    /// The number of sales that this run copied to their new partition.
    pub copied: u64,
    /// The number of sales that this run removed from their old partition.
    pub moved: u64,
    /// The number of order id counters that this run checked, and increased if necessary.
    pub counters: u64,
    /// The number of sales that this run of the change opened again for buyers.
    pub opened: u64,
    /// Whether the whole change of the list is complete.
    #[serde(rename = "done")]
    pub is_done: bool,
}

impl Report for ChangeReport {
    fn counts(&self) -> Json {
        json!({ "closed": self.closed, "moved": self.moved, "opened": self.opened, "done": self.is_done })
    }

    fn torn(&self) -> &'static str {
        "the sale that was being moved is complete in its old partition, and may or may not be in the new one"
    }
}
