//! In which partition to look for an order of which only the id is known.

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

/// The partition of an order.
#[derive(Clone, Debug)]
pub struct OrderPlace<'a> {
    /// It.
    pub system: &'a SystemSettings,
    /// Nobody said so but the order's id, which a producer may make as it likes.
    pub is_guessed: bool,
    /// Shards that gave no answer: any of them may have the order, wherever else it is not. Empty where MySQL is one.
    pub away: Vec<String>,
}

/// What follows for an order, and the MySQL shards that gave no answer and may have it.
#[derive(Debug, thiserror::Error)]
#[error("{0}: MySQL shards gave no answer: {1}. Where the voucher is known, say --voucher")]
pub struct ShardsAway(pub String, pub String);

/// The partitions in which an order may be.
#[derive(Clone, Debug)]
pub struct OrderPlaces<'a> {
    /// The likeliest first; only one where it is certain.
    pub all: Vec<&'a SystemSettings>,
    /// The first is the one that the id of the order names.
    is_first_named: bool,
    /// Nobody said so but the order's id, if anybody.
    pub are_guessed: bool,
    /// As [`OrderPlace::away`].
    pub away: Vec<String>,
}

impl<'a> OrderPlaces<'a> {
    /// The partition of `voucher`; where that is not known, of the voucher that MySQL has the order of; and otherwise all, first
    /// the one that the id itself names. MySQL is asked only then.
    ///
    /// # Errors
    /// When the voucher belongs to none of these partitions.
    pub async fn find(
        system: &'a System,
        order: OrderId,
        voucher: Option<VoucherId>,
    ) -> anyhow::Result<OrderPlaces<'a>> {
        let certain =
            |own| Self { all: vec![own], is_first_named: false, are_guessed: false, away: Vec::new() };
        if let [only] = system.partitions() {
            return Ok(certain(only));
        }
        if let Some(voucher) = voucher {
            return Ok(certain(system.of_voucher(voucher)?));
        }
        // What MySQL says is a help: where it is away, the id has to do.
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

impl<'a> OrderPlace<'a> {
    /// The first of [`OrderPlaces::find`].
    ///
    /// # Errors
    /// When nothing tells which it is.
    pub async fn find(
        system: &'a System,
        order: OrderId,
        voucher: Option<VoucherId>,
    ) -> anyhow::Result<OrderPlace<'a>> {
        let OrderPlaces { all, is_first_named, are_guessed, away } =
            OrderPlaces::find(system, order, voucher).await?;
        if are_guessed && !is_first_named {
            if !away.is_empty() {
                let why = format!("whether there is an order {order} is unknown");
                return Err(ShardsAway(why, away.join("; ")).into());
            }
            return Err(InvalidInput(format!(
                "MySQL does not know order {order}, and its id names no partition: say --voucher, or --partition TAG"
            ))
            .into());
        }
        Ok(Self { system: all[0], is_guessed: are_guessed, away })
    }
}

/// The voucher of an order, by its row or its refusal.
async fn voucher_of(settings: &SystemSettings, order: OrderId) -> anyhow::Result<Option<VoucherId>> {
    let stores = Stores::new(settings);
    let records = Records::new(stores.mysql().await?, settings.partition());
    let find = async { Ok(records.orders().voucher_of(order).await?) };
    in_time("MySQL", settings.mysql.statement_timeout, find).await.context("Failed to look for the order")
}
