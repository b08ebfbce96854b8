//! The report of the window of a sale: when it begins and ends.

use jiff::Timestamp;
use tidegate_compare::text::span;

use super::Sale;
use crate::finding::Findings;

/// Reports when the sale begins and ends, in UTC, if both stores agree.
pub(super) fn report(findings: &mut Findings, sale: &Sale) {
    let (voucher, window) = (sale.voucher, sale.window());
    let advice = || format!("tidegate voucher schedule --voucher {voucher} --begin TIME --end TIME");
    if let Some(end) = window.end.filter(|end| *end <= sale.now) {
        return findings.error(format!("the sale of voucher {voucher} is over: it ended at {end}"), advice());
    }
    if !window.can_open() {
        return findings.error(format!("the sale of voucher {voucher} never opens: {window}"), advice());
    }
    let when = |time: Timestamp| format!("{time} (in {})", span(sale.until(time)));
    let begin = match window.begin {
        Some(begin) if begin > sale.now => format!("begins at {}", when(begin)),
        Some(begin) => format!("began at {begin}"),
        None => "can be bought as soon as it is loaded".to_owned(),
    };
    let end = window.end.map_or_else(|| "has no end".to_owned(), |end| format!("ends at {}", when(end)));
    // The tutorial's service checks the begin itself.
    let is_unchecked = sale.redis.stock.is_some() && !sale.redis.window.has_bounds() && window.has_bounds();
    let unchecked =
        if is_unchecked { "; these times are in MySQL only: scripts do not check them" } else { "" };
    findings.ok(format!("voucher {voucher} {begin} and {end}{unchecked}"));
}
