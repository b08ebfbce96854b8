//! Finds the partition of an order if only the id of the order is known.

use anyhow::Context;
use futures_util::future::join_all;
use tidegate_compare::text::error_chain;
use tidegate_orders::{OrderId, Partition, Records, VoucherId};

use crate::{
    Stores,
    change::InvalidInput,
    settings::{System, SystemSettings},
    within::in_time,
};

/// The partition in which a command searches for an order.
#[derive(Clone, Debug)]
pub struct OrderPartition<'a> {
    /// The settings of the partition.
    pub system: &'a SystemSettings,
    /// Whether the partition was derived only from the order id. A producer can choose ids freely, so the partition may
    /// be wrong.
    pub is_guessed: bool,
    /// The MySQL shards that did not answer. If no other shard has the order, one of these shards may have it. Empty if
    /// there is a single MySQL.
    pub away: Vec<String>,
}

/// The error that an order was not found while some MySQL shards did not answer, with the names of these shards.
#[derive(Debug, thiserror::Error)]
#[error("{0}: some MySQL shards do not answer: {1}. If you know the voucher of the order, add --voucher")]
pub struct ShardsAway(pub String, pub String);

/// The partitions that may have an order.
#[derive(Clone, Debug)]
pub struct OrderPartitions<'a> {
    /// The partitions that may have the order, the most likely partition first. If the partition is certain, the list
    /// has one item.
    pub all: Vec<&'a SystemSettings>,
    /// Whether the first partition is the one that the order's id names.
    is_first_named: bool,
    /// Whether the partitions are a guess, because neither the caller nor MySQL named the voucher of the order.
    pub are_guessed: bool,
    /// The MySQL shards that did not answer, as in [`OrderPartition::away`].
    pub away: Vec<String>,
}

impl<'a> OrderPartitions<'a> {
    /// Finds the partitions that may have the order. If `voucher` is given, the result is the partition of this
    /// voucher. Otherwise this function searches MySQL for the order's voucher. If MySQL does not know the order, the
    /// result is all partitions, and the partition in the order id comes first.
    ///
    /// # Errors
    /// If the voucher belongs to none of these partitions.
    pub async fn find(
        system: &'a System,
        order: OrderId,
        voucher: Option<VoucherId>,
    ) -> anyhow::Result<OrderPartitions<'a>> {
        let certain =
            |own| Self { all: vec![own], is_first_named: false, are_guessed: false, away: Vec::new() };
        if let [only] = system.partitions() {
            return Ok(certain(only));
        }
        if let Some(voucher) = voucher {
            return Ok(certain(system.of_voucher(voucher)?));
        }
        // The answer of MySQL is optional: while it is unavailable, the id is used.
        let shards = system.shards();
        let mut away = Vec::new();
        for (shard, asked) in shards.iter().zip(join_all(shards.iter().map(|it| voucher_of(it, order))).await)
        {
            match asked {
                Ok(Some(voucher)) => return Ok(certain(system.of_voucher(voucher)?)),
                Err(error) if shards.len() > 1 => {
                    away.push(format!("{} ({})", shard.mysql.url, error_chain(&error)));
                }
                _ => {}
            }
        }
        let is_named = |own: &&SystemSettings| own.partition().index() == Partition::index_in(order);
        let (mut all, others): (Vec<_>, Vec<_>) = system.partitions().iter().partition(is_named);
        let is_first_named = !all.is_empty();
        all.extend(others);
        Ok(Self { all, is_first_named, are_guessed: true, away })
    }
}

impl<'a> OrderPartition<'a> {
    /// Finds the most likely partition of an order: the first one of [`OrderPartitions::find`].
    ///
    /// # Errors
    /// If nothing shows which partition it is.
    pub async fn find(
        system: &'a System,
        order: OrderId,
        voucher: Option<VoucherId>,
    ) -> anyhow::Result<OrderPartition<'a>> {
        let OrderPartitions { all, is_first_named, are_guessed, away } =
            OrderPartitions::find(system, order, voucher).await?;
        if are_guessed && !is_first_named {
            if !away.is_empty() {
                let why = format!("it is unknown whether order {order} exists");
                return Err(ShardsAway(why, away.join("; ")).into());
            }
            return Err(InvalidInput(format!(
                "MySQL does not know order {order}, and the order id does not name a partition: add --voucher or --partition TAG"
            ))
            .into());
        }
        Ok(Self { system: all[0], is_guessed: are_guessed, away })
    }
}

/// Reads the voucher of an order from its row or its refusal.
async fn voucher_of(settings: &SystemSettings, order: OrderId) -> anyhow::Result<Option<VoucherId>> {
    let stores = Stores::new(settings);
    let records = Records::new(stores.mysql().await?, settings.partition());
    let find = async { Ok(records.orders().voucher_of(order).await?) };
    in_time("MySQL", settings.mysql.statement_timeout, find).await.context("Failed to search for the order")
}
