//! Webhooks: a worker sends the results of orders to URLs, by the specification Standard Webhooks.
//!
//! Each webhook has its own consumer group of the results stream, its own connections, and its own lane for each
//! partition. So a receiver that does not answer delays neither orders nor other webhooks.

mod client;
mod delivery;
mod sender;
mod signer;
mod state;
mod target;

use std::{collections::BTreeMap, sync::Arc};

use futures_util::future::join_all;
use tidegate_compare::text::error_chain;
use tidegate_operations::{RedisSettings, SystemSettings, connect};
use tidegate_orders::RedisStore;
use tidegate_stream::Backoff;
use tidegate_worker::ProcessSettings;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use self::{sender::Sender, signer::Signer};
pub use self::{
    state::{Attempt, WebhookState},
    target::{AddressRefusal, Target},
};

/// The number of Redis connections for the webhooks of a partition; each sender has one more for reading.
const CONNECTIONS: usize = 2;

/// All webhooks of a worker process.
#[derive(Default)]
pub struct Webhooks {
    /// The senders of each partition.
    partitions: Vec<Vec<Sender>>,
}

impl Webhooks {
    /// Creates the senders of all webhooks, and reads their secrets. A webhook whose secrets cannot be read sends nothing.
    ///
    /// # Errors
    /// Fails if a URL is invalid.
    pub fn open(partitions: &[ProcessSettings]) -> anyhow::Result<Self> {
        let Some(first) = partitions.first().filter(|first| !first.system.results.webhooks.is_empty()) else {
            return Ok(Self::default());
        };
        let tls = client::tls_config();
        let mut signers = BTreeMap::new();
        for webhook in &*first.system.results.webhooks {
            let signer = Signer::open(&webhook.name, &webhook.secret_file);
            signers.insert(webhook.name.clone(), Arc::new(signer));
        }
        let senders = |process: &ProcessSettings| {
            let sender = |webhook: &tidegate_operations::WebhookSettings| {
                let target = Target::parse(webhook.url.reveal(), webhook.allow_http);
                Ok(Sender {
                    process: process.clone(),
                    webhook: webhook.clone(),
                    target: target.map_err(|why| anyhow::anyhow!("the URL of {:?} {why}", webhook.name))?,
                    signer: Arc::clone(&signers[&webhook.name]),
                    tls: Arc::clone(&tls),
                    state: Arc::new(WebhookState::new(&webhook.name, process.system.partition().tag())),
                })
            };
            process.system.results.webhooks.iter().map(sender).collect::<anyhow::Result<Vec<_>>>()
        };
        Ok(Self { partitions: partitions.iter().map(senders).collect::<anyhow::Result<_>>()? })
    }

    /// The state of each webhook in each partition, for the metrics.
    #[must_use]
    pub fn states(&self) -> Vec<Arc<WebhookState>> {
        self.partitions.iter().flatten().map(|sender| Arc::clone(&sender.state)).collect()
    }

    /// Sends results until `stop` is cancelled. An error of one webhook or partition ends nothing else.
    pub async fn run(self, stop: CancellationToken) {
        join_all(self.partitions.iter().map(|senders| run_partition(senders, &stop))).await;
    }
}

async fn run_partition(senders: &[Sender], stop: &CancellationToken) {
    let Some(first) = senders.first() else { return };
    let lane = &first.process.worker.lane;
    let backoff = Backoff::new(lane.backoff_min, lane.backoff_max);
    let connected = stop.run_until_cancelled(connect_until_ready(&first.process.system, backoff)).await;
    let Some(redis) = connected else { return };
    let redis = &redis;
    let run = async |sender: &Sender| {
        let Sender { webhook, process, .. } = sender;
        let partition = process.system.partition().tag().unwrap_or_default();
        let span = tracing::info_span!("webhook", name = webhook.name, partition);
        let both = async { tokio::join!(sender.run(redis, stop), sender.follow(redis, stop)) };
        Box::pin(both.instrument(span)).await;
    };
    join_all(senders.iter().map(run)).await;
}

/// Connects to Redis for as long as that takes. The worker of the partition logs an outage.
async fn connect_until_ready(system: &SystemSettings, mut backoff: Backoff) -> RedisStore {
    let redis = RedisSettings { connections: CONNECTIONS, ..system.redis.clone() };
    let system = SystemSettings { redis, ..system.clone() };
    loop {
        match connect::redis(&system).await {
            Ok(redis) => return redis,
            Err(error) => tracing::debug!("{}", error_chain(&error)),
        }
        sleep(backoff.next_wait()).await;
    }
}
