//! The actions of buyers: most pay, some cancel, some forget to pay.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use fred::{
    interfaces::{ClientLike, EventInterface, StreamsInterface},
    types::CustomCommand,
};
use rand::RngExt;
use tidegate_orders::{Event, EventKind, OrderId, UserId, wire::event_fields};
use tokio::{
    sync::mpsc::UnboundedReceiver,
    task::JoinSet,
    time::{Instant, sleep},
};

use super::market::{Market, PATIENCE, Stall};

/// The shortest and the longest time between the click and the action, in milliseconds.
const THINK_MS: (u64, u64) = (500, 2_500);

/// The action of a buyer with an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Then {
    Pays,
    Cancels,
    /// The buyer forgets it, and the order expires.
    Forgets,
}

impl Then {
    /// Chooses the action: seven of ten pay; of the others, one half cancels.
    pub fn of(user: i64) -> Self {
        match user % 20 {
            0..14 => Self::Pays,
            14..17 => Self::Cancels,
            _ => Self::Forgets,
        }
    }

    fn event(self) -> Option<EventKind> {
        match self {
            Self::Pays => Some(EventKind::Paid),
            Self::Cancels => Some(EventKind::Cancelled),
            Self::Forgets => None,
        }
    }

    /// The status of the order in the end.
    pub fn status(self) -> i64 {
        match self {
            Self::Pays => 2,
            Self::Cancels | Self::Forgets => 4,
        }
    }
}

/// Appends the actions of the owners of these orders to the streams, each after a while, until all are done.
pub async fn act(market: Arc<Market>, mut orders: UnboundedReceiver<(OrderId, UserId)>) -> Result<()> {
    let mut acting = JoinSet::new();
    while let Some((order, user)) = orders.recv().await {
        let Some(kind) = Then::of(user.get()).event() else { continue };
        let market = Arc::clone(&market);
        let after = Duration::from_millis(rand::rng().random_range(THINK_MS.0..THINK_MS.1));
        acting.spawn(async move {
            sleep(after).await;
            let reference = format!("{kind}-{order}").parse().ok();
            let stall = market.of_user(user);
            let voucher = stall.voucher;
            let event = Event { kind, order, user, voucher, reference, payment: None, reason: None };
            let fields: Vec<(&str, String)> =
                event_fields(&event).into_iter().map(|(name, value)| (name, value.into_owned())).collect();
            append(stall, fields, market.is_cluster()).await.context("Failed to append what a buyer did")
        });
    }
    while let Some(acted) = acting.join_next().await {
        acted??;
    }
    Ok(())
}

/// Appends an event, repeatedly until it cannot be lost: the same event twice counts once.
async fn append(stall: &Stall, fields: Vec<(&str, String)>, waits_for_replica: bool) -> Result<()> {
    let (client, deadline) = (stall.waiting.next(), Instant::now() + PATIENCE);
    loop {
        let mut reconnects = client.reconnect_rx();
        let stream = stall.names.stream.as_str();
        let appended = async {
            let _id: String = client.xadd(stream, false, None, "*", fields.clone()).await?;
            if !waits_for_replica {
                return Ok(true);
            }
            let wait = CustomCommand::new_static("WAIT", None, false);
            let have: i64 = client.custom(wait, vec![1, 500]).await?;
            // A connection that was opened again has written nothing, and is answered at once.
            Ok::<_, fred::error::Error>(have >= 1 && reconnects.try_recv().is_err())
        };
        match appended.await {
            Ok(true) => return Ok(()),
            Err(error) if Instant::now() >= deadline => return Err(error.into()),
            Ok(false) | Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
}

/// The final states of the orders of a sale, compared with the actions of their owners.
pub struct Ends {
    /// The number of orders by the action of their owner.
    pub count: BTreeMap<Then, usize>,
    /// The orders with an unexpected status.
    pub wrong: usize,
}

impl Ends {
    /// Compares the orders, given by user and status.
    pub fn of(orders: &[(i64, i64)]) -> Self {
        let mut ends = Self { count: BTreeMap::new(), wrong: 0 };
        for (user, status) in orders {
            let then = Then::of(*user);
            *ends.count.entry(then).or_default() += 1;
            ends.wrong += usize::from(then.status() != *status);
        }
        ends
    }

    pub fn count(&self, then: Then) -> usize {
        self.count.get(&then).copied().unwrap_or_default()
    }
}
