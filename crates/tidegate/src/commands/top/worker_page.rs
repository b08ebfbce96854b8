//! What a worker of this machine tells of itself on its page `/status`.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use hyper::StatusCode;
use serde::Deserialize;

use crate::{beside, config::AdminSettings};

/// The page, as far as it is shown. What a worker of another version does not tell is missing.
#[derive(Debug, Default, Deserialize)]
pub struct WorkerPage {
    /// The worker itself.
    pub worker: Worker,
    /// The stream that it reads; None while it cannot reach Redis.
    pub stream: Option<StreamNames>,
}

/// A worker.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Worker {
    /// Its name.
    pub name: String,
    /// How far it is in its life.
    pub phase: String,
    /// Why it reads nothing.
    pub breaker: Option<Outage>,
    /// Who wants it to read nothing.
    pub paused: Vec<Pause>,
    /// Its lanes.
    pub lanes: Vec<Lane>,
    /// What it did with orders.
    pub orders: Orders,
}

/// A store is away.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Outage {
    /// Which.
    pub store: String,
    /// What it said.
    pub error: String,
    /// For so long.
    pub lasting_s: f64,
}

/// It is to read nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pause {
    /// Why, in a word.
    pub reason: String,
    /// For so long.
    pub lasting_s: f64,
}

/// A lane.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Lane {
    /// Name of its consumer.
    pub consumer: String,
    /// What it does.
    pub activity: String,
    /// For so long.
    pub lasting_s: f64,
    /// Entries in its batch.
    pub in_hand: u64,
    /// For too long.
    pub is_stuck: bool,
}

/// Orders since the worker's start.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Orders {
    /// Rows that it wrote.
    pub created: u64,
}

/// What a worker reads.
#[derive(Debug, Default, Deserialize)]
pub struct StreamNames {
    /// Key of the stream.
    pub name: String,
    /// Name of the group.
    pub group: String,
}

/// Reads the page.
///
/// # Errors
/// When nobody answers there, or something else than a worker, or one that wants another token.
pub async fn read(address: SocketAddr, admin: &AdminSettings) -> anyhow::Result<WorkerPage> {
    let (status, page) = beside::ask(address, "/status", admin).await?;
    ensure!(status != StatusCode::UNAUTHORIZED, "it wants another admin.token");
    ensure!(status == StatusCode::OK, "it answered {status}");
    serde_json::from_slice(&page).context("it is no worker")
}
