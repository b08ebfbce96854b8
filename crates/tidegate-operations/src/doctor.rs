//! Is the system fit for orders, and does any of them wait? Each finding is ok, a warning or an error with what to do.

mod clock;
mod cluster;
mod delisted;
mod entries;
mod expirations;
mod failover;
mod mysql_checks;
mod reconciled;
mod redis_checks;
mod results;
mod sales;
mod server_settings;
mod waiting;
mod workers;

use serde::Serialize;

pub use crate::finding::{Finding, Level};
use crate::{Stores, finding::Findings, settings::SystemSettings};

/// All that was found.
#[derive(Debug, Serialize)]
pub struct Diagnosis {
    /// Findings that are errors.
    pub errors: usize,
    /// Findings that are warnings.
    pub warnings: usize,
    /// What was not read here, and may be well or not.
    pub not_read: usize,
    /// About Redis, then about MySQL.
    pub findings: Vec<Finding>,
}

/// Checks both stores side by side; one that is away does not keep the other from being checked. Changes nothing.
pub async fn diagnose(settings: &SystemSettings) -> Diagnosis {
    let (mut redis, mut mysql) = (Findings::of("redis"), Findings::of("mysql"));
    let stores = Stores::new(settings);
    let reached =
        tokio::join!(redis_checks::run(&stores, &mut redis), mysql_checks::run(&stores, &mut mysql));
    if let Some(pool) = reached.0 {
        workers::check(settings, &mut redis, pool, reached.1).await;
    }
    if let (Some(pool), Some(database)) = reached {
        sales::check(settings, &mut redis, pool, database).await;
        expirations::check(settings, &mut mysql, pool, database).await;
        results::check(settings, &mut redis, pool, database).await;
        reconciled::check(settings, &mut redis, pool).await;
        delisted::check(settings, &mut redis, pool, database).await;
    }
    let findings = [redis.into_vec(), mysql.into_vec()].concat();
    let count = |level| findings.iter().filter(|finding: &&Finding| finding.level == level).count();
    Diagnosis {
        errors: count(Level::Error),
        warnings: count(Level::Warning),
        not_read: count(Level::NotRead),
        findings,
    }
}
