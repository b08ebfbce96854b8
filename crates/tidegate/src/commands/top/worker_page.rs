//! The page `/status` of a worker of this machine.

use std::{collections::BTreeMap, net::SocketAddr};

use anyhow::{Context, ensure};
use serde::Deserialize;
use tidegate_compare::text::printable;
use tidegate_http::{
    AdminSettings,
    admin_client::{self, StatusCode},
};

/// The page of a system without partitions, or the pages of all partitions.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum WorkerPages {
    /// The pages of the partitions, by their tags.
    OfPartitions {
        /// The page of each partition, by its tag.
        partitions: BTreeMap<String, WorkerPage>,
    },
    /// The page of a system without partitions.
    Whole(WorkerPage),
}

impl WorkerPages {
    /// The page of the partition with this tag. None: the worker does not process that partition.
    pub fn of(&self, tag: Option<&str>) -> Option<WorkerPage> {
        match (self, tag) {
            (Self::OfPartitions { partitions }, Some(tag)) => partitions.get(tag).cloned(),
            (Self::Whole(page), None) => Some(page.clone()),
            _ => None,
        }
    }
}

/// The parts of the page that are shown. Values that a worker of another version does not report are missing.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct WorkerPage {
    /// The state of the worker itself.
    pub worker: WorkerState,
    /// The stream that the worker reads; None while it cannot reach Redis.
    pub stream: Option<StreamKey>,
}

/// The state of a worker.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct WorkerState {
    /// The name of the worker.
    pub name: String,
    /// The phase of its life, such as `running`.
    pub phase: String,
    /// The outage that keeps it from reading.
    pub breaker: Option<StoreOutage>,
    /// The pauses that keep it from reading.
    pub paused: Vec<ReadingPause>,
    /// The lanes of the worker.
    pub lanes: Vec<ReportedLane>,
    /// The counts of its orders.
    pub orders: OrderNumbers,
}

/// The outage of a store.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct StoreOutage {
    /// The name of the store.
    pub store: String,
    /// The error of the store.
    pub error: String,
    /// The duration of the outage, in seconds.
    pub lasting_s: f64,
}

/// A time in which a worker reads no entries.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ReadingPause {
    /// The reason, in a word.
    pub reason: String,
    /// The duration of the pause, in seconds.
    pub lasting_s: f64,
}

/// The state of a lane.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ReportedLane {
    /// The name of its consumer.
    pub consumer: String,
    /// The activity of the lane.
    pub activity: String,
    /// The duration of the activity, in seconds.
    pub lasting_s: f64,
    /// The number of entries in its batch. A worker of the version before calls it `in_hand`.
    #[serde(alias = "in_hand")]
    pub in_progress: u64,
    /// Whether the activity lasts too long.
    pub is_stuck: bool,
}

impl ReportedLane {
    /// The activity of the worker, in words.
    pub fn doing(&self) -> String {
        printable(&self.activity.replace('_', " "))
    }
}

/// The counts of orders since the start of the worker.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct OrderNumbers {
    /// The number of rows that it wrote.
    pub created: u64,
}

/// The stream and group that a worker reads.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct StreamKey {
    /// The key of the stream.
    pub name: String,
    /// The name of the group.
    pub group: String,
}

/// Reads the page of the worker at this address.
///
/// # Errors
/// When no program answers there, or one that is no worker, or a worker that requires another token.
pub async fn read(address: SocketAddr, admin: &AdminSettings) -> anyhow::Result<WorkerPages> {
    let (status, page) = admin_client::ask(address, "/status", admin).await?;
    ensure!(status != StatusCode::UNAUTHORIZED, "it requires another admin.token");
    ensure!(status == StatusCode::OK, "it answered {status}");
    serde_json::from_slice(&page).context("it is no worker")
}
