//! A voucher whose orders nobody writes, refuses or releases while it is looked at: its row is locked, which each of these changes.
//! Workers find the row held, and set its orders aside.

use futures_util::{
    StreamExt,
    stream::{BoxStream, TryStreamExt},
};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, MySqlPool, Row, raw_sql};
use tidegate_stream::EntryId;
use tokio::time::{Duration, Instant};

use super::{RecordsError, Tables, VoucherRow, find_for_update};
use crate::{
    mysql_error::is_lock_wait_timeout,
    order::{OrderId, Quantity, Slot, UserId, Uses, VoucherId},
    records::{OrderRow, RefusalRow, journal::UnderLimits, orders, refusals},
    row_state::RowState,
};

/// Until others have to let go of the row. Workers have it for milliseconds; each try waits as long as any statement may.
const PATIENCE: Duration = Duration::from_secs(30);

/// Of one voucher. Dropped, its session ends, and the lock with it.
#[derive(Debug)]
pub struct FrozenVoucher {
    session: MySqlConnection,
    /// Its row, as it is until the end.
    pub row: VoucherRow,
    /// How many orders of it were refused.
    pub refusals: i64,
}

/// Why there is no [`FrozenVoucher`], or none any more.
#[derive(Debug, thiserror::Error)]
pub enum FreezeError {
    /// Somebody holds its row.
    #[error("others hold the row of voucher {0} in MySQL")]
    Held(VoucherId),
    /// The lock is lost: its session was ended, or the row was changed all the same.
    #[error("the row of voucher {voucher} in MySQL is not locked any more ({why})")]
    Lost {
        /// The voucher.
        voucher: VoucherId,
        /// What shows it.
        why: String,
    },
    /// MySQL did not answer, or refused.
    #[error(transparent)]
    MySql(#[from] RecordsError),
}

impl From<sqlx::Error> for FreezeError {
    fn from(error: sqlx::Error) -> Self {
        Self::MySql(error.into())
    }
}

/// An order that MySQL has, as a row or as a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownOrder {
    /// Its id.
    pub order: OrderId,
    /// Whose.
    pub user: UserId,
    /// Units.
    pub quantity: Quantity,
    /// What its row counts as; a refused order counts as cancelled.
    pub state: RowState,
    /// It has the place of its user: no other order of this user can be in it.
    pub has_slot: bool,
    /// What it used of limits, and its slot, where it was admitted under some.
    pub limited: Option<UnderLimits>,
    /// When it was admitted, or else written, in Unix milliseconds.
    pub at_ms: i64,
}

impl FrozenVoucher {
    /// Locks the row of a voucher, and waits for others that write it. None: it has no row.
    ///
    /// # Errors
    /// See [`FreezeError`].
    pub async fn lock(pool: &MySqlPool, voucher: VoucherId) -> Result<Option<Self>, FreezeError> {
        let began = Instant::now();
        loop {
            // Off the pool: its open transaction ends with it, on every way out of here.
            let mut session = pool.acquire().await?.detach();
            raw_sql("START TRANSACTION").execute(&mut session).await?;
            match find_for_update(&mut session, voucher).await {
                Ok(found) => return Ok(found.map(|(row, refusals)| Self { session, row, refusals })),
                Err(RecordsError::Sql(error)) if is_lock_wait_timeout(&error) => {
                    if began.elapsed() > PATIENCE {
                        return Err(FreezeError::Held(voucher));
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Its rows. Those with ids that no order of ours can have are left out.
    pub fn orders(&mut self) -> BoxStream<'_, sqlx::Result<KnownOrder>> {
        let Tables { orders, limit_uses, .. } = Tables::DEFAULT;
        let sql = format!(
            "SELECT {}, u.uses FROM {orders} o LEFT JOIN {limit_uses} u ON u.order_id = o.id WHERE o.voucher_id = {}",
            orders::COLUMNS,
            self.row.voucher
        );
        let rows = sqlx::query(AssertSqlSafe(sql)).persistent(false).fetch(&mut self.session);
        rows.try_filter_map(|row| async move {
            let uses: Option<Vec<u8>> = row.try_get(orders::WIDTH)?;
            Ok(OrderRow::parse(&row)?.and_then(|row| KnownOrder::written(&row, uses.as_deref())))
        })
        .boxed()
    }

    /// Its orders that were refused. Reads the refusals of all vouchers, where this one has any.
    pub fn refused(&mut self) -> BoxStream<'_, sqlx::Result<KnownOrder>> {
        if self.refusals == 0 {
            return futures_util::stream::empty().boxed();
        }
        let (columns, table) = (refusals::COLUMNS, Tables::DEFAULT.refusals);
        let sql = format!("SELECT {columns} FROM {table} WHERE voucher_id = {}", self.row.voucher);
        let rows = sqlx::query(AssertSqlSafe(sql)).persistent(false).fetch(&mut self.session);
        rows.try_filter_map(|row| async move {
            Ok(RefusalRow::parse(&row)?.and_then(|refusal| KnownOrder::refused(&refusal)))
        })
        .boxed()
    }

    /// Shows the server that this session lives, and makes sure that it has the lock still.
    ///
    /// # Errors
    /// [`FreezeError::Lost`]: what was read may not hold any more.
    pub async fn check(&mut self) -> Result<(), FreezeError> {
        let voucher = self.row.voucher;
        let lost = |why: String| FreezeError::Lost { voucher, why };
        let now =
            find_for_update(&mut self.session, voucher).await.map_err(|error| lost(error.to_string()))?;
        if now.as_ref().is_some_and(|(row, refusals)| (row, *refusals) == (&self.row, self.refusals)) {
            return Ok(());
        }
        Err(lost("it has changed".to_owned()))
    }

    /// Lets others write it again.
    pub async fn end(self) {
        // Whatever comes of it, the session ends, and the lock with it.
        let _ended = self.session.close().await;
    }
}

impl KnownOrder {
    /// None where the numbers are none of ours.
    fn written(row: &OrderRow, uses: Option<&[u8]>) -> Option<Self> {
        let limited = uses.and_then(|uses| {
            let slot = row.slot.map_or(Ok(Slot::FIRST), Slot::try_from).ok()?;
            Some(UnderLimits { slot, uses: Uses::parse(uses)? })
        });
        Some(Self {
            order: row.order,
            user: row.user.try_into().ok()?,
            quantity: row.quantity.try_into().ok()?,
            state: row.state(),
            has_slot: row.slot.is_some(),
            limited,
            at_ms: came_ms(row.entry, row.created_ms),
        })
    }

    /// None where the numbers are none of ours.
    fn refused(refusal: &RefusalRow) -> Option<Self> {
        Some(Self {
            order: refusal.order,
            user: refusal.user.try_into().ok()?,
            quantity: refusal.quantity.try_into().ok()?,
            state: RowState::Cancelled,
            has_slot: false,
            limited: None,
            at_ms: came_ms(refusal.entry, refusal.at_ms),
        })
    }
}

/// When an order was admitted, or else written.
fn came_ms(entry: Option<EntryId>, written_ms: Option<i64>) -> i64 {
    let admitted_ms = entry.and_then(|entry| i64::try_from(entry.ms).ok());
    admitted_ms.or(written_ms).unwrap_or_default()
}
