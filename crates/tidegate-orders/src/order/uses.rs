//! The uses of limits by an order, as the journal, the entry and the table `tidegate_limit_use` store them.

use std::{fmt, num::NonZeroU32};

use serde::{Serialize, Serializer};

use super::CampaignId;

/// The maximum number of rules (limits) that a voucher and its campaign have together. Each rule makes every order in
/// Redis slower.
pub const MOST_RULES: usize = 8;
/// The length of the longest value of a subject, in bytes.
pub(crate) const MOST_VALUE_BYTES: usize = 64;
/// The length of the longest text, in bytes: campaign, number, window and value of each rule.
const MOST_BYTES: usize = MOST_RULES * (MOST_VALUE_BYTES + 48);

/// The limits that one order counts against, as a text such as `3,19700,abc c5.4,640,x`. This text names the voucher's
/// rule 3 on day 19700 for the value `abc`, and rule 4 of campaign 5 in month 640 for the value `x`. The text is empty if
/// no limit counts the order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Uses(Box<str>);

/// One limit that an order counts against, with the time window and the counted value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Use<'a> {
    /// The campaign that owns the limit. `None` if the limit belongs to the voucher.
    pub campaign: Option<CampaignId>,
    /// The number of the rule (limit) that counts the order.
    pub rule: NonZeroU32,
    /// The number of the time window in which the limit counts the order: a day since 1970, a month since year 0, or a
    /// span of some seconds since 1970. 0 if the window is the whole sale.
    pub window: u64,
    /// The value that the limit counts by, such as a phone. The value is empty if the limit counts all orders together.
    pub value: &'a str,
}

impl Use<'_> {
    /// The name of the counter for this use in the Redis hash of limit counters.
    #[must_use]
    pub fn field(&self) -> String {
        format!("{}:{}", self.rule, self.value)
    }
}

impl Uses {
    /// Parses the text of the limits that an order counts against. `None` if the text does not come from the script
    /// that admits orders.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= MOST_BYTES)?;
        let pieces = || text.split(' ').filter(|_| !text.is_empty());
        let is_sound = pieces().count() <= MOST_RULES && pieces().all(|piece| parse_use(piece).is_some());
        is_sound.then(|| Self(text.into()))
    }

    /// Iterates over the limits that the order counts against.
    pub fn iter(&self) -> impl Iterator<Item = Use<'_>> {
        self.0.split(' ').filter_map(parse_use)
    }

    /// The text in which Redis stores the limits that an order counts against. The text contains letters, digits, `_ .
    /// : + / = - ,` and spaces, so it needs no escapes in SQL.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Uses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Uses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// Whether values of subjects may contain this character.
pub(crate) const fn is_value_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b':' | b'+' | b'/' | b'=' | b'-')
}

fn parse_use(piece: &str) -> Option<Use<'_>> {
    let (rule, rest) = piece.split_once(',')?;
    let (window, value) = rest.split_once(',')?;
    let (campaign, rule) = match rule.strip_prefix('c') {
        None => (None, rule),
        Some(of_campaign) => {
            let (campaign, rule) = of_campaign.split_once('.')?;
            (Some(campaign.parse().ok()?), rule)
        }
    };
    let is_value = value.len() <= MOST_VALUE_BYTES && value.bytes().all(is_value_byte);
    let (rule, window) = (rule.parse().ok()?, window.parse().ok()?);
    is_value.then_some(Use { campaign, rule, window, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_scripts_wrote_is_read_and_nothing_else() {
        let uses = Uses::parse(b"3,19700,abc c5.4,640,x 9,0,").unwrap();
        let found: Vec<_> = uses
            .iter()
            .map(|found| (found.campaign.map(CampaignId::get), found.field(), found.window))
            .collect();
        let expected = [(None, "3:abc", 19700), (Some(5), "4:x", 640), (None, "9:", 0)];
        assert_eq!(found, expected.map(|(campaign, field, window)| (campaign, field.to_owned(), window)));
        assert_eq!(Uses::parse(b"").unwrap().iter().count(), 0);
        let many = ["1,0,a"; 9].join(" ");
        for bad in [
            "3",
            "3,1",
            "0,1,a",
            "3,x,a",
            "c.3,1,a",
            "c5.,1,a",
            "3,1,a'b",
            "3,1,a  3,1,a",
            " ",
            "3,1,\0",
            &many,
        ] {
            assert_eq!(Uses::parse(bad.as_bytes()), None, "{bad}");
        }
        let long = format!("1,0,{}", "a".repeat(65));
        assert_eq!(Uses::parse(long.as_bytes()), None);
        assert_eq!(Uses::parse(b"1,0,\xff"), None);
    }
}
