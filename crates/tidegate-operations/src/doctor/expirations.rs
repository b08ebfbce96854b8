//! Checks whether unpaid orders expire in time.

use sqlx::MySqlPool;
use tidegate_compare::text::{counted, error_chain};
use tidegate_orders::{RedisStore, RestoreState, migration_hint};

use crate::{
    SystemSettings,
    expirations::{ExpirationsView, WENT_BACK},
    finding::Findings,
};

/// The delay in seconds after which an order does not wait for its turn, but for an operator.
const LATE_S: f64 = 60.0;

/// Checks whether anything keeps unpaid orders from expiring. It reports nothing if no order has a time limit for its
/// payment.
pub(super) async fn check(
    settings: &SystemSettings,
    findings: &mut Findings,
    redis: &RedisStore,
    mysql: &MySqlPool,
) {
    let view = ExpirationsView::read(settings, redis, mysql, settings.mysql.statement_timeout).await;
    match view {
        Ok(view) => report(findings, &view),
        // The check of the tables reports this.
        Err(error) if is_not_migrated(&error) => {}
        Err(error) => findings.warning(
            format!("Failed to read the state of unpaid orders: {}", error_chain(&error)),
            format!(
                "allow Tidegate's users to read tidegate_unpaid_order and tidegate_fleet_mark in MySQL, and {} in Redis",
                redis.keys().fleet().restore_counter().as_str_lossy()
            ),
        ),
    }
}

fn is_not_migrated(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<sqlx::Error>());
    causes.any(|error| !migration_hint(error).is_empty())
}

fn report(findings: &mut Findings, view: &ExpirationsView) {
    let resume = format!("find the lost data, then run tidegate resume --expirations; see {WENT_BACK}");
    match view.state {
        RestoreState::RedisWentBack => {
            findings.error("Redis lost its newest data: no unpaid order expires", resume)
        }
        RestoreState::MySqlWentBack => {
            findings.error("MySQL lost its newest data: no unpaid order expires", resume)
        }
        RestoreState::Whole if view.unpaid.overdue_s > LATE_S => findings.warning(
            format!(
                "{} should have expired but did not; the oldest is {:.0} s late",
                counted(view.unpaid.overdue, "unpaid order"),
                view.unpaid.overdue_s
            ),
            "run tidegate status to see why; see docs/runbook/store-went-back.md",
        ),
        RestoreState::Whole if view.unpaid.orders > 0 => {
            findings.ok(format!(
                "{} can still be paid, and none is overdue",
                counted(view.unpaid.orders, "unpaid order")
            ));
        }
        RestoreState::Whole => {}
    }
}
