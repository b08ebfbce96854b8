//! What a change of the list has done.

use serde::Serialize;
use serde_json::{Value as Json, json};

use crate::{change::Report, partition_list::ChangeStep};

/// What a change of the list has done so far, in this run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ChangeReport {
    /// The tags before; none: one whole.
    pub from: Vec<String>,
    /// The tags afterwards.
    pub to: Vec<String>,
    /// The step that was begun last.
    pub step: Option<ChangeStep>,
    /// Sales that were closed.
    pub closed: u64,
    /// Sales that were copied.
    pub copied: u64,
    /// Sales that have moved.
    pub moved: u64,
    /// Counters of order ids that were looked at or raised.
    pub counters: u64,
    /// Sales that were opened.
    pub opened: u64,
    /// All is done.
    #[serde(rename = "done")]
    pub is_done: bool,
}

impl Report for ChangeReport {
    fn counts(&self) -> Json {
        json!({ "closed": self.closed, "moved": self.moved, "opened": self.opened, "done": self.is_done })
    }

    fn torn(&self) -> &'static str {
        "the sale in progress may be copied or not; it is whole where it was"
    }
}
