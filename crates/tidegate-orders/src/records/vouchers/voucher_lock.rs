//! A voucher whose orders cannot be written, refused or released while it is read: its row is locked, and each of these
//! changes needs it. Workers find the row held, and set its orders aside.

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

/// The longest wait for the row. Workers hold it for milliseconds; each try waits as long as any statement may.
const PATIENCE: Duration = Duration::from_secs(30);

/// A voucher whose row in MySQL is locked. When this value is dropped, its session and the lock end.
#[derive(Debug)]
pub struct VoucherLock {
    session: MySqlConnection,
    /// The contents of the voucher's row, which do not change while the row is locked.
    pub row: VoucherRow,
    /// The number of refused orders of the voucher.
    pub refusals: i64,
}

/// The reason why the row of a voucher could not be locked, or is no longer locked.
#[derive(Debug, thiserror::Error)]
pub enum VoucherLockError {
    /// Other sessions hold the row of the voucher.
    #[error("other sessions have locked the row of voucher {0} in MySQL")]
    Held(VoucherId),
    /// The lock is lost: its session was ended, or the row was changed nevertheless.
    #[error("Tidegate no longer has the lock on the row of voucher {voucher} in MySQL ({why})")]
    Lost {
        /// The voucher whose lock is lost.
        voucher: VoucherId,
        /// The sign that the lock is lost.
        why: String,
    },
    /// MySQL did not answer, or refused a statement.
    #[error(transparent)]
    MySql(#[from] RecordsError),
}

impl From<sqlx::Error> for VoucherLockError {
    fn from(error: sqlx::Error) -> Self {
        Self::MySql(error.into())
    }
}

/// An order that MySQL knows, because of the order's row or the row of its refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownOrder {
    /// The id of the order.
    pub order: OrderId,
    /// The user of the order.
    pub user: UserId,
    /// The number of units in the order.
    pub quantity: Quantity,
    /// The state of the order's row. A refused order counts as cancelled.
    pub state: RowState,
    /// Whether the order has a slot: a number that no other live order of the same user and voucher can have.
    pub has_slot: bool,
    /// The slot of the order (its number among the user's orders) and the limits that it counts against. `None` if the
    /// voucher had no limits when the order was placed.
    pub limited: Option<UnderLimits>,
    /// The time at which the order took its units in Redis, or else the time at which the order was written to MySQL,
    /// in Unix milliseconds.
    pub at_ms: i64,
}

impl VoucherLock {
    /// Locks the row of a voucher, and waits for other sessions that write the row. `None` if the voucher has no row.
    ///
    /// # Errors
    /// Returns a [`VoucherLockError`] if the row cannot be locked.
    pub async fn lock(pool: &MySqlPool, voucher: VoucherId) -> Result<Option<Self>, VoucherLockError> {
        let began = Instant::now();
        loop {
            // Detached from the pool, so that its open transaction ends with it on every way out of here.
            let mut session = pool.acquire().await?.detach();
            raw_sql("START TRANSACTION").execute(&mut session).await?;
            match find_for_update(&mut session, voucher).await {
                Ok(found) => return Ok(found.map(|(row, refusals)| Self { session, row, refusals })),
                Err(RecordsError::Sql(error)) if is_lock_wait_timeout(&error) => {
                    if began.elapsed() > PATIENCE {
                        return Err(VoucherLockError::Held(voucher));
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads the voucher's orders that have rows. Rows with invalid ids are left out.
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

    /// Reads the refused orders of the voucher. If the voucher has at least one refused order, the call reads the
    /// refused orders of all vouchers.
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

    /// Keeps the session alive on the server, and checks that the session still holds the lock.
    ///
    /// # Errors
    /// Returns [`VoucherLockError::Lost`] if the lock is lost; rows that were read may have changed since.
    pub async fn check(&mut self) -> Result<(), VoucherLockError> {
        let voucher = self.row.voucher;
        let lost = |why: String| VoucherLockError::Lost { voucher, why };
        let now =
            find_for_update(&mut self.session, voucher).await.map_err(|error| lost(error.to_string()))?;
        if now.as_ref().is_some_and(|(row, refusals)| (row, *refusals) == (&self.row, self.refusals)) {
            return Ok(());
        }
        Err(lost("the row has changed".to_owned()))
    }

    /// Releases the lock on the voucher's row, so that other sessions can write the row again.
    pub async fn end(self) {
        // Even if this fails, the session ends, and the lock with it.
        let _ended = self.session.close().await;
    }
}

impl KnownOrder {
    /// Converts a row. `None` if the numbers in the row are not valid ids.
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

    /// Converts a row. `None` if the numbers in the row are not valid ids.
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

/// The time at which an order was admitted, or else written.
fn came_ms(entry: Option<EntryId>, written_ms: Option<i64>) -> i64 {
    let admitted_ms = entry.and_then(|entry| i64::try_from(entry.ms).ok());
    admitted_ms.or(written_ms).unwrap_or_default()
}
