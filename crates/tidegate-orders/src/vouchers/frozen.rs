//! A voucher whose orders nobody writes, refuses or releases while it is looked at: its row is locked, which each of these changes.
//! Workers find the row held, and set its orders aside.

use futures_util::{
    StreamExt,
    stream::{BoxStream, TryStreamExt},
};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, MySqlPool, Row, mysql::MySqlRow, raw_sql};
use tidegate_stream::EntryId;
use tokio::time::{Duration, Instant};

use super::{VoucherError, VoucherRow, find_for_update};
use crate::{
    journal::UnderLimits,
    mysql_error::is_lock_wait_timeout,
    order::{OrderId, Quantity, Slot, UserId, Uses, VoucherId},
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
    MySql(#[from] VoucherError),
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
                Err(VoucherError::Sql(error)) if is_lock_wait_timeout(&error) => {
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
        let sql = format!(
            "SELECT CAST(o.id AS SIGNED), CAST(o.user_id AS SIGNED), CAST(o.quantity AS SIGNED), o.entry_id, \
             CAST(UNIX_TIMESTAMP(o.create_time) * 1000 AS SIGNED), CAST(o.slot AS SIGNED), CAST(o.status AS SIGNED), \
             u.uses FROM tb_voucher_order o LEFT JOIN tidegate_limit_use u ON u.order_id = o.id WHERE o.voucher_id = {}",
            self.row.voucher
        );
        let rows = sqlx::query(AssertSqlSafe(sql)).persistent(false).fetch(&mut self.session);
        rows.try_filter_map(|row| async move {
            let (slot, status): (Option<i64>, _) = (row.try_get(5)?, row.try_get(6)?);
            let known = read(&row, RowState::of(slot, status), slot.is_some())?;
            let uses: Option<Vec<u8>> = row.try_get(7)?;
            let limited = uses.and_then(|uses| {
                let slot = slot.map_or(Ok(Slot::FIRST), Slot::try_from).ok()?;
                Some(UnderLimits { slot, uses: Uses::parse(&uses)? })
            });
            Ok(known.map(|known| KnownOrder { limited, ..known }))
        })
        .boxed()
    }

    /// Its orders that were refused. Reads the refusals of all vouchers, where this one has any.
    pub fn refused(&mut self) -> BoxStream<'_, sqlx::Result<KnownOrder>> {
        if self.refusals == 0 {
            return futures_util::stream::empty().boxed();
        }
        let sql = format!(
            "SELECT CAST(order_id AS SIGNED), CAST(user_id AS SIGNED), CAST(quantity AS SIGNED), entry_id, \
             CAST(UNIX_TIMESTAMP(at) * 1000 AS SIGNED) FROM tidegate_refusal WHERE voucher_id = {}",
            self.row.voucher
        );
        let rows = sqlx::query(AssertSqlSafe(sql)).persistent(false).fetch(&mut self.session);
        rows.try_filter_map(|row| async move { read(&row, RowState::Cancelled, false) }).boxed()
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

/// None where the numbers are none of ours.
fn read(row: &MySqlRow, state: RowState, has_slot: bool) -> sqlx::Result<Option<KnownOrder>> {
    let (order, user): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let quantity: i64 = row.try_get(2)?;
    let entry: Option<String> = row.try_get(3)?;
    let written_ms: Option<i64> = row.try_get(4)?;
    let (Ok(order), Ok(user), Ok(quantity)) = (order.try_into(), user.try_into(), quantity.try_into()) else {
        return Ok(None);
    };
    let entry_ms =
        entry.and_then(|entry| entry.parse::<EntryId>().ok()).and_then(|id| i64::try_from(id.ms).ok());
    let at_ms = entry_ms.or(written_ms).unwrap_or_default();
    Ok(Some(KnownOrder { order, user, quantity, state, has_slot, limited: None, at_ms }))
}
