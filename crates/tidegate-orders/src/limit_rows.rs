//! The MySQL rows of limits and campaigns: `tidegate_limit` and `tidegate_campaign`.

use std::{collections::HashMap, num::NonZeroU32};

use sqlx::{Executor, MySql, MySqlConnection, MySqlPool, mysql::MySqlRow, prelude::*};

use crate::{
    limits::{LimitOwner, Rule, RuleKind, Window, rules_text},
    order::{CampaignId, VoucherId},
    records::RecordsError,
    session::Session,
};

/// The words of the column `period`. For a window of seconds, the column holds the number of seconds.
const ORDER: &str = "order";
const SALE: &str = "sale";
const DAY: &str = "day";
const MONTH: &str = "month";
const RATE: &str = "rate";

const SELECT: &str = "SELECT CAST(number AS SIGNED), CAST(name AS CHAR), CAST(subject AS CHAR), CAST(period AS CHAR), \
    CAST(offset_s AS SIGNED), CAST(orders AS SIGNED), CAST(units AS SIGNED), CAST(period_us AS SIGNED) FROM tidegate_limit \
    WHERE owner_kind = ? AND owner_id = ? AND removed_at IS NULL ORDER BY number";

/// A change of one limit of a voucher or campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleChange {
    /// Sets this limit, under its name. [`change`] finds its number.
    Set(Rule),
    /// Removes the limit with this name, so that it no longer counts.
    Remove(String),
}

const fn owner_columns(owner: LimitOwner) -> (&'static str, i64) {
    match owner {
        LimitOwner::Voucher(voucher) => ("voucher", voucher.get()),
        LimitOwner::Campaign(campaign) => ("campaign", campaign.get()),
    }
}

/// Reads the current limits of a voucher or a campaign, in the order in which they were set.
///
/// # Errors
/// If MySQL does not answer or the tables are not ready.
pub async fn read(
    db: impl Executor<'_, Database = MySql>,
    owner: LimitOwner,
) -> Result<Vec<Rule>, RecordsError> {
    let (kind, id) = owner_columns(owner);
    let rows = sqlx::query(SELECT).bind(kind).bind(id).fetch_all(db).await?;
    Ok(rows.iter().map(parse).collect::<Result<_, _>>()?)
}

/// The text of the limits that Redis must hold for a voucher or a campaign, in the format of [`rules_text`]. `None` if
/// the voucher has no limits and is in no campaign.
///
/// # Errors
/// As [`read`].
pub async fn text(pool: &MySqlPool, owner: LimitOwner) -> Result<Option<String>, RecordsError> {
    let rules = read(pool, owner).await?;
    let LimitOwner::Voucher(voucher) = owner else { return Ok(Some(rules_text(owner, None, &rules))) };
    let campaign = campaign_of(pool, voucher).await?;
    Ok((campaign.is_some() || !rules.is_empty()).then(|| rules_text(owner, campaign, &rules)))
}

/// Changes a limit in one transaction, and stores `by` as the author. Returns all limits of the voucher or campaign
/// after the change.
///
/// # Errors
/// As [`read`].
pub async fn change(
    pool: &MySqlPool,
    owner: LimitOwner,
    change: &RuleChange,
    by: &str,
) -> Result<Vec<Rule>, RecordsError> {
    let (kind, id) = owner_columns(owner);
    let mut session = Session::begin(pool).await?;
    // A second change waits here for the first one, and then reads its result.
    let known = "SELECT CAST(number AS SIGNED) FROM tidegate_limit WHERE owner_kind = ? AND owner_id = ? \
                 ORDER BY number DESC LIMIT 1 FOR UPDATE";
    let highest: Option<i64> =
        sqlx::query_scalar(known).bind(kind).bind(id).fetch_optional(&mut **session).await?;
    let rules = read(&mut **session, owner).await?;
    let name = match change {
        RuleChange::Set(rule) => rule.name.as_str(),
        RuleChange::Remove(name) => name,
    };
    let old = rules.iter().find(|rule| rule.name.as_str() == name);
    let stays = matches!((old, change), (Some(old), RuleChange::Set(new)) if new.counts_as(old));
    if let Some(old) = old.filter(|_| !stays) {
        remove(&mut session, (kind, id), old.number, by).await?;
    }
    if let RuleChange::Set(rule) = change {
        let number = match old.filter(|_| stays) {
            Some(old) => i64::from(old.number.get()),
            None => highest.unwrap_or(0) + 1,
        };
        write(&mut session, (kind, id), number, rule, by).await?;
    }
    let rules = read(&mut **session, owner).await?;
    session.commit().await?;
    Ok(rules)
}

async fn remove(
    session: &mut MySqlConnection,
    (kind, id): (&str, i64),
    number: NonZeroU32,
    by: &str,
) -> sqlx::Result<()> {
    let sql = "UPDATE tidegate_limit SET removed_at = CURRENT_TIMESTAMP(3), changed_by = ? \
               WHERE owner_kind = ? AND owner_id = ? AND number = ?";
    sqlx::query(sql).bind(by).bind(kind).bind(id).bind(number.get()).execute(session).await?;
    Ok(())
}

async fn write(
    session: &mut MySqlConnection,
    (kind, id): (&str, i64),
    number: i64,
    rule: &Rule,
    by: &str,
) -> sqlx::Result<()> {
    let (period, offset_s, orders, units, period_us) = match rule.kind {
        RuleKind::Rate { period_us, burst } => {
            (RATE.to_owned(), 0, Some(burst.get()), None, Some(period_us.get()))
        }
        RuleKind::Limit { window, orders, units } => {
            let (period, offset_s) = match window {
                Window::Order => (ORDER.to_owned(), 0),
                Window::Sale => (SALE.to_owned(), 0),
                Window::Day { offset_s } => (DAY.to_owned(), offset_s),
                Window::Month { offset_s } => (MONTH.to_owned(), offset_s),
                Window::Seconds(seconds) => (seconds.to_string(), 0),
            };
            (period, offset_s, orders, units, None)
        }
    };
    let sql = "INSERT INTO tidegate_limit (owner_kind, owner_id, number, name, subject, period, offset_s, orders, units, \
               period_us, changed_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE \
               set_at = CURRENT_TIMESTAMP(3), orders = VALUES(orders), units = VALUES(units), period_us = VALUES(period_us), \
               changed_by = VALUES(changed_by)";
    let row = sqlx::query(sql).bind(kind).bind(id).bind(number).bind(rule.name.as_str());
    let row = row.bind(rule.subject.to_string()).bind(period).bind(offset_s).bind(orders).bind(units);
    row.bind(period_us).bind(by).execute(session).await?;
    Ok(())
}

fn parse(row: &MySqlRow) -> sqlx::Result<Rule> {
    let unreadable = |column: &str| {
        sqlx::Error::Protocol(format!(
            "the column tidegate_limit.{column} holds a value that this version does not understand"
        ))
    };
    let small = |at: usize, column: &str| -> sqlx::Result<Option<u32>> {
        let number: Option<i64> = row.try_get(at)?;
        number.map(u32::try_from).transpose().map_err(|_| unreadable(column))
    };
    let positive = |at: usize, column: &str| {
        small(at, column)?.and_then(NonZeroU32::new).ok_or_else(|| unreadable(column))
    };
    let name = row.try_get::<String, _>(1)?.parse().map_err(|_| unreadable("name"))?;
    let subject = row.try_get::<String, _>(2)?.parse().map_err(|_| unreadable("subject"))?;
    let offset_s = row.try_get::<i64, _>(4)?;
    let offset_s = i32::try_from(offset_s).map_err(|_| unreadable("offset_s"))?;
    let window = match row.try_get::<String, _>(3)?.as_str() {
        RATE => None,
        ORDER => Some(Window::Order),
        SALE => Some(Window::Sale),
        DAY => Some(Window::Day { offset_s }),
        MONTH => Some(Window::Month { offset_s }),
        seconds => Some(Window::Seconds(seconds.parse().map_err(|_| unreadable("period"))?)),
    };
    let kind = match window {
        None => RuleKind::Rate { period_us: positive(7, "period_us")?, burst: positive(5, "orders")? },
        Some(window) => RuleKind::Limit { window, orders: small(5, "orders")?, units: small(6, "units")? },
    };
    Ok(Rule { number: positive(0, "number")?, name, subject, kind })
}

/// Reads the campaign that a voucher belongs to.
///
/// # Errors
/// As [`read`].
pub async fn campaign_of(pool: &MySqlPool, voucher: VoucherId) -> Result<Option<CampaignId>, RecordsError> {
    let sql = "SELECT campaign_id FROM tidegate_campaign WHERE voucher_id = ?";
    let campaign: Option<i64> = sqlx::query_scalar(sql).bind(voucher.get()).fetch_optional(pool).await?;
    Ok(campaign.and_then(|campaign| campaign.try_into().ok()))
}

/// Reads the regions of a campaign, sorted by name, each with its voucher.
///
/// # Errors
/// As [`read`].
pub async fn regions(
    pool: &MySqlPool,
    campaign: CampaignId,
) -> Result<Vec<(String, VoucherId)>, RecordsError> {
    let sql = "SELECT CAST(region AS CHAR), voucher_id FROM tidegate_campaign WHERE campaign_id = ? ORDER BY region";
    let rows: Vec<(String, i64)> = sqlx::query_as(sql).bind(campaign.get()).fetch_all(pool).await?;
    Ok(rows.into_iter().filter_map(|(region, voucher)| Some((region, voucher.try_into().ok()?))).collect())
}

/// Adds regions with their vouchers to a campaign, either all regions or none. Regions that are already in the campaign
/// do not change.
///
/// # Errors
/// As [`read`]. A region that already has another voucher, or a voucher that already has another region, is a duplicate
/// key.
pub async fn add_regions(
    pool: &MySqlPool,
    campaign: CampaignId,
    regions: &[(&str, VoucherId)],
) -> Result<(), RecordsError> {
    let mut session = Session::begin(pool).await?;
    for (region, voucher) in regions {
        let known =
            "SELECT voucher_id FROM tidegate_campaign WHERE campaign_id = ? AND region = ? FOR UPDATE";
        let known: Option<i64> = sqlx::query_scalar(known)
            .bind(campaign.get())
            .bind(*region)
            .fetch_optional(&mut **session)
            .await?;
        if known != Some(voucher.get()) {
            let insert = "INSERT INTO tidegate_campaign (campaign_id, region, voucher_id) VALUES (?, ?, ?)";
            let row = sqlx::query(insert).bind(campaign.get()).bind(*region).bind(voucher.get());
            row.execute(&mut **session).await?;
        }
    }
    Ok(session.commit().await?)
}

/// Reads the time at which each limit of a voucher or campaign got its present rule number. Returns, for each rule
/// number, Unix milliseconds by MySQL's clock.
///
/// # Errors
/// As [`read`].
pub async fn set_at_ms(pool: &MySqlPool, owner: LimitOwner) -> Result<HashMap<u32, i64>, RecordsError> {
    let (kind, id) = owner_columns(owner);
    let sql = "SELECT CAST(number AS SIGNED), CAST(UNIX_TIMESTAMP(set_at) * 1000 AS SIGNED) FROM tidegate_limit \
               WHERE owner_kind = ? AND owner_id = ?";
    let rows: Vec<(i64, i64)> = sqlx::query_as(sql).bind(kind).bind(id).fetch_all(pool).await?;
    Ok(rows.into_iter().filter_map(|(number, set_ms)| Some((number.try_into().ok()?, set_ms))).collect())
}
