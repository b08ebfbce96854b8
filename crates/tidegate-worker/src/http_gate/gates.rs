//! The gates of all partitions, each of which is there as soon as its Redis answers.

use std::{
    num::NonZeroU32,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tidegate_operations::{System, SystemSettings, connect, text::error_chain};
use tidegate_orders::{Gate, Keys, OrderIdAllocator, VoucherId};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Ids that are taken from the counter at once.
const ID_BLOCK: NonZeroU32 = NonZeroU32::new(64).unwrap();
/// Calls that wait for replicas at once.
const CONFIRMING: usize = 4;
/// Between two tries to connect.
const RETRY: Duration = Duration::from_secs(1);

/// A gate, and the ids that it gives out.
#[derive(Debug)]
pub struct PartitionGate {
    pub gate: Gate,
    pub ids: OrderIdAllocator,
}

/// All of them.
#[derive(Debug)]
pub struct Gates {
    system: System,
    /// In the order of the partitions.
    gates: Vec<Arc<OnceLock<PartitionGate>>>,
}

impl Gates {
    /// Begins to connect, and goes on with it until `stop`.
    pub fn connect(system: &System, stop: &CancellationToken) -> Self {
        let gate = |settings: &SystemSettings| {
            let (settings, stop, place) = (settings.clone(), stop.clone(), Arc::new(OnceLock::new()));
            let opened = Arc::clone(&place);
            tokio::spawn(async move {
                stop.run_until_cancelled(async {
                    let _first = opened.set(open_patiently(&settings).await);
                })
                .await
            });
            place
        };
        Self { system: system.clone(), gates: system.partitions().iter().map(gate).collect() }
    }

    /// The gate of a voucher. None: its Redis has not answered yet.
    pub fn of_voucher(&self, voucher: VoucherId) -> Option<&PartitionGate> {
        let own = self.system.partitions().iter().position(|system| system.partition().owns(voucher))?;
        self.gates.get(own)?.get()
    }

    /// One of them is open at least.
    pub fn is_any_open(&self) -> bool {
        self.gates.iter().any(|gate| gate.get().is_some())
    }
}

async fn open_patiently(settings: &SystemSettings) -> PartitionGate {
    let mut has_told = false;
    loop {
        match open(settings).await {
            Ok(gate) => return gate,
            Err(error) if has_told => tracing::debug!(error = error_chain(&error), "Redis is still away"),
            Err(error) => {
                has_told = true;
                tracing::warn!(
                    partition = %settings.partition(), error = error_chain(&error),
                    "the gate waits for Redis: callers hear that it is away"
                );
            }
        }
        sleep(RETRY).await;
    }
}

async fn open(settings: &SystemSettings) -> anyhow::Result<PartitionGate> {
    let redis = connect::redis(settings).await?;
    let keys = Keys::new(settings.keys.clone());
    let mut gate = Gate::new(redis.clone(), keys.clone(), settings.stream.name.as_str());
    if let Some(confirmation) = settings.confirmation {
        let mut connections = Vec::new();
        for _ in 0..CONFIRMING {
            connections.push(connect::redis_in_order(settings).await?);
        }
        gate = gate.confirmed(confirmation, connections);
    }
    Ok(PartitionGate { gate, ids: OrderIdAllocator::new(redis, keys, ID_BLOCK) })
}
