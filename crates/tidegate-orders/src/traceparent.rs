//! The W3C trace context of a client, which travels with the order.

use std::fmt;

/// The longest text that is parsed: versions above 00 may add more after another dash.
const LONGEST: usize = 128;

/// A parsed `traceparent` header: the client's trace, and the client's span that is the parent of all later spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traceparent {
    /// The id of the trace, which is never 0.
    pub trace: u128,
    /// The id of the client's span, which is never 0.
    pub parent: u64,
    /// The trace flags, as the client sent them.
    pub flags: u8,
}

impl Traceparent {
    /// Parses `version-trace id-parent id-flags` in lower-case hexadecimal. `None` for any other text: by the W3C
    /// standard, a receiver that cannot read the text must continue without it.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (known, more) = value.split_at_checked(55)?;
        let mut parts = known.split(|byte| *byte == b'-');
        let mut hex = |digits: usize| parts.next().filter(|part| part.len() == digits).and_then(number);
        let (version, trace, parent, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
        let may_say_more =
            version > 0 && value.len() <= LONGEST && more.first() == Some(&b'-') && more.is_ascii();
        let is_known = version != 0xff && (more.is_empty() || may_say_more);
        let (parent, flags) = (u64::try_from(parent).ok()?, u8::try_from(flags).ok()?);
        (is_known && trace != 0 && parent != 0).then_some(Self { trace, parent, flags })
    }

    /// Whether the client records its own spans of the trace, by the flags.
    #[must_use]
    pub fn is_sampled(self) -> bool {
        self.flags & 1 == 1
    }
}

impl fmt::Display for Traceparent {
    /// Writes the form of version 00, which every version understands.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace, parent, flags } = self;
        write!(f, "00-{trace:032x}-{parent:016x}-{flags:02x}")
    }
}

fn number(hex: &[u8]) -> Option<u128> {
    let is_hex = hex.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let text = str::from_utf8(hex).ok().filter(|_| is_hex)?;
    u128::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::Traceparent;

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn only_what_the_standard_allows_is_a_traceparent() {
        let read = Traceparent::parse(TRACE.as_bytes()).unwrap();
        assert_eq!(
            (read.trace, read.parent),
            (0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, 0x00f0_67aa_0ba9_02b7)
        );
        assert!(read.is_sampled());
        let not_sampled = Traceparent::parse(format!("{}02", &TRACE[..53]).as_bytes()).unwrap();
        assert!(!not_sampled.is_sampled() && not_sampled.flags == 2);
        assert!(Traceparent::parse(format!("01{}-more", &TRACE[2..]).as_bytes()).is_some());
        let zero_trace = format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32));
        let zero_parent = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", "0".repeat(16));
        let forbidden = format!("ff{}", &TRACE[2..]);
        let signed = format!("00-+{}", &TRACE[4..]);
        let longer = format!("{TRACE}-more");
        let upper = TRACE.to_uppercase();
        for bad in
            ["", "x", "\u{e9}", &TRACE[..54], &zero_trace, &zero_parent, &forbidden, &signed, &longer, &upper]
        {
            assert_eq!(Traceparent::parse(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(Traceparent::parse(&[0xff; 55]), None);
    }
}
