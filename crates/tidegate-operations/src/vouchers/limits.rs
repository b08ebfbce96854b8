//! The limits of vouchers and campaigns: in MySQL first, which is the authority, then in Redis, which checks them.
//!
//! Each step may be repeated, and the same change completes one that was killed half-way. [`plan`] compares both
//! stores, and [`run`] makes Redis equal to MySQL, whatever the request is.

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

/// The request to change the limits of a voucher or a campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitRequest {
    /// The voucher or the campaign whose limits change.
    pub owner: LimitOwner,
    /// The change of the limits: a limit to set, or the name of a limit to remove.
    pub change: RuleChange,
    /// The operator who changes the limits.
    pub by: String,
    /// The rate as the operator typed it, such as `10/1s`; None: the limit is not a rate.
    pub rate: Option<String>,
}

/// A new limit that has no number in MySQL yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLimit {
    /// The name of the limit, which a refusal shows to the caller.
    pub name: SubjectName,
    /// The kind of subject by which the limit counts orders, such as a device or an address.
    pub subject: Subject,
    /// The time window and the maximum of the limit.
    pub kind: RuleKind,
}

impl From<NewLimit> for RuleChange {
    fn from(NewLimit { name, subject, kind }: NewLimit) -> Self {
        Self::Set(Rule { number: NonZeroU32::MIN, name, subject, kind })
    }
}

/// A limit on orders with values that people and programs can read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShownRule {
    /// The number that MySQL gave to this version of the limit; None: the limit is not set yet.
    pub number: Option<u32>,
    /// The name of the limit, which a refusal shows to the caller.
    pub name: String,
    /// The kind of subject by which the limit counts orders, such as a device or an address.
    pub subject: String,
    /// The time window in which the limit counts: `order`, `sale`, `day`, `month`, `rate`, or a number of seconds.
    pub window: String,
    /// The time zone of the limit's days and months, in seconds east of UTC.
    pub offset_s: i32,
    /// The highest number of orders in the window; for a rate, the number of orders that may come at the same time.
    pub orders: Option<u32>,
    /// The highest number of units in the window.
    pub units: Option<u32>,
    /// The microseconds between two orders that the rate admits; None: the limit is not a rate.
    pub period_us: Option<u32>,
    /// The rate as an operator types it, such as `10/1s`; None: the limit is not a rate.
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

/// Formats a rate in the form in which it is typed: a number per second, minute or hour, or one per span in ms.
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

/// The planned or actual result of a change of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitOutcome {
    /// The change can be made.
    WouldChange,
    /// MySQL has the change, and Redis does not: it would be completed.
    WouldComplete,
    /// Both stores have the change now.
    Changed,
    /// Both stores had the change before.
    AsItWas,
    /// The change is refused, for a reason.
    Refused,
}

/// The reason why a change of limits is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitRefusal {
    /// The owner has no limit of this name.
    #[error("there is no limit of this name")]
    NoSuchLimit,
    /// No voucher is in the campaign.
    #[error("the campaign has no vouchers; see docs/buying-limits.md")]
    NoSuchCampaign,
    /// There would be too many rules, and every admission has to check each rule.
    #[error("a voucher and its campaign may have {MOST_RULES} limits together, but would have {rules}")]
    TooMany {
        /// The number of rules that there would be.
        rules: usize,
    },
    /// Redis does not take the limits.
    #[error("{0}")]
    NotShown(NotShown),
}

impl Serialize for LimitRefusal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The plan or the report of a change of the limits of a voucher or a campaign.
#[derive(Clone, Debug, Serialize)]
pub struct LimitChange {
    /// The owner of the limits: `voucher:7` or `campaign:5`.
    #[serde(serialize_with = "owner_text")]
    pub owner: LimitOwner,
    /// The planned or actual result of the change.
    pub outcome: LimitOutcome,
    /// The reason why the change is refused; None: the change is not refused.
    #[serde(rename = "reason")]
    pub refusal: Option<LimitRefusal>,
    /// The limits of the voucher or the campaign; in a plan, the limits after the change.
    pub limits: Vec<ShownRule>,
    /// The producers whose requests would be refused only because of the change.
    pub refused_from_now_on: Vec<String>,
    /// Whether Redis sells a voucher with these limits, now or later, so that the change affects buyers at once.
    pub is_on_sale: bool,
    /// Whether a user may have several uncancelled orders for one voucher, at most 31.
    pub slots: bool,
    #[serde(skip)]
    request: LimitRequest,
}

fn owner_text<S: Serializer>(owner: &LimitOwner, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(owner)
}

impl LimitChange {
    /// Returns the request that led to this change of limits.
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
            (_, RuleChange::Remove(_)) => Next::Ask(format!("Remove the limit {name} of {owner}?")),
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
        "MySQL may have the change while Redis does not: run the same command again to complete the change"
    }
}

/// Formats the owner of limits for people: `voucher 7` or `campaign 5`.
#[must_use]
pub fn spoken(owner: LimitOwner) -> String {
    owner.to_string().replace(':', " ")
}

/// Reads the limits in Redis and MySQL, plans the change, and changes nothing.
///
/// # Errors
/// If a store does not answer.
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

/// Applies the change to the list of rules. A rule that counts something else comes last, as it does once it is
/// written.
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

/// Returns whether callers can buy a voucher with these limits.
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
        // A sale that is paused or has not begun counts as well: its callers have been told its rules.
        let is_over = state.window.end.is_some_and(|end| end <= Timestamp::now());
        if state.stock.is_some() && state.delisted_ms.is_none() && !is_over {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the callers that a new rule refuses, apart from those that have used it up.
async fn refused_from_now_on(
    stores: &VoucherStores,
    owner: LimitOwner,
    (rules, new): (&[Rule], &Rule),
) -> anyhow::Result<Vec<String>> {
    let (mut refused, mut asked) = (Vec::new(), rules.to_vec());
    if let LimitOwner::Voucher(voucher) = owner {
        if !stores.redis.limits().has_limits(voucher).await.context("Failed to read the voucher in Redis")? {
            refused.push("callers of admit.lua get reply 12: they must call admit_limited.lua".to_owned());
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

/// Makes the planned change of limits. If the call fails, call it again to complete the change.
///
/// # Errors
/// If a store does not answer.
pub async fn run(stores: &VoucherStores, plan: LimitChange) -> anyhow::Result<LimitChange> {
    let request = plan.request;
    let changed = limit_rows::change(&stores.mysql, request.owner, &request.change, &request.by).await;
    changed.context("Failed to write the limit to MySQL")?;
    let shown = show(stores, request.owner, &request.by).await;
    let shown =
        shown.context("Failed to write the limits to Redis; MySQL has them: run this command again")?;
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

/// Returns a refusal if an admission would have to check too many rules.
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

/// The limits of a voucher or a campaign in Redis and MySQL.
#[derive(Clone, Debug, Serialize)]
pub struct LimitList {
    /// The owner of the limits: `voucher:7` or `campaign:5`.
    #[serde(serialize_with = "owner_text")]
    pub owner: LimitOwner,
    /// The campaign of the voucher; None: the voucher is not in a campaign. The limits of the campaign also apply to
    /// the voucher.
    pub campaign: Option<CampaignId>,
    /// The limits that MySQL has.
    pub limits: Vec<ShownRule>,
    /// Whether Redis has exactly the same limits as MySQL.
    pub is_shown: bool,
}

/// Reads the limits of a voucher or a campaign from Redis and MySQL.
///
/// # Errors
/// If a store does not answer.
pub async fn list(stores: &VoucherStores, owner: LimitOwner) -> anyhow::Result<LimitList> {
    let rules = read(stores, owner).await?;
    let campaign = match owner {
        LimitOwner::Voucher(voucher) => campaign_of(stores, voucher).await?,
        LimitOwner::Campaign(_) => None,
    };
    let is_shown = shown::is_in_line(stores, owner).await?;
    Ok(LimitList { owner, campaign, limits: rules.iter().map(ShownRule::from).collect(), is_shown })
}
