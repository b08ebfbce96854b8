//! In which partition to look for an order of which only the id is known.

use anyhow::Context;
use sqlx::{AssertSqlSafe, MySqlPool};
use tidegate_orders::{OrderId, Partition, VoucherId};

use crate::{
    change::InvalidInput,
    connect,
    settings::{System, SystemSettings},
    within::in_time,
};

/// The partition of an order.
#[derive(Clone, Copy, Debug)]
pub struct OrderPlace<'a> {
    /// It.
    pub system: &'a SystemSettings,
    /// Nobody said so but the order's id, which a producer may make as it likes.
    pub is_guessed: bool,
}

impl<'a> OrderPlace<'a> {
    /// The partition of `voucher`; where that is not known, of the voucher that MySQL has the order of; and otherwise the one
    /// that the id itself names. MySQL is asked only then.
    ///
    /// # Errors
    /// When nothing of that tells.
    pub async fn find(
        system: &'a System,
        order: OrderId,
        voucher: Option<VoucherId>,
    ) -> anyhow::Result<OrderPlace<'a>> {
        let is_guessed = false;
        if let [only] = system.partitions() {
            return Ok(Self { system: only, is_guessed });
        }
        if let Some(voucher) = voucher {
            return Ok(Self { system: system.of_voucher(voucher)?, is_guessed });
        }
        // What MySQL says is a help: where it is away, the id has to do.
        if let Ok(Some(voucher)) = voucher_of(system.common(), order).await {
            return Ok(Self { system: system.of_voucher(voucher)?, is_guessed });
        }
        let named =
            system.partitions().iter().find(|own| own.partition().index() == Partition::index_in(order));
        let named = named.ok_or_else(|| {
            InvalidInput(format!(
                "MySQL does not know order {order}, and its id names no partition: say --voucher, or --partition TAG"
            ))
        })?;
        Ok(Self { system: named, is_guessed: true })
    }
}

/// The voucher of an order, of its row, its refusal or its events.
async fn voucher_of(settings: &SystemSettings, order: OrderId) -> anyhow::Result<Option<VoucherId>> {
    let mysql: MySqlPool = connect::mysql(settings).await?;
    let sql = format!(
        "SELECT CAST(voucher_id AS SIGNED) FROM tb_voucher_order WHERE id = {order} UNION ALL \
         SELECT CAST(voucher_id AS SIGNED) FROM tidegate_refusal WHERE order_id = {order} LIMIT 1"
    );
    let query = sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false);
    let find = async { Ok(query.fetch_optional(&mysql).await?) };
    let found: Option<i64> = in_time("MySQL", settings.mysql.statement_timeout, find)
        .await
        .context("Failed to look for the order")?;
    Ok(found.and_then(|voucher| voucher.try_into().ok()))
}
