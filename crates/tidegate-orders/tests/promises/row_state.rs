//! Tests of the row state, on real servers: the conditions in SQL and the function in Rust agree on every row.

use anyhow::Result;
use sqlx::{AssertSqlSafe, MySqlPool, Row};
use tidegate_lab::MysqlServer;
use tidegate_orders::{
    row_state::{CANCELLED, LIVE, LIVE_BEFORE_SLOTS, RowState},
    schema,
};

#[tokio::test(flavor = "multi_thread")]
async fn sql_and_rust_agree_on_what_is_live_and_what_is_cancelled() -> Result<()> {
    let server = tokio::task::spawn_blocking(MysqlServer::shared).await??;
    let mysql = MySqlPool::connect(&server.url()).await?;
    schema::migrate(&mysql).await?;
    sqlx::raw_sql("ALTER TABLE tb_voucher_order MODIFY status TINYINT UNSIGNED NULL").execute(&mysql).await?;
    for (at, status) in ["NULL", "0", "1", "2", "3", "4", "5", "6", "7"].iter().enumerate() {
        let at = 2 * at + 1;
        let sql = format!(
            "INSERT INTO tb_voucher_order (id, user_id, voucher_id, slot, status) \
             VALUES ({at}, {at}, 7, NULL, {status}), ({at} + 1, {at} + 1, 7, 2, {status})"
        );
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mysql).await?;
    }
    let sql = format!(
        "SELECT CAST(slot AS SIGNED), CAST(status AS SIGNED), CAST({LIVE} AS SIGNED), CAST({CANCELLED} AS SIGNED), \
         CAST({LIVE_BEFORE_SLOTS} AS SIGNED) FROM tb_voucher_order"
    );
    let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mysql).await?;
    assert_eq!(rows.len(), 18);
    for row in rows {
        let (slot, status): (Option<i64>, Option<i64>) = (row.try_get(0)?, row.try_get(1)?);
        let expected = match (row.try_get::<i64, _>(2)?, row.try_get::<i64, _>(3)?) {
            (1, 0) => RowState::Live,
            (0, 1) => RowState::Cancelled,
            (0, 0) => RowState::Contradictory,
            both => panic!("slot {slot:?}, status {status:?}: {both:?}"),
        };
        assert_eq!(RowState::of(slot, status), expected, "slot {slot:?}, status {status:?}");
        let migrated = RowState::of(Some(1), status) == RowState::Live;
        assert_eq!(row.try_get::<i64, _>(4)? == 1, migrated, "status {status:?}");
    }
    Ok(())
}
