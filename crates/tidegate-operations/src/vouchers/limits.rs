//! Limits of vouchers and campaigns: in MySQL first, which is the authority, then in Redis, which checks them.
//!
//! Each step may be repeated, and the same change again completes one that died half-way: [`plan`] compares both sides, and [`run`]
//! brings Redis in line with MySQL, whatever it was asked for.

mod shown;

use std::num::NonZeroU32;

use anyhow::Context;
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};
use tidegate_orders::{
    CampaignId, VoucherId,
    limit_rows::{self, RuleChange},
    limits::{LimitOwner, MOST_RULES, Rule, RuleKind, Subject, SubjectName, Window, gives_slots},
};

use super::VoucherStores;
use crate::change::{Ending, Next, Plan, Report};
pub use shown::{NotShown, show, show_all};

/// A change of the limits of a voucher or a campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitRequest {
    /// Whose.
    pub owner: LimitOwner,
    /// What.
    pub change: RuleChange,
    /// Who wants it.
    pub by: String,
    /// The rate as it was typed, such as `10/1s`.
    pub rate: Option<String>,
}

/// A limit as it is to be, without a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLimit {
    /// What refusals call it.
    pub name: SubjectName,
    /// What it counts by.
    pub subject: Subject,
    /// How much there may be.
    pub kind: RuleKind,
}

impl From<NewLimit> for RuleChange {
    fn from(NewLimit { name, subject, kind }: NewLimit) -> Self {
        Self::Set(Rule { number: NonZeroU32::MIN, name, subject, kind })
    }
}

/// A limit, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShownRule {
    /// Of this definition; None: it gets one when it is set.
    pub number: Option<u32>,
    /// Its name.
    pub name: String,
    /// What it counts by.
    pub subject: String,
    /// `order`, `sale`, `day`, `month`, `rate`, or a number of seconds.
    pub window: String,
    /// Of days and months: seconds east of Greenwich.
    pub offset_s: i32,
    /// Most orders; of a rate, at once.
    pub orders: Option<u32>,
    /// Most units.
    pub units: Option<u32>,
    /// Of a rate: microseconds from one admission to the next.
    pub period_us: Option<u32>,
    /// The same as it is typed, such as `10/1s`.
    pub rate: Option<String>,
}

impl From<&Rule> for ShownRule {
    fn from(rule: &Rule) -> Self {
        let (window, offset_s, orders, units, period_us) = match rule.kind {
            RuleKind::Rate { period_us, burst } => {
                ("rate".to_owned(), 0, Some(burst.get()), None, Some(period_us.get()))
            }
            RuleKind::Limit { window, orders, units } => {
                let (window, offset_s) = match window {
                    Window::Order => ("order".to_owned(), 0),
                    Window::Sale => ("sale".to_owned(), 0),
                    Window::Day { offset_s } => ("day".to_owned(), offset_s),
                    Window::Month { offset_s } => ("month".to_owned(), offset_s),
                    Window::Seconds(seconds) => (seconds.to_string(), 0),
                };
                (window, offset_s, orders, units, None)
            }
        };
        let (name, subject) = (rule.name.to_string(), rule.subject.to_string());
        let (number, rate) = (Some(rule.number.get()), period_us.map(rate_text));
        Self { number, name, subject, window, offset_s, orders, units, period_us, rate }
    }
}

/// A rate as it may be typed: so many in a second, a minute or an hour, or one in so long.
fn rate_text(period_us: u32) -> String {
    const SPANS: [(&str, u64); 3] = [("1s", 1_000_000), ("1m", 60_000_000), ("1h", 3_600_000_000)];
    let period_us = u64::from(period_us.max(1));
    // Typed rates are rounded down to whole microseconds.
    let typed = SPANS.into_iter().find_map(|(span, us)| {
        let orders = (us + period_us / 2) / period_us;
        (orders > 0 && us / orders == period_us).then(|| format!("{orders}/{span}"))
    });
    typed.unwrap_or_else(|| format!("1/{}ms", period_us / 1000))
}

/// What a change came to, or would come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitOutcome {
    /// It can be made.
    WouldChange,
    /// MySQL has it, and Redis does not: it would be completed.
    WouldComplete,
    /// Both sides have it.
    Changed,
    /// Both sides had it before.
    AsItWas,
    /// It is not made, for a reason.
    Refused,
}

/// Why limits are not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitRefusal {
    /// There is none of this name.
    #[error("it has no limit of this name")]
    NoSuchLimit,
    /// No voucher is in the campaign.
    #[error("no voucher is in it; see docs/buying-limits.md")]
    NoSuchCampaign,
    /// Every rule costs every admission.
    #[error("it and its campaign would have {rules} limits together, and {MOST_RULES} are the most")]
    TooMany {
        /// How many there would be.
        rules: usize,
    },
    /// Redis does not take them.
    #[error("{0}")]
    NotShown(NotShown),
}

impl Serialize for LimitRefusal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What was found, or done.
#[derive(Clone, Debug, Serialize)]
pub struct LimitChange {
    /// Whose limits: `voucher:7` or `campaign:5`.
    #[serde(serialize_with = "owner_text")]
    pub owner: LimitOwner,
    /// What came of it, or would come of it.
    pub outcome: LimitOutcome,
    /// Why it is refused.
    #[serde(rename = "reason")]
    pub refusal: Option<LimitRefusal>,
    /// What counts now; in a plan: what would count after the change.
    pub limits: Vec<ShownRule>,
    /// Who is refused from then on, who was not before.
    pub refused_from_now_on: Vec<String>,
    /// Redis offers a voucher that they are for, or will when its time comes: the change counts for callers at once.
    pub is_on_sale: bool,
    /// A user may hold several orders, 31 at most.
    pub slots: bool,
    #[serde(skip)]
    request: LimitRequest,
}

fn owner_text<S: Serializer>(owner: &LimitOwner, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(owner)
}

impl LimitChange {
    /// What was asked for.
    #[must_use]
    pub const fn request(&self) -> &LimitRequest {
        &self.request
    }

    fn new(
        request: LimitRequest,
        outcome: LimitOutcome,
        refusal: Option<LimitRefusal>,
        rules: &[Rule],
    ) -> Self {
        let slots = matches!(request.owner, LimitOwner::Voucher(_)) && gives_slots(rules);
        let mut limits: Vec<ShownRule> = rules.iter().map(ShownRule::from).collect();
        if let (RuleChange::Set(rule), Some(rate)) = (&request.change, &request.rate) {
            let set = limits.iter_mut().find(|shown| shown.name == rule.name.as_str());
            set.into_iter().for_each(|shown| shown.rate = Some(rate.clone()));
        }
        let refused_from_now_on = Vec::new();
        Self {
            owner: request.owner,
            outcome,
            refusal,
            limits,
            refused_from_now_on,
            is_on_sale: false,
            slots,
            request,
        }
    }
}

impl Plan for LimitChange {
    fn next(&self) -> Next {
        let name = match &self.request.change {
            RuleChange::Set(rule) => rule.name.as_str(),
            RuleChange::Remove(name) => name,
        };
        let owner = spoken(self.owner);
        match (self.outcome, &self.request.change) {
            (LimitOutcome::Refused, _) => Next::Refused,
            (LimitOutcome::AsItWas, _) => Next::NothingToDo,
            (_, RuleChange::Set(_)) if self.is_on_sale => {
                Next::Ask(format!("Set the limit {name} of {owner}, which is on sale?"))
            }
            (_, RuleChange::Set(_)) => Next::Go,
            (_, RuleChange::Remove(_)) => Next::Ask(format!("Take the limit {name} of {owner} away?")),
        }
    }
}

impl Report for LimitChange {
    fn counts(&self) -> Json {
        json!({ "limits": self.limits.len() })
    }

    fn ending(&self) -> Ending {
        if self.refusal.is_none() { Ending::Done } else { Ending::Refused }
    }

    fn torn(&self) -> &'static str {
        "MySQL may have the change and Redis not: the same command again completes it"
    }
}

/// `voucher 7`, `campaign 5`.
#[must_use]
pub fn spoken(owner: LimitOwner) -> String {
    owner.to_string().replace(':', " ")
}

/// Compares both sides, and changes nothing.
///
/// # Errors
/// When a store does not answer.
pub async fn plan(stores: &VoucherStores, request: LimitRequest) -> anyhow::Result<LimitChange> {
    let rules = read(stores, request.owner).await?;
    let is_in_line = shown::is_in_line(stores, request.owner).await?;
    let (refusal, is_made) = match &request.change {
        RuleChange::Set(new) => {
            let known = rules.iter().find(|rule| rule.name == new.name);
            let is_made = known.is_some_and(|known| known.counts_as(new) && known.kind == new.kind);
            let others = rules.len() + usize::from(known.is_none());
            (too_many(stores, request.owner, others).await?, is_made)
        }
        RuleChange::Remove(name) => {
            let is_made = !rules.iter().any(|rule| rule.name.as_str() == name);
            ((is_made && is_in_line).then_some(LimitRefusal::NoSuchLimit), is_made)
        }
    };
    let outcome = match (&refusal, is_made, is_in_line) {
        (Some(_), ..) => LimitOutcome::Refused,
        (None, true, true) => LimitOutcome::AsItWas,
        (None, true, false) => LimitOutcome::WouldComplete,
        (None, false, _) => LimitOutcome::WouldChange,
    };
    let mut after = rules.clone();
    if outcome == LimitOutcome::WouldChange {
        apply(&mut after, &request.change);
    }
    let (owner, change) = (request.owner, request.change.clone());
    let mut planned = LimitChange::new(request, outcome, refusal, &after);
    if let (RuleChange::Set(new), true) = (&change, outcome == LimitOutcome::WouldChange) {
        planned.is_on_sale = is_on_sale(stores, owner).await?;
        planned.refused_from_now_on = refused_from_now_on(stores, owner, (&rules, new)).await?;
        for shown in planned
            .limits
            .iter_mut()
            .filter(|shown| !rules.iter().any(|it| shown.number == Some(it.number.get())))
        {
            shown.number = None;
        }
    }
    Ok(planned)
}

/// The limits as they are after a change: one that counts something else comes last, as it does once it is written.
fn apply(rules: &mut Vec<Rule>, change: &RuleChange) {
    let free = rules.iter().map(|rule| rule.number.get()).max().unwrap_or(0).saturating_add(1);
    match change {
        RuleChange::Remove(name) => rules.retain(|rule| rule.name.as_str() != name),
        RuleChange::Set(new) => match rules.iter_mut().find(|rule| rule.name == new.name) {
            Some(old) if old.counts_as(new) => old.kind = new.kind,
            _ => {
                rules.retain(|rule| rule.name != new.name);
                rules.push(Rule { number: NonZeroU32::new(free).unwrap_or(NonZeroU32::MAX), ..new.clone() });
            }
        },
    }
}

/// Whether callers can buy any of the vouchers that the limits are for.
async fn is_on_sale(stores: &VoucherStores, owner: LimitOwner) -> anyhow::Result<bool> {
    let vouchers = match owner {
        LimitOwner::Voucher(voucher) => vec![voucher],
        LimitOwner::Campaign(campaign) => {
            regions(stores, campaign).await?.into_iter().map(|(_, voucher)| voucher).collect()
        }
    };
    for voucher in vouchers {
        let state = stores
            .redis
            .sales()
            .read_voucher(voucher)
            .await
            .context("Failed to read the voucher in Redis")?;
        // One that is paused or has not begun is published to its callers with the rules that it has.
        let is_over = state.window.end.is_some_and(|end| end <= Timestamp::now());
        if state.stock.is_some() && state.delisted_ms.is_none() && !is_over {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whom a new rule shuts out, beside those who have used it up.
async fn refused_from_now_on(
    stores: &VoucherStores,
    owner: LimitOwner,
    (rules, new): (&[Rule], &Rule),
) -> anyhow::Result<Vec<String>> {
    let (mut refused, mut asked) = (Vec::new(), rules.to_vec());
    if let LimitOwner::Voucher(voucher) = owner {
        if !stores.redis.limits().has_limits(voucher).await.context("Failed to read the voucher in Redis")? {
            refused.push("callers of admit.lua hear 12: they have to use admit_limited.lua".to_owned());
        }
        if let Some(campaign) = campaign_of(stores, voucher).await? {
            asked.extend(read(stores, LimitOwner::Campaign(campaign)).await?);
        }
    }
    if let Subject::Named(name) = &new.subject
        && !asked.iter().any(|rule| rule.subject == new.subject)
    {
        refused.push(format!("callers who send no `{name}`"));
    }
    Ok(refused)
}

/// Makes the change that was planned. May be called again after a failure, and completes it then.
///
/// # Errors
/// When a store does not answer.
pub async fn run(stores: &VoucherStores, plan: LimitChange) -> anyhow::Result<LimitChange> {
    let request = plan.request;
    let changed = limit_rows::change(&stores.mysql, request.owner, &request.change, &request.by).await;
    changed.context("Failed to write the limit to MySQL")?;
    let shown = show(stores, request.owner, &request.by).await;
    let shown = shown.context("Failed to show the limits to Redis; MySQL has them, run this again")?;
    let refusal = shown.err().map(LimitRefusal::NotShown);
    let outcome = if refusal.is_some() { LimitOutcome::Refused } else { LimitOutcome::Changed };
    let rules = read(stores, request.owner).await?;
    Ok(LimitChange::new(request, outcome, refusal, &rules))
}

async fn read(stores: &VoucherStores, owner: LimitOwner) -> anyhow::Result<Vec<Rule>> {
    limit_rows::read(&stores.mysql, owner).await.context("Failed to read the limits in MySQL")
}

async fn campaign_of(stores: &VoucherStores, voucher: VoucherId) -> anyhow::Result<Option<CampaignId>> {
    let campaign = limit_rows::campaign_of(&stores.mysql, voucher).await;
    campaign.context("Failed to read the campaign of the voucher in MySQL")
}

async fn regions(stores: &VoucherStores, campaign: CampaignId) -> anyhow::Result<Vec<(String, VoucherId)>> {
    let regions = limit_rows::regions(&stores.mysql, campaign).await;
    regions.context("Failed to read the campaign in MySQL")
}

/// Whether an admission would have to check too much if the owner had so many rules.
async fn too_many(
    stores: &VoucherStores,
    owner: LimitOwner,
    own: usize,
) -> anyhow::Result<Option<LimitRefusal>> {
    let others = match owner {
        LimitOwner::Voucher(voucher) => match campaign_of(stores, voucher).await? {
            Some(campaign) => read(stores, LimitOwner::Campaign(campaign)).await?.len(),
            None => 0,
        },
        LimitOwner::Campaign(campaign) => {
            let regions = regions(stores, campaign).await?;
            if regions.is_empty() {
                return Ok(Some(LimitRefusal::NoSuchCampaign));
            }
            let mut most = 0;
            for (_, voucher) in regions {
                most = most.max(read(stores, LimitOwner::Voucher(voucher)).await?.len());
            }
            most
        }
    };
    let rules = own + others;
    Ok((rules > MOST_RULES).then_some(LimitRefusal::TooMany { rules }))
}

/// The limits of a voucher or a campaign, on both sides.
#[derive(Clone, Debug, Serialize)]
pub struct LimitList {
    /// Whose limits: `voucher:7` or `campaign:5`.
    #[serde(serialize_with = "owner_text")]
    pub owner: LimitOwner,
    /// The campaign of the voucher, whose limits count, too.
    pub campaign: Option<CampaignId>,
    /// What MySQL has.
    pub limits: Vec<ShownRule>,
    /// Redis has just these.
    pub is_shown: bool,
}

/// Reads the limits of a voucher or a campaign.
///
/// # Errors
/// When a store does not answer.
pub async fn list(stores: &VoucherStores, owner: LimitOwner) -> anyhow::Result<LimitList> {
    let rules = read(stores, owner).await?;
    let campaign = match owner {
        LimitOwner::Voucher(voucher) => campaign_of(stores, voucher).await?,
        LimitOwner::Campaign(_) => None,
    };
    let is_shown = shown::is_in_line(stores, owner).await?;
    Ok(LimitList { owner, campaign, limits: rules.iter().map(ShownRule::from).collect(), is_shown })
}
