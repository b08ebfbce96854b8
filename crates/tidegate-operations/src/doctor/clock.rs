//! Compares the clocks of hosts. If they differ, order ids, sale windows and ages are wrong by the difference.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::finding::Findings;

const TOLERANCE_MS: i64 = 2_000;

/// Returns the clock of this host as Unix time in milliseconds.
pub(super) fn host_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Compares the clock of a server with this host's clock, which was read before and after the request.
pub(super) fn compare(findings: &mut Findings, (before_ms, after_ms): (i64, i64), server_ms: i64) {
    // The time of the round trip does not count as a difference.
    let difference_ms =
        if server_ms < before_ms { server_ms - before_ms } else { (server_ms - after_ms).max(0) };
    if difference_ms.abs() > TOLERANCE_MS {
        findings.warning(
            format!("the clocks of the server and of this host differ by {difference_ms} ms"),
            "run NTP on both hosts: Redis opens sales by the clock of its host, and order ids use the clock of this host",
        );
    } else {
        findings.ok("the clocks of the server and of this host agree");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;

    fn level(server_ms: i64) -> Level {
        let mut findings = Findings::of("redis");
        compare(&mut findings, (10_000, 15_000), server_ms);
        findings.into_vec()[0].level
    }

    #[test]
    fn only_what_the_round_trip_cannot_explain_counts_as_a_difference() {
        assert_eq!(level(8_000), Level::Ok);
        assert_eq!(level(7_999), Level::Warning);
        assert_eq!(level(12_000), Level::Ok);
        assert_eq!(level(17_000), Level::Ok);
        assert_eq!(level(17_001), Level::Warning);
    }
}
