//! The report of a change of the partition list.

use serde::Serialize;
use serde_json::{Value as Json, json};

use crate::{change::Report, partition_list::ChangeStep};

/// The report of what a change of the list has done in this run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ChangeReport {
    /// The tags of the old list; empty: no partitions.
    pub from: Vec<String>,
    /// The tags of the new list; empty: no partitions.
    pub to: Vec<String>,
    /// The step that was begun last.
    pub step: Option<ChangeStep>,
    /// The number of sales that were closed.
    pub closed: u64,
    /// The number of sales that were copied.
    pub copied: u64,
    /// The number of sales that have moved.
    pub moved: u64,
    /// The number of counters of order ids that were checked or raised.
    pub counters: u64,
    /// The number of sales that were opened.
    pub opened: u64,
    /// Whether the whole change is done.
    #[serde(rename = "done")]
    pub is_done: bool,
}

impl Report for ChangeReport {
    fn counts(&self) -> Json {
        json!({ "closed": self.closed, "moved": self.moved, "opened": self.opened, "done": self.is_done })
    }

    fn torn(&self) -> &'static str {
        "the sale in progress may be copied or not; it is complete in its old partition"
    }
}
