//! The checks of the memory of Redis and of the certificate of the gate.

use jiff::{SignedDuration, Timestamp};
use tidegate_compare::text::{counted, size};
use tidegate_orders::RedisStore;

use super::CheckedSale;
use crate::{
    doctor::{redis_checks::memory, server_settings::info},
    finding::Findings,
};

/// The bytes of Redis memory that an order needs before compaction, as docs/capacity.md says.
const BYTES_AN_ORDER: u64 = 267;
/// The time before its end in which a certificate should be replaced already.
const LATE: SignedDuration = SignedDuration::from_hours(24);

/// Reports whether Redis has enough memory for orders of this many units.
pub(super) async fn check_memory(findings: &mut Findings, redis: &RedisStore, units: u64) {
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

/// Reports whether the certificate of the gate is valid until these sales end. Without a certificate, reports nothing.
pub(super) fn check_certificate(
    findings: &mut Findings,
    expires: Option<&Result<Timestamp, String>>,
    sales: &[CheckedSale],
    now: Timestamp,
) {
    let expires = match expires {
        None => return,
        Some(Ok(expires)) => *expires,
        Some(Err(why)) => {
            return findings.not_read(
                format!("Failed to read when the certificate of the gate expires: {why}"),
                "run this command as the user of the gate",
            );
        }
    };
    let advice = "write a new certificate into the file gate.tls_cert, and send SIGHUP to the gate";
    let found = format!("the certificate of the gate expires at {expires}");
    let begins = sales.iter().filter_map(|sale| sale.window.begin).max();
    let is_endless = sales.iter().any(|sale| sale.window.end.is_none());
    let ends = sales.iter().filter_map(|sale| sale.window.end).max();
    let outlives = !is_endless && ends.is_some_and(|end| expires > end);
    if outlives {
        findings.ok(format!("{found}, after the end of the sale"));
    } else if expires < now.max(begins.unwrap_or(now)) + LATE {
        findings.error(format!("{found}, before the end of the sale"), advice);
    } else if is_endless {
        findings.ok(found);
    } else {
        findings.warning(format!("{found}, before the end of the sale"), advice);
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
