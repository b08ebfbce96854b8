//! What the tests of this crate stand on: a private Redis, a gate to it, and a look at all it holds.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use bytes::Bytes;
use fred::{
    clients::Pool,
    interfaces::{ClientLike, KeysInterface, StreamsInterface},
    types::{ClusterHash, CustomCommand, Value},
};
use tidegate_lab::RedisServer;
use tidegate_orders::{
    Incoming, KeyTemplates, Order, OrderId, Quantity, RedisStore, UserId, VoucherId,
    gate::{Admission, Release, UserAfter},
    wire::FieldNames,
};
use tidegate_stream::{Entry, EntryId, RedisConnectionSettings, connect_pool};

pub const STREAM: &str = "stream.orders";
pub const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Order `id` of `user` for one unit of `voucher`, and its entry.
pub fn order(id: i64, user: i64, voucher: i64) -> Incoming {
    let order = Order {
        id: id.try_into().expect("an order id"),
        user: user.try_into().expect("a user id"),
        voucher: voucher.try_into().expect("a voucher id"),
        quantity: 1.try_into().expect("a quantity"),
        slot: 1.try_into().expect("a slot"),
        uses: None,
    };
    Incoming { order, entry: EntryId { ms: 1_718_000_000_000, seq: id.unsigned_abs() } }
}

pub struct Ground {
    pub redis: RedisServer,
    pub pool: Pool,
    pub gate: RedisStore,
}

impl Ground {
    pub async fn new() -> Result<Self> {
        Self::on(RedisServer::start()?).await
    }

    pub async fn on(redis: RedisServer) -> Result<Self> {
        let pool = connect(&redis.url(), 2).await?;
        let gate = RedisStore::with_default_names(pool.clone(), KeyTemplates::default());
        Ok(Self { redis, pool, gate })
    }

    /// Sends a command as it would be typed.
    pub async fn typed(&self, command: &str) -> Result<Value> {
        self.words(&command.split_whitespace().collect::<Vec<_>>()).await
    }

    pub async fn words(&self, words: &[&str]) -> Result<Value> {
        let (name, args) = words.split_first().context("no command")?;
        let command = CustomCommand::new((*name).to_owned(), ClusterHash::Random, false);
        let reply = self.pool.custom(command, args.to_vec()).await;
        reply.with_context(|| format!("Failed to run {}", words.join(" ")))
    }

    /// All that Redis holds, byte for byte; of streams also what their entries do not show.
    pub async fn everything(&self) -> Result<BTreeMap<String, String>> {
        let mut held = BTreeMap::new();
        let keys: Vec<String> = self.typed("KEYS *").await?.convert()?;
        for key in keys {
            let dump: Bytes = self.pool.dump(&key).await?;
            let ttl: i64 = self.pool.pttl(&key).await?;
            let info = match self.words(&["XINFO", "STREAM", &key, "FULL"]).await {
                Ok(info) => format!("{info:?}"),
                Err(_) => String::new(),
            };
            held.insert(key, format!("{dump:?} {ttl} {info}"));
        }
        Ok(held)
    }

    /// What stands in the stream, in its order.
    pub async fn orders(&self) -> Result<Vec<Order>> {
        Ok(self.traced_orders().await?.into_iter().map(|(order, _)| order).collect())
    }

    /// As [`Ground::orders`], each with its trace context.
    pub async fn traced_orders(&self) -> Result<Vec<(Order, Option<Bytes>)>> {
        type Fields = std::collections::HashMap<String, Bytes>;
        let entries: Vec<(String, Fields)> = self.pool.xrange_values(STREAM, "-", "+", None).await?;
        let mut orders = Vec::new();
        for (id, fields) in entries {
            let trace = fields.get("traceparent").cloned();
            let fields = fields.into_iter().map(|(name, value)| (Bytes::from(name), value)).collect();
            orders
                .push((FieldNames::default().decode(&Entry { id: id.parse::<EntryId>()?, fields })?, trace));
        }
        Ok(orders)
    }
}

pub async fn connect(url: &str, connections: usize) -> Result<Pool> {
    connect_with_patience(url, connections, Duration::from_secs(20)).await
}

pub async fn connect_with_patience(url: &str, connections: usize, patience: Duration) -> Result<Pool> {
    let settings = RedisConnectionSettings {
        master: None,
        sentinels: None,
        url: url.to_owned(),
        connections,
        command_timeout: patience,
        connect_timeout: Duration::from_secs(5),
    };
    Ok(connect_pool(&settings).await?.into())
}

pub fn voucher() -> VoucherId {
    VoucherId::try_from(7).expect("7 is a voucher id")
}

pub fn admission(order: i64, user: i64) -> Admission {
    Admission {
        order: OrderId::try_from(order).expect("an order id"),
        user: UserId::try_from(user).expect("a user id"),
        voucher: voucher(),
        quantity: Quantity::ONE,
        subjects: tidegate_orders::Subjects::none(),
        traceparent: None,
    }
}

pub fn release(order: i64, user: i64) -> Release {
    Release {
        order: OrderId::try_from(order).expect("an order id"),
        user: UserId::try_from(user).expect("a user id"),
        voucher: voucher(),
        units: Some(Quantity::ONE),
        user_after: UserAfter::Freed,
        by: "worker:test".into(),
    }
}
