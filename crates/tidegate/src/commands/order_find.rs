//! `tidegate order find`: the orders of a user or a voucher, wherever they are.

use std::collections::BTreeMap;

use clap::{ArgGroup, Args};
use serde::Serialize;
use tidegate_compare::text::counted;
use tidegate_operations::{
    Stores,
    order_find::{FoundOrder, FoundOrders, FoundStatus, OrderFindRequest, Unsearched, find_orders},
    order_show::VOUCHER_LIMIT,
};
use tidegate_orders::{OrderStatus, UserId, VoucherId};

use super::order_show::SCAN;
use crate::{
    exit::Exit,
    times::utc,
    operator::ProgressBar,
    output::{OutputArgs, table},
    scope::{PartitionCommand, Scope},
};

const EXAMPLES: &str = "\
Examples:
  tidegate order find --user 1001
  tidegate order find --user 1001 --voucher 7
  tidegate order find --voucher 7 --open
  tidegate order find --voucher 7 --limit 20 --json | jq -r .orders[].order

Looks into MySQL (orders and refusals), the buyers of vouchers, what is pending or unread, and the dead letters. Without
--voucher, all keys of Redis are looked through for vouchers with buyers; besides these, the vouchers that have orders in
MySQL are searched, those with the highest ids, whether they have a row or not. `tidegate order show` tells the whole story of each order.

Exits with 1 where nothing was found. What was not searched is said.";

/// What `tidegate order find` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("of").required(true).multiple(true).args(["user", "voucher"]))]
pub struct OrderFindArgs {
    /// Of this user
    #[arg(long, value_name = "ID")]
    user: Option<UserId>,
    /// For this voucher
    #[arg(long, value_name = "ID")]
    voucher: Option<VoucherId>,
    /// Only what is still to be decided: undelivered, pending or dead
    #[arg(long)]
    open: bool,
    /// At most so many, the latest first
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    limit: u16,
    /// Pending entries, unread ones and dead letters to look through at most, each
    #[arg(long, value_name = "NUMBER", default_value_t = SCAN, value_parser = clap::value_parser!(u64).range(1..))]
    scan: u64,
    #[command(flatten)]
    output: OutputArgs,
}

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct FoundText {
    orders: Vec<FoundOrder>,
    buyer_of: Vec<VoucherId>,
    /// What was not searched.
    unsearched: Vec<String>,
}

impl PartitionCommand for OrderFindArgs {
    fn scope(&self) -> Scope<'_> {
        Scope::AnyPartition(None)
    }

    /// Finds the orders.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let OrderFindArgs { user, voucher, open, limit, scan: budget, output } = *self;
        let request = OrderFindRequest { user, voucher, open, limit, budget };
        let progress = ProgressBar::new();
        let found = find_orders(stores, &request, &progress).await?;
        drop(progress);
        let FoundOrders { orders, buyer_of, unsearched } = found;
        let unsearched = unsearched.into_iter().map(left_out).collect();
        let found = FoundText { orders, buyer_of, unsearched };
        output.print(&found, render)?;
        Ok(if found.orders.is_empty() && found.buyer_of.is_empty() { Exit::No } else { Exit::Ok })
    }
}

fn left_out(what: Unsearched) -> String {
    let only_the_first =
        |looked_at, noun| format!("only the first {} were looked through", counted(looked_at, noun));
    match what {
        Unsearched::Orders => "there are more orders than --limit".to_owned(),
        Unsearched::Vouchers => format!(
            "of the vouchers that have orders in MySQL and no buyers in Redis, only those among the {VOUCHER_LIMIT} \
             with the highest ids were looked through"
        ),
        Unsearched::Pending(looked_at) => only_the_first(looked_at, "pending entry"),
        Unsearched::Unread(looked_at) => only_the_first(looked_at, "unread entry"),
        Unsearched::Letters(looked_at) => {
            format!("only the last {looked_at} dead letters were looked through")
        }
    }
}

/// As people read it.
fn word(status: FoundStatus) -> &'static str {
    match status {
        FoundStatus::At(OrderStatus::Dead) => "dead letter",
        status => status.word(),
    }
}

fn render(found: &FoundText) -> String {
    let mut parts = Vec::new();
    if !found.orders.is_empty() {
        let mut table = table(&["order", "user", "voucher", "is", "time", "entry", "letter"]);
        for order in &found.orders {
            table.add_row([
                order.order.to_string(),
                order.user.clone(),
                order.voucher.clone(),
                word(order.status).to_owned(),
                order.at_ms.map(utc).unwrap_or_default(),
                order.entry.clone().unwrap_or_default(),
                order.letter.map(|letter| letter.to_string()).unwrap_or_default(),
            ]);
        }
        parts.push(table.to_string());
    }
    let mut counts: BTreeMap<FoundStatus, u64> = BTreeMap::new();
    for order in &found.orders {
        *counts.entry(order.status).or_default() += 1;
    }
    let counts: Vec<String> =
        counts.iter().map(|(status, count)| format!("{count} {}", word(*status))).collect();
    parts.push(if counts.is_empty() {
        "No order was found.".to_owned()
    } else {
        format!("{}.", counts.join(", "))
    });
    if !found.buyer_of.is_empty() {
        let vouchers: Vec<String> = found.buyer_of.iter().map(ToString::to_string).collect();
        parts.push(format!("The user is among the buyers of {}.", vouchers.join(", ")));
    }
    parts.extend(found.unsearched.iter().map(|what| format!("Not all: {what}.")));
    parts.join("\n\n")
}
