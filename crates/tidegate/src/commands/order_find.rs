//! The command `tidegate order find`: the orders of a user or a voucher, in every state.

use std::collections::BTreeMap;

use clap::{ArgGroup, Args};
use serde::Serialize;
use tidegate_compare::text::counted;
use tidegate_operations::{
    Stores,
    order_find::{FoundOrder, FoundOrders, FoundStatus, OrderFindRequest, SearchGap, find_orders},
    order_show::VOUCHER_LIMIT,
};
use tidegate_orders::{OrderStatus, UserId, VoucherId};

use super::order_show::SCAN;
use crate::{
    exit::Exit,
    operator::ProgressBar,
    output::{OutputArgs, table},
    scope::{PartitionCommand, Scope},
    times::utc,
};

const EXAMPLES: &str = "\
Examples:
  tidegate order find --user 1001
  tidegate order find --user 1001 --voucher 7
  tidegate order find --voucher 7 --open
  tidegate order find --voucher 7 --limit 20 --json | jq -r .orders[].order

Searches MySQL (orders and refusals), the lists of buyers in Redis, pending and unread entries, and the dead letters.
Without --voucher, it searches the lists of buyers of all vouchers in Redis. It also searches the vouchers that have
orders in MySQL, those with the highest ids first. `tidegate order show` shows all details of an order.

Exits with 1 if it finds no order. If the search is incomplete, it prints what is missing.";

/// The arguments of `tidegate order find`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("of").required(true).multiple(true).args(["user", "voucher"]))]
pub struct OrderFindArgs {
    /// Find the orders of this user
    #[arg(long, value_name = "ID")]
    user: Option<UserId>,
    /// Find the orders for this voucher
    #[arg(long, value_name = "ID")]
    voucher: Option<VoucherId>,
    /// Find only orders that are not written: undelivered, pending, or dead letters
    #[arg(long)]
    open: bool,
    /// The most orders to show, the newest first
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    limit: u16,
    /// The most entries to search in each of these: pending entries, unread entries, dead letters
    #[arg(long, value_name = "NUMBER", default_value_t = SCAN, value_parser = clap::value_parser!(u64).range(1..))]
    scan: u64,
    #[command(flatten)]
    output: OutputArgs,
}

/// The found orders, as the command prints them as JSON.
#[derive(Debug, Serialize)]
struct FoundText {
    orders: Vec<FoundOrder>,
    buyer_of: Vec<VoucherId>,
    /// The sentences about data that was not searched.
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

fn left_out(what: SearchGap) -> String {
    let only_the_first =
        |looked_at, noun| format!("only the first {} of the stream were searched", counted(looked_at, noun));
    match what {
        SearchGap::Orders => "more orders match than --limit shows".to_owned(),
        SearchGap::Vouchers => format!(
            "of the vouchers with orders in MySQL and no buyers in Redis, only the {VOUCHER_LIMIT} with the \
             highest ids were searched"
        ),
        SearchGap::Pending(looked_at) => only_the_first(looked_at, "pending entry"),
        SearchGap::Unread(looked_at) => only_the_first(looked_at, "unread entry"),
        SearchGap::Letters(looked_at) => {
            format!("only the newest {looked_at} dead letters were searched")
        }
    }
}

/// The word for a status, for people.
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
        parts.push(format!("The user is among the buyers of vouchers {} in Redis.", vouchers.join(", ")));
    }
    parts.extend(found.unsearched.iter().map(|what| format!("The search is incomplete: {what}.")));
    parts.join("\n\n")
}
