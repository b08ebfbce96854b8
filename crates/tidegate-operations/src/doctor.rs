//! Checks whether the system can process orders, and whether any order waits too long. Each finding is ok, a warning or
//! an error with advice.

pub mod before_sale;
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
mod windows;
mod workers;

use serde::Serialize;

pub use crate::finding::{Finding, Level};
use crate::{Stores, finding::Findings, settings::SystemSettings};

/// The result of all checks of the command `tidegate doctor`.
#[derive(Debug, Serialize)]
pub struct DoctorReport {
    /// The number of findings that are errors.
    pub errors: usize,
    /// The number of findings that are warnings.
    pub warnings: usize,
    /// The number of findings which say that data could not be read.
    pub not_read: usize,
    /// The findings of all checks: first the findings about Redis, then the findings about MySQL.
    pub findings: Vec<Finding>,
}

/// Checks Redis and MySQL concurrently, and changes nothing. If one store is unavailable, the other store is still
/// checked.
pub async fn diagnose(settings: &SystemSettings) -> DoctorReport {
    let (mut redis, mut mysql) = (Findings::of("redis"), Findings::of("mysql"));
    let stores = Stores::new(settings);
    let reached =
        tokio::join!(redis_checks::run(&stores, &mut redis), mysql_checks::run(&stores, &mut mysql));
    if let Some(pool) = reached.0 {
        workers::check(settings, &mut redis, pool, reached.1).await;
    }
    if let (Some(pool), Some(database)) = reached {
        sales::check(settings, &mut redis, pool, database).await;
        windows::check(settings, &mut redis, pool, database).await;
        windows::check_time_zone(settings, &mut mysql, database, None).await;
        expirations::check(settings, &mut mysql, pool, database).await;
        results::check(settings, &mut redis, pool, database).await;
        reconciled::check(settings, &mut redis, pool).await;
        delisted::check(settings, &mut redis, pool, database).await;
    }
    DoctorReport::of([redis, mysql])
}

impl DoctorReport {
    /// Counts these findings by level.
    fn of<const N: usize>(findings: [Findings; N]) -> Self {
        let findings = findings.map(Findings::into_vec).concat();
        let count = |level| findings.iter().filter(|finding: &&Finding| finding.level == level).count();
        Self {
            errors: count(Level::Error),
            warnings: count(Level::Warning),
            not_read: count(Level::NotRead),
            findings,
        }
    }
}
