//! The check of the memory that the orders of a sale need in Redis.

use tidegate_compare::text::{counted, size};
use tidegate_orders::RedisStore;

use crate::{
    doctor::{redis_checks::memory, server_settings::info},
    finding::Findings,
};

/// The bytes of Redis memory that an order needs before compaction, as docs/capacity.md says.
const BYTES_AN_ORDER: u64 = 267;

/// Reports whether Redis has enough memory for orders of this many units.
pub(super) async fn check(findings: &mut Findings, redis: &RedisStore, units: u64) {
    let needed = units.saturating_mul(BYTES_AN_ORDER);
    let orders = counted(units, "order");
    let needed_text = format!("{orders} of one unit need about {} of Redis memory", size(needed));
    let (used, most) = match info(redis).await {
        Ok(info) => match memory(&info) {
            Some(memory) => memory,
            None => {
                return findings.not_read(
                    format!(
                        "{needed_text}; Redis has no maxmemory, and its machine's memory is unknown here"
                    ),
                    "check the free memory on the machine of Redis (free -h)",
                );
            }
        },
        Err(error) => {
            return findings.not_read(
                format!("{needed_text}; Failed to read the memory of Redis: {}", error.details()),
                "allow INFO for Tidegate's Redis user",
            );
        }
    };
    let free = most.saturating_sub(used);
    let found = format!("{needed_text}, and {} are free (maxmemory)", size(free));
    match needed > free {
        true => findings
            .error(found, "raise maxmemory or free memory: see docs/runbook/redis-is-out-of-memory.md"),
        false => findings.ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_an_order_is_the_measured_figure_of_the_documents() {
        let page = include_str!("../../../../../docs/capacity.md");
        assert!(page.contains(&format!("{BYTES_AN_ORDER} bytes for each order before compaction")));
    }
}
