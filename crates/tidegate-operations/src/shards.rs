//! Which partitions each MySQL shard serves. A shard says so itself, in `tidegate_shard`, since `migrate` has seen all of them
//! together: addresses may change, and where a partition's rows are may not. Whoever finds a partition pointed elsewhere does
//! not begin.

use anyhow::Context;
use sqlx::{AssertSqlSafe, MySqlPool, mysql::MySqlDatabaseError};

use crate::{
    change::InvalidInput,
    connect,
    settings::{System, SystemSettings},
    within::in_time,
};

const CREATE: &str = "CREATE TABLE IF NOT EXISTS tidegate_shard (\
    tag VARCHAR(32) NOT NULL COMMENT 'a partition whose rows are in this database', \
    is_whole TINYINT NOT NULL DEFAULT 0 COMMENT '1 once every shard of the system has its own', \
    PRIMARY KEY (tag)) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin";
const NO_SUCH_TABLE: u16 = 1146;

/// The partitions that a database says it serves.
#[derive(Debug, Default)]
struct Claims {
    tags: Vec<String>,
    /// The other shards have theirs, too.
    are_whole: bool,
}

/// Looks whether the database of a partition is the shard that has its rows. Changes nothing. In a system without partitions,
/// nothing is asked.
///
/// # Errors
/// [`InvalidInput`] when it is not, or says nothing of that yet; and when MySQL does not answer.
pub async fn compare(settings: &SystemSettings, mysql: &MySqlPool) -> anyhow::Result<()> {
    let Some(tag) = settings.partition().tag() else { return Ok(()) };
    let claims = read(settings, mysql).await?;
    if claims.tags.iter().any(|own| own == tag) {
        return Ok(());
    }
    let (is_sharded, url) = (!settings.mysql.shard_tags.is_empty(), &settings.mysql.url);
    match (claims.tags.is_empty(), is_sharded) {
        (true, false) => Ok(()),
        (true, true) => Err(InvalidInput(format!(
            "the MySQL shard at {url} does not say yet which partitions it serves, so partition {tag} may have its rows \
             elsewhere. If mysql.shards is right, run `tidegate migrate` (docs/shards.md)"
        ))
        .into()),
        (false, _) => Err(InvalidInput(format!(
            "the MySQL shard at {url} serves the partitions {}, and mysql.shards points partition {tag} to it: its rows are \
             elsewhere. Point each tag to the shard that has it (docs/shards.md)",
            claims.tags.join(", ")
        ))
        .into()),
    }
}

/// Looks, before anything is changed, whether the shards can be what the settings say. Nothing is asked in a system without shards.
///
/// # Errors
/// [`InvalidInput`] when they cannot, with what is in the way; and when one of them does not answer.
pub async fn check(system: &System) -> anyhow::Result<()> {
    if system.common().mysql.shard_tags.is_empty() {
        return Ok(());
    }
    let (mut unclaimed, mut is_whole) = (Vec::new(), false);
    for settings in system.shards() {
        let mysql = open(settings).await?;
        let mut claims = read(settings, &mysql).await?;
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
                "the MySQL shard at {url} serves the partitions {serves}, and mysql.shards says {says}: rows would be looked for \
                 where they are not. Point each tag to the shard that has it (docs/shards.md)"
            ))
            .into());
        }
    }
    let Some(fresh) = unclaimed.first() else { return Ok(()) };
    let (url, tags) = (&fresh.mysql.url, fresh.mysql.shard_tags.join(", "));
    if is_whole {
        return Err(InvalidInput(format!(
            "the shards of this system were complete, and the database at {url}, which mysql.shards points the partitions {tags} \
             to, is none of them: their rows are elsewhere. Point each tag to the shard that has it (docs/shards.md)"
        ))
        .into());
    }
    if system.partitions().len() < system.common().partition().tags().len() {
        return Err(InvalidInput(
            "shards learn together which partitions they serve: run it without --partition".into(),
        )
        .into());
    }
    Ok(())
}

/// Lets each shard say which partitions it serves, after [`check`] and the migration of all.
///
/// # Errors
/// When one does not answer: the next time goes on from there.
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
    // Only now: from here on, a database that says nothing is none of them.
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
            || format!("Failed to note in the shard at {} which partitions it serves", settings.mysql.url),
        )?;
    }
    Ok(())
}

async fn read(settings: &SystemSettings, mysql: &MySqlPool) -> anyhow::Result<Claims> {
    let rows: Vec<(String, i64)> =
        rows(settings, mysql, "SELECT tag, CAST(is_whole AS SIGNED) FROM tidegate_shard ORDER BY tag")
            .await?;
    Ok(Claims {
        are_whole: rows.iter().any(|(_, is_whole)| *is_whole == 1),
        tags: rows.into_iter().map(|(tag, _)| tag).collect(),
    })
}

/// A database that is to serve some partitions and has rows of others is not what the settings take it for.
async fn look_for_rows_of_others(settings: &SystemSettings, mysql: &MySqlPool) -> anyhow::Result<()> {
    let tags = settings.partition().tags();
    let is_own = |tag: &String| settings.mysql.shard_tags.contains(tag);
    let own: Vec<String> = (0..tags.len()).filter(|at| is_own(&tags[*at])).map(|at| at.to_string()).collect();
    for table in ["tb_seckill_voucher", "tb_voucher_order"] {
        let (all, own) = (tags.len(), own.join(", "));
        let sql = format!(
            "SELECT CAST(voucher_id AS SIGNED) FROM {table} WHERE MOD(voucher_id, {all}) NOT IN ({own}) LIMIT 1"
        );
        let found: Vec<(i64,)> = rows(settings, mysql, &sql).await?;
        if let Some((voucher,)) = found.first() {
            return Err(InvalidInput(format!(
                "the database at {} is to serve the partitions {}, and {table} has rows of voucher {voucher}, which belongs to \
                 another one: no command moves rows between shards. Point its tag to this database, or move its rows by \
                 hand first (docs/shards.md)",
                settings.mysql.url,
                settings.mysql.shard_tags.join(", ")
            ))
            .into());
        }
    }
    Ok(())
}

/// The rows of a table; none, where it does not exist.
async fn rows<T>(settings: &SystemSettings, mysql: &MySqlPool, sql: &str) -> anyhow::Result<Vec<T>>
where
    T: for<'r> sqlx::FromRow<'r, sqlx::mysql::MySqlRow> + Send + Unpin,
{
    let query = sqlx::query_as(AssertSqlSafe(sql.to_owned())).persistent(false);
    let read = async { Ok(query.fetch_all(mysql).await) };
    match in_time("MySQL", settings.mysql.statement_timeout, read).await? {
        Err(sqlx::Error::Database(error))
            if error
                .try_downcast_ref::<MySqlDatabaseError>()
                .is_some_and(|it| it.number() == NO_SUCH_TABLE) =>
        {
            Ok(Vec::new())
        }
        read => read.with_context(|| {
            format!("Failed to read which partitions the shard at {} serves", settings.mysql.url)
        }),
    }
}
