//! The W3C trace context of a caller, which travels with the order for whoever reads the stream besides the worker.

/// Whether this is a W3C `traceparent`: `version-trace id-parent id-flags` in lower-case hexadecimal. Versions
/// above 00 may say more behind a further dash.
#[must_use]
pub fn is_traceparent(value: &[u8]) -> bool {
    let Some((known, more)) = value.split_at_checked(55) else { return false };
    let mut parts = known.split(|byte| *byte == b'-');
    let mut hex = |len: usize| {
        parts.next().filter(|part| {
            part.len() == len && part.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        })
    };
    let (Some(version), Some(trace), Some(parent), Some(_flags)) = (hex(2), hex(32), hex(16), hex(2)) else {
        return false;
    };
    let is_zero = |part: &[u8]| part.iter().all(|byte| *byte == b'0');
    let may_say_more =
        version != b"00" && value.len() <= 128 && more.first() == Some(&b'-') && more.is_ascii();
    version != b"ff" && !is_zero(trace) && !is_zero(parent) && (more.is_empty() || may_say_more)
}

#[cfg(test)]
mod tests {
    use super::is_traceparent;

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn only_what_the_standard_allows_is_a_traceparent() {
        assert!(is_traceparent(TRACE.as_bytes()));
        assert!(is_traceparent(format!("01{}-more", &TRACE[2..]).as_bytes()));
        let zero_trace = format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32));
        let zero_parent = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", "0".repeat(16));
        let forbidden = format!("ff{}", &TRACE[2..]);
        let longer = format!("{TRACE}-more");
        let upper = TRACE.to_uppercase();
        for bad in ["", "x", "\u{e9}", &TRACE[..54], &zero_trace, &zero_parent, &forbidden, &longer, &upper] {
            assert!(!is_traceparent(bad.as_bytes()), "{bad}");
        }
        assert!(!is_traceparent(&[0xff; 55]));
    }
}
