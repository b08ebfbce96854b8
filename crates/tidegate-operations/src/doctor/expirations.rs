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
            format!("the state of unpaid orders could not be read: {}", error_chain(&error)),
            format!(
                "allow this user to read tidegate_unpaid_order, tidegate_fleet_mark and {}",
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
    let resume = format!("find out what is lost, then tidegate resume --expirations; see {WENT_BACK}");
    match view.state {
        RestoreState::RedisWentBack => {
            findings.error("Redis went back in time: no unpaid order expires", resume)
        }
        RestoreState::MySqlWentBack => {
            findings.error("MySQL went back in time: no unpaid order expires", resume)
        }
        RestoreState::Whole if view.unpaid.overdue_s > LATE_S => findings.warning(
            format!(
                "{} should have expired, the oldest {:.0} s ago",
                counted(view.unpaid.overdue, "unpaid order"),
                view.unpaid.overdue_s
            ),
            "tidegate status; see docs/runbook/store-went-back.md",
        ),
        RestoreState::Whole if view.unpaid.orders > 0 => {
            findings
                .ok(format!("{} to be paid in time, and none is late", counted(view.unpaid.orders, "order")));
        }
        RestoreState::Whole => {}
    }
}
