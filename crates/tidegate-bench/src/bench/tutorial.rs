//! The tutorial's consumer, in a run without failures: one entry at a time, read, lock, count, update stock, insert,
//! commit, unlock, acknowledge. It does not have the cost of the tutorial's Java, and has a unique key for its count.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sqlx::{Connection, MySqlConnection};
use tokio::task::JoinSet;

use super::{
    fixture::{Fixture, GROUP, STREAM, Tables},
    orders,
    resp::{Reply, Resp},
};

/// More orders than any machine writes in a second, with one commit an order.
const MOST_PER_S: usize = 20_000;
const UNLOCK: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

/// Lets `workers` consumers drain for `length`, and returns the orders per second.
pub async fn measure(fixture: &mut Fixture, workers: usize, length: Duration) -> Result<f64> {
    fixture.clear_tables(Tables::Tutorial, 1).await?;
    fixture.clear_redis().await?;
    let count = (length.as_secs_f64() * MOST_PER_S as f64) as usize;
    let orders = fixture.numbers.take(count.max(1_000), 1);
    orders::fill(&mut fixture.redis, STREAM, &orders).await?;
    fixture.redis.call(&["XGROUP", "CREATE", STREAM, GROUP, "0"]).await?;
    let unlock = fixture.redis.call(&["SCRIPT", "LOAD", UNLOCK]).await?.text().to_owned();

    let mut consumers = Vec::new();
    for number in 0..workers {
        let mysql = MySqlConnection::connect(fixture.url(Tables::Tutorial)).await?;
        let redis = Resp::connect(fixture.redis_server.port()).await?;
        consumers.push(Consumer { name: format!("c{number}"), unlock: unlock.clone(), redis, mysql });
    }
    let mut running = JoinSet::new();
    let began = Instant::now();
    for mut consumer in consumers {
        running.spawn(async move {
            let mut done = 0_u32;
            while began.elapsed() < length {
                consumer.one().await?;
                done += 1;
            }
            anyhow::Ok(done)
        });
    }
    let mut done = 0;
    while let Some(ended) = running.join_next().await {
        done += ended??;
    }
    let took = began.elapsed();
    let written = fixture.count_written(Tables::Tutorial, &orders).await?;
    ensure!(written == i64::from(done), "{done} orders done, {written} written");
    Ok(f64::from(done) / took.as_secs_f64())
}

struct Consumer {
    name: String,
    unlock: String,
    redis: Resp,
    mysql: MySqlConnection,
}

impl Consumer {
    /// Processes one order, from the stream to its acknowledgement.
    async fn one(&mut self) -> Result<()> {
        let read =
            ["XREADGROUP", "GROUP", GROUP, &self.name, "COUNT", "1", "BLOCK", "2000", "STREAMS", STREAM, ">"];
        let reply = self.redis.call(&read).await?;
        let (entry, fields) = first_entry(&reply).ok_or_else(|| anyhow::anyhow!("No entry: {reply:?}"))?;
        let field = |name: &str| fields.field(name).map_or("", Reply::text).to_owned();
        let (id, user, voucher) = (field("id"), field("userId"), field("voucherId"));

        let lock = format!("lock:order:{user}");
        let token = format!("{}-{id}", self.name);
        self.redis.call(&["SET", &lock, &token, "NX", "EX", "10"]).await?;
        self.write(id.parse()?, user.parse()?, voucher.parse()?).await?;
        let unlock = self.unlock.clone();
        self.redis.call(&["EVALSHA", &unlock, "1", &lock, &token]).await?;
        self.redis.call(&["XACK", STREAM, GROUP, entry]).await?;
        Ok(())
    }

    async fn write(&mut self, id: i64, user: i64, voucher: i64) -> Result<()> {
        let mut transaction = self.mysql.begin().await?;
        let count = "SELECT COUNT(*) FROM tb_voucher_order WHERE user_id = ? AND voucher_id = ?";
        let count: i64 =
            sqlx::query_scalar(count).bind(user).bind(voucher).fetch_one(&mut *transaction).await?;
        ensure!(count == 0, "User {user} has an order");
        let take = "UPDATE tb_seckill_voucher SET stock = stock - 1 WHERE voucher_id = ? AND stock > 0";
        let taken = sqlx::query(take).bind(voucher).execute(&mut *transaction).await?;
        ensure!(taken.rows_affected() == 1, "No stock");
        let insert = "INSERT INTO tb_voucher_order (id, user_id, voucher_id) VALUES (?, ?, ?)";
        sqlx::query(insert).bind(id).bind(user).bind(voucher).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(())
    }
}

/// The first entry in `[[stream, [[id, [field, value, ...]]]]]`.
fn first_entry(reply: &Reply) -> Option<(&str, &Reply)> {
    let entry = reply.items().first()?.items().get(1)?.items().first()?;
    Some((entry.items().first()?.text(), entry.items().get(1)?))
}
