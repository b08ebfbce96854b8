//! The reading of rules from the text in which Redis has them.

use std::str::FromStr;

use super::{Rule, RuleKind, Window};
use crate::order::CampaignId;

impl FromStr for Rule {
    type Err = ();

    /// Parses the form that [`Rule`] has as text.
    fn from_str(text: &str) -> Result<Self, ()> {
        let words: Vec<&str> = text.split(' ').collect();
        let &[number, name, subject, window, offset_s, orders, units] = words.as_slice() else {
            return Err(());
        };
        let most = |text: &str| text.parse().ok();
        let kind = match window {
            "rate" => RuleKind::Rate {
                period_us: offset_s.parse().map_err(drop)?,
                burst: orders.parse().map_err(drop)?,
            },
            window => {
                let offset_s = offset_s.parse().map_err(drop)?;
                let window = match window {
                    "order" => Window::Order,
                    "sale" => Window::Sale,
                    "day" => Window::Day { offset_s },
                    "month" => Window::Month { offset_s },
                    seconds => Window::Seconds(seconds.parse().map_err(drop)?),
                };
                RuleKind::Limit { window, orders: most(orders), units: most(units) }
            }
        };
        let (name, subject) = (name.parse().map_err(drop)?, subject.parse().map_err(drop)?);
        Ok(Self { number: number.parse().map_err(drop)?, name, subject, kind })
    }
}

/// The rules of a voucher or a campaign, as the field `rules` in Redis has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSet {
    /// The campaign that the voucher belongs to, or the campaign itself.
    pub campaign: Option<CampaignId>,
    /// Whether a user may have several orders of the voucher at the same time.
    pub has_slots: bool,
    /// The rules, sorted by number.
    pub rules: Vec<Rule>,
}

impl RuleSet {
    /// Parses the text that [`super::rules_text`] writes. `None` if the text has another form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (head, rules) = text.split_once(';')?;
        let (slots, campaign) = head.split_once(' ')?;
        let rules = rules.split(';').filter(|rule| !rule.is_empty());
        let mut rules = rules.map(|rule| rule.parse().ok()).collect::<Option<Vec<Rule>>>()?;
        rules.sort_by_key(|rule| rule.number);
        Some(Self { campaign: campaign.parse().ok(), has_slots: slots == "1", rules })
    }
}
