//! What a worker of this machine says of itself on its page `/status`.

use std::{collections::BTreeMap, net::SocketAddr};

use anyhow::{Context, ensure};
use serde::Deserialize;
use tidegate_compare::text::printable;
use tidegate_http::{
    AdminSettings,
    admin_client::{self, StatusCode},
};

/// What it says: of a system without partitions, or of each partition.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum WorkerPages {
    /// By their tags.
    OfPartitions {
        /// All of them.
        partitions: BTreeMap<String, WorkerPage>,
    },
    /// One.
    Whole(WorkerPage),
}

impl WorkerPages {
    /// What it says of the partition with this tag; None: it does not speak of that.
    pub fn of(&self, tag: Option<&str>) -> Option<WorkerPage> {
        match (self, tag) {
            (Self::OfPartitions { partitions }, Some(tag)) => partitions.get(tag).cloned(),
            (Self::Whole(page), None) => Some(page.clone()),
            _ => None,
        }
    }
}

/// The page, as far as it is shown. What a worker of another version does not say is missing.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct WorkerPage {
    /// The worker itself.
    pub worker: WorkerState,
    /// The stream that it reads; None while it cannot reach Redis.
    pub stream: Option<StreamKey>,
}

/// A worker.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct WorkerState {
    /// Its name.
    pub name: String,
    /// `running`, or another phase of its life.
    pub phase: String,
    /// Why it reads nothing.
    pub breaker: Option<StoreOutage>,
    /// Who wants it to read nothing.
    pub paused: Vec<ReadingPause>,
    /// Its lanes.
    pub lanes: Vec<ReportedLane>,
    /// What it did with orders.
    pub orders: OrderNumbers,
}

/// A store is away.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct StoreOutage {
    /// Which.
    pub store: String,
    /// What it said.
    pub error: String,
    /// For so long.
    pub lasting_s: f64,
}

/// It is to read nothing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ReadingPause {
    /// Why, in a word.
    pub reason: String,
    /// For so long.
    pub lasting_s: f64,
}

/// A lane.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ReportedLane {
    /// Name of its consumer.
    pub consumer: String,
    /// What it does.
    pub activity: String,
    /// For so long.
    pub lasting_s: f64,
    /// Entries in its batch.
    pub in_progress: u64,
    /// For too long.
    pub is_stuck: bool,
}

impl ReportedLane {
    /// What it does, in words.
    pub fn doing(&self) -> String {
        printable(&self.activity.replace('_', " "))
    }
}

/// Orders since the worker's start.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct OrderNumbers {
    /// Rows that it wrote.
    pub created: u64,
}

/// What a worker reads.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct StreamKey {
    /// Key of the stream.
    pub name: String,
    /// Name of the group.
    pub group: String,
}

/// Reads the page.
///
/// # Errors
/// When nobody answers there, or something else than a worker, or one that wants another token.
pub async fn read(address: SocketAddr, admin: &AdminSettings) -> anyhow::Result<WorkerPages> {
    let (status, page) = admin_client::ask(address, "/status", admin).await?;
    ensure!(status != StatusCode::UNAUTHORIZED, "it wants another admin.token");
    ensure!(status == StatusCode::OK, "it answered {status}");
    serde_json::from_slice(&page).context("it is no worker")
}
