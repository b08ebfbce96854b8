//! The partitions that each MySQL shard serves. A shard stores them in `tidegate_shard`, since `migrate` has checked
//! all shards together. The address of a shard may change, but the place of a partition's rows may not. A process does
//! not start if the settings point a partition to another shard.

use anyhow::Context;
use sqlx::{AssertSqlSafe, MySqlPool};
use tidegate_orders::is_missing_table;

use crate::{change::InvalidInput, settings::SystemSettings, within::in_time};

/// The partitions that a database serves according to its own table.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// The tags of these partitions.
    pub(crate) tags: Vec<String>,
    /// Whether the other shards have stored their partitions, too.
    pub(crate) are_whole: bool,
}

/// Checks whether the MySQL database in the settings is the shard that has the rows of the partition, and changes
/// nothing. In a system without partitions, reads nothing.
///
/// # Errors
/// [`InvalidInput`] if it is not that shard, or has stored no partitions yet; or an error if MySQL does not answer.
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
            "the MySQL shard at {url} does not have a list of its partitions, so the rows of partition {tag} may be \
             in another database. If mysql.shards is right, run `tidegate migrate` (docs/shards.md)"
        ))
        .into()),
        (false, _) => Err(InvalidInput(format!(
            "the MySQL shard at {url} serves the partitions {}, but mysql.shards also assigns partition {tag} to this \
             shard. In mysql.shards, assign each partition to the shard that has its rows (docs/shards.md)",
            claims.tags.join(", ")
        ))
        .into()),
    }
}

/// Reads which partitions a database serves.
pub(crate) async fn read(settings: &SystemSettings, mysql: &MySqlPool) -> anyhow::Result<Claims> {
    let rows: Vec<(String, i64)> =
        rows(settings, mysql, "SELECT tag, CAST(is_whole AS SIGNED) FROM tidegate_shard ORDER BY tag")
            .await?;
    Ok(Claims {
        are_whole: rows.iter().any(|(_, is_whole)| *is_whole == 1),
        tags: rows.into_iter().map(|(tag, _)| tag).collect(),
    })
}

/// Reads the rows of a table; none if the table does not exist.
async fn rows<T>(settings: &SystemSettings, mysql: &MySqlPool, sql: &str) -> anyhow::Result<Vec<T>>
where
    T: for<'r> sqlx::FromRow<'r, sqlx::mysql::MySqlRow> + Send + Unpin,
{
    let query = sqlx::query_as(AssertSqlSafe(sql.to_owned())).persistent(false);
    let read = async { Ok(query.fetch_all(mysql).await) };
    match in_time("MySQL", settings.mysql.statement_timeout, read).await? {
        Err(error) if is_missing_table(&error) => Ok(Vec::new()),
        read => read.with_context(|| {
            format!("Failed to read which partitions the MySQL shard at {} serves", settings.mysql.url)
        }),
    }
}
