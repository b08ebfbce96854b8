//! The check of the limits of a sale in both stores.

use tidegate_compare::text::{counted, error_chain};
use tidegate_orders::limits::LimitOwner;

use super::{Sale, stock};
use crate::{
    CalendarSettings,
    finding::Findings,
    vouchers::{
        VoucherStores,
        limits::{LimitList, list, spoken},
    },
};

/// Reports whether Redis has the limits of the voucher and of its campaign that MySQL has.
pub(super) async fn check(
    findings: &mut Findings,
    stores: &VoucherStores,
    sale: &Sale,
    calendar: &CalendarSettings,
) {
    match read(stores, sale).await {
        Ok(lists) => {
            let waits = stock::waits_for_workers(sale, calendar);
            lists.iter().for_each(|limits| report(findings, limits, waits));
        }
        Err(error) => findings.not_read(
            format!("Failed to compare the limits of voucher {}: {}", sale.voucher, error_chain(&error)),
            format!("run tidegate limit list --voucher {}", sale.voucher),
        ),
    }
}

async fn read(stores: &VoucherStores, sale: &Sale) -> anyhow::Result<Vec<LimitList>> {
    let own = list(stores, LimitOwner::Voucher(sale.voucher)).await?;
    let campaign = match own.campaign {
        Some(campaign) => Some(list(stores, LimitOwner::Campaign(campaign)).await?),
        None => None,
    };
    Ok([Some(own), campaign].into_iter().flatten().collect())
}

fn report(findings: &mut Findings, list: &LimitList, waits: bool) {
    let (owner, limits) = (spoken(list.owner), counted(list.limits.len() as u64, "limit"));
    if list.is_shown && list.limits.is_empty() {
        findings.ok(format!("{owner} has no limits"));
    } else if list.is_shown {
        findings.ok(format!("{owner} has {limits} in both stores"));
    } else if waits {
        findings.ok(format!(
            "{owner} has {limits} in MySQL: workers write the limits when they load the voucher"
        ));
    } else {
        let flag = list.owner.to_string().replace(':', " ");
        findings.error(
            format!("Redis does not have the {limits} of {owner} that MySQL has"),
            format!(
                "run tidegate limit list --{flag}, then tidegate limit set with the values of one limit: the command \
                 writes all limits to Redis"
            ),
        );
    }
}
