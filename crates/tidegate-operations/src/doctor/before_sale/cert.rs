//! The check of the certificate of the gate.

use jiff::{SignedDuration, Timestamp};

use super::UpcomingSale;
use crate::finding::Findings;

/// The time before its end in which a certificate should be replaced already.
const LATE: SignedDuration = SignedDuration::from_hours(24);

/// Reports whether the certificate of the gate is valid until these sales end. Without a certificate, reports nothing.
pub(super) fn check(
    findings: &mut Findings,
    expires: Option<&Result<Timestamp, String>>,
    sales: &[UpcomingSale],
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
