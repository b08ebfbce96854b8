//! The admin page `/status` of a worker of this machine.

use std::{collections::BTreeMap, net::SocketAddr};

use anyhow::{Context, ensure};
use secrecy::SecretString;
use serde::Deserialize;
use tidegate_compare::text::printable;
use tidegate_http::admin_client::{self, StatusCode};

/// The answer of a worker's page `/status`: one page of a system without partitions, or one page for each partition.
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

/// The values that the live view takes from a worker's page `/status`. A value that the page lacks has its default.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct WorkerPage {
    /// The state of the worker process.
    pub worker: WorkerState,
    /// The stream that the worker reads; None while the worker cannot reach Redis.
    pub stream: Option<StreamKey>,
}

/// The state of a worker, as its page `/status` reports it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct WorkerState {
    /// The name of the worker.
    pub name: String,
    /// The phase of the worker process, such as `running`.
    pub phase: String,
    /// The store that does not answer, so that the worker reads no entries; None: both stores answer.
    pub breaker: Option<StoreOutage>,
    /// The pauses that keep the worker from reading entries.
    pub paused: Vec<ReadingPause>,
    /// The states of the worker's lanes, which are its consumers in the group.
    pub lanes: Vec<ReportedLane>,
    /// The counters of the orders that the worker has handled.
    pub orders: OrderNumbers,
}

/// A store that does not answer, as a worker reports it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct StoreOutage {
    /// The name of the store that does not answer.
    pub store: String,
    /// The error of the last attempt to reach the store.
    pub error: String,
    /// The seconds for which the store has not answered.
    pub lasting_s: f64,
}

/// A time in which a worker reads no entries.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ReadingPause {
    /// The reason of the pause, in one word.
    pub reason: String,
    /// The seconds since the pause of reading began.
    pub lasting_s: f64,
}

/// The state of a lane (a consumer within a worker), as the worker's page `/status` reports it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ReportedLane {
    /// The name of the consumer in the group.
    pub consumer: String,
    /// The name of what the lane (the consumer) is doing now, such as `reading`.
    pub activity: String,
    /// The seconds since the present activity began.
    pub lasting_s: f64,
    /// The number of entries that the lane (the consumer) is handling. A worker of the previous version names this
    /// member `in_hand`.
    #[serde(alias = "in_hand")]
    pub in_progress: u64,
    /// Whether the lane (the consumer) has stayed in its activity for too long.
    pub is_stuck: bool,
}

impl ReportedLane {
    /// The words for what the lane (the consumer) is doing now.
    pub fn doing(&self) -> String {
        printable(&self.activity.replace('_', " "))
    }
}

/// The numbers of orders that a worker has handled since its start.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct OrderNumbers {
    /// The number of order rows that the worker wrote.
    pub created: u64,
}

/// The names of the stream and of the group that a worker reads.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct StreamKey {
    /// The key of the stream.
    pub name: String,
    /// The name of the consumer group.
    pub group: String,
}

/// Reads the page `/status` of the worker at this address.
///
/// # Errors
/// When no program answers at the address, when it is no worker, or when the worker requires another token.
pub async fn read(address: SocketAddr, token: Option<&SecretString>) -> anyhow::Result<WorkerPages> {
    let (status, page) = admin_client::ask(address, "/status", token).await?;
    let is_denied = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status);
    ensure!(!is_denied, "the worker requires a token with the scope `read`: name its file with --token-file");
    ensure!(status == StatusCode::OK, "the worker answered with the status {status}");
    serde_json::from_slice(&page).context("the program at this address is no worker")
}
