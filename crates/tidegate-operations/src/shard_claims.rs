//! Stores in each MySQL shard which partitions it serves. `migrate` does this for all shards together, after it has
//! checked their rows. [`shards`] explains what it is for.

use anyhow::Context;
use sqlx::{AssertSqlSafe, MySqlPool};
use tidegate_orders::Records;

use crate::{
    change::InvalidInput,
    connect,
    settings::{System, SystemSettings},
    shards,
    within::in_time,
};

const CREATE: &str = "CREATE TABLE IF NOT EXISTS tidegate_shard (\
    tag VARCHAR(32) NOT NULL COMMENT 'a partition whose rows are in this database', \
    is_whole TINYINT NOT NULL DEFAULT 0 COMMENT '1 once every shard of the system has its own', \
    PRIMARY KEY (tag)) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin";

/// Checks whether each MySQL shard stores the partitions that the settings give to the shard, and changes nothing. In a
/// system without shards, reads nothing.
///
/// # Errors
/// [`InvalidInput`] if a shard does not fit, with the cause; or an error if a shard does not answer.
pub async fn check(system: &System) -> anyhow::Result<()> {
    if system.common().mysql.shard_tags.is_empty() {
        return Ok(());
    }
    let (mut unclaimed, mut is_whole) = (Vec::new(), false);
    for settings in system.shards() {
        let mysql = open(settings).await?;
        let mut claims = shards::read(settings, &mysql).await?;
        claims.tags.sort();
        let mut wanted = settings.mysql.shard_tags.clone();
        wanted.sort();
        let url = &settings.mysql.url;
        is_whole |= claims.are_whole;
        if claims.tags.is_empty() {
            look_for_rows_of_others(settings, &mysql).await?;
            unclaimed.push(settings);
        } else if claims.tags != wanted {
            let (serves, says) = (claims.tags.join(", "), wanted.join(", "));
            return Err(InvalidInput(format!(
                "the MySQL shard at {url} serves the partitions {serves}, but mysql.shards assigns {says} to this shard. \
                 In mysql.shards, assign each partition to the shard that has its rows (docs/shards.md)"
            ))
            .into());
        }
    }
    let Some(fresh) = unclaimed.first() else { return Ok(()) };
    let (url, tags) = (&fresh.mysql.url, fresh.mysql.shard_tags.join(", "));
    if is_whole {
        return Err(InvalidInput(format!(
            "the database at {url} is not a shard of this system, but mysql.shards assigns the partitions {tags} to it. In \
             mysql.shards, assign each partition to the shard that has its rows (docs/shards.md)"
        ))
        .into());
    }
    if system.partitions().len() < system.common().partition().tags().len() {
        return Err(InvalidInput("this command migrates all shards together: omit --partition".into()).into());
    }
    Ok(())
}

/// Stores in each MySQL shard the tags of the partitions that the shard serves. Call this function after [`check`] and
/// after the migration of all shards.
///
/// # Errors
/// If a shard does not answer; the next call continues.
pub async fn claim(system: &System) -> anyhow::Result<()> {
    let is_all = system.partitions().len() == system.common().partition().tags().len();
    if system.common().mysql.shard_tags.is_empty() || !is_all {
        return Ok(());
    }
    for settings in system.shards() {
        let rows: Vec<String> = settings.mysql.shard_tags.iter().map(|tag| format!("('{tag}')")).collect();
        let insert = format!("INSERT IGNORE INTO tidegate_shard (tag) VALUES {}", rows.join(", "));
        execute(settings, &[CREATE, &insert]).await?;
    }
    // This comes last: from here on, a database without partitions is not a shard of this system.
    for settings in system.shards() {
        execute(settings, &["UPDATE tidegate_shard SET is_whole = 1"]).await?;
    }
    Ok(())
}

async fn open(settings: &SystemSettings) -> anyhow::Result<MySqlPool> {
    Ok(connect::mysql_unchecked(settings).await?.pool(1))
}

async fn execute(settings: &SystemSettings, statements: &[&str]) -> anyhow::Result<()> {
    let mysql = open(settings).await?;
    for statement in statements {
        let run = sqlx::query(AssertSqlSafe((*statement).to_owned())).persistent(false).execute(&mysql);
        in_time("MySQL", settings.mysql.statement_timeout, async { Ok(run.await?) }).await.with_context(
            || format!("Failed to store the partition list in the MySQL shard at {}", settings.mysql.url),
        )?;
    }
    Ok(())
}

/// Refuses a database that has rows of partitions which it is not meant to serve.
async fn look_for_rows_of_others(settings: &SystemSettings, mysql: &MySqlPool) -> anyhow::Result<()> {
    let tags = settings.partition().tags();
    let is_own = |tag: &String| settings.mysql.shard_tags.contains(tag);
    let own: Vec<i64> = (0..).zip(tags).filter(|(_, tag)| is_own(tag)).map(|(at, _)| at).collect();
    let records = Records::new(mysql, settings.partition());
    let find = async { Ok(records.orders().outside(&own).await?) };
    let found = in_time("MySQL", settings.mysql.statement_timeout, find).await;
    let found = found.with_context(|| {
        format!("Failed to search for rows of other partitions in the MySQL shard at {}", settings.mysql.url)
    })?;
    let Some((table, voucher)) = found else { return Ok(()) };
    Err(InvalidInput(format!(
        "the database at {} should serve the partitions {}, but {table} has rows of voucher {voucher} of another \
         partition, and no command moves rows between shards. In mysql.shards, assign that partition to this database, \
         or first move its rows manually (docs/shards.md)",
        settings.mysql.url,
        settings.mysql.shard_tags.join(", ")
    ))
    .into())
}
