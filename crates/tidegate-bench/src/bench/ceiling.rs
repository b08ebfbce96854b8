//! The ceiling: the most rows that MySQL can take. Each commit has one prepared multi-row INSERT and one UPDATE of the
//! stock; rows are sorted by the unique key, and sessions are at READ COMMITTED, to avoid needless waits.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use anyhow::Result;
use sqlx::{AssertSqlSafe, MySqlConnection};
use tidegate_orders::is_deadlock;
use tokio::task::JoinSet;

use super::{
    fixture::{Fixture, Tables},
    orders::{NewOrder, Orders},
};

const CONNECTIONS: usize = 4;
const ROWS: usize = 500;

/// Writes `count` rows (whole batches), and returns the rows per second.
pub async fn measure(fixture: &mut Fixture, tables: Tables, count: usize) -> Result<f64> {
    fixture.clear_tables(tables, 1).await?;
    let batches = Arc::new(fixture.numbers.take(count.next_multiple_of(ROWS), 1).chunks(ROWS));
    let next = Arc::new(AtomicUsize::new(0));
    let mut sessions = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut session = fixture.connect(tables).await?;
        sqlx::raw_sql("SET autocommit = 0").execute(&mut session).await?;
        sessions.push(session);
    }
    let mut writers = JoinSet::new();
    let began = Instant::now();
    for mut session in sessions {
        let (batches, next) = (Arc::clone(&batches), Arc::clone(&next));
        let sql = insert(tables);
        writers.spawn(async move {
            while let Some(batch) = batches.get(next.fetch_add(1, Relaxed)) {
                write(&mut session, tables, &sql, batch).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = writers.join_next().await {
        ended??;
    }
    Ok((batches.len() * ROWS) as f64 / began.elapsed().as_secs_f64())
}

fn insert(tables: Tables) -> String {
    let (columns, row) = match tables {
        Tables::Tutorial => ("id,user_id,voucher_id", "(?,?,?)"),
        Tables::Fresh | Tables::Grown => ("id,user_id,voucher_id,quantity,slot,entry_id", "(?,?,?,?,?,?)"),
    };
    format!("INSERT INTO tb_voucher_order ({columns}) VALUES {}", vec![row; ROWS].join(","))
}

/// Makes one commit, and repeats it after a deadlock.
async fn write(session: &mut MySqlConnection, tables: Tables, sql: &str, batch: &Orders) -> Result<()> {
    let mut orders: Vec<NewOrder> = batch.iter().collect();
    orders.sort_unstable_by_key(|order| (order.voucher, order.user));
    loop {
        match try_write(session, tables, sql, &orders).await {
            Err(error) if is_deadlock(&error) => {
                sqlx::raw_sql("ROLLBACK").execute(&mut *session).await?;
            }
            written => return Ok(written?),
        }
    }
}

async fn try_write(
    session: &mut MySqlConnection,
    tables: Tables,
    sql: &str,
    orders: &[NewOrder],
) -> sqlx::Result<()> {
    let mut insert = sqlx::query(AssertSqlSafe(sql.to_owned()));
    for order in orders {
        insert = insert.bind(order.id).bind(order.user).bind(order.voucher);
        if tables != Tables::Tutorial {
            insert = insert.bind(1).bind(1).bind(format!("1700000000000-{}", order.id % 100_000));
        }
    }
    insert.execute(&mut *session).await?;
    let take = "UPDATE tb_seckill_voucher SET stock = stock - ? WHERE voucher_id = ? AND stock >= ?";
    let take = sqlx::query(take).bind(ROWS as i64).bind(1).bind(ROWS as i64);
    take.execute(&mut *session).await?;
    sqlx::raw_sql("COMMIT").execute(session).await?;
    Ok(())
}
