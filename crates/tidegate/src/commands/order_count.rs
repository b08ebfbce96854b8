//! The command `tidegate order count`: orders by day or hour.

use clap::{Args, ValueEnum};
use tidegate_operations::{
    Stores,
    order_count::{self, CountBy, CountRequest, OrderCountReport},
};
use tidegate_orders::VoucherId;

use crate::{
    exit::Exit,
    output::{OutputArgs, table},
    scope::{PartitionCommand, Scope},
    times,
};

const EXAMPLES: &str = "\
Examples:
  tidegate order count --by day
  tidegate order count --by hour --days 2 --voucher 7
  tidegate order count --utc-offset +08:00 --days 31
  tidegate order count --by day --days 31 --json | jq '.counts[] | {from_ms, orders}'

The time of an order is the time inside its id, if Tidegate made the id. By day and over all vouchers, the table also
shows how many ids were created, but not with --utc-offset, because Redis counts ids by day in UTC. An id without an
order in MySQL belongs to a refused request, to an order that waits for workers, to a dead letter, or to a lost order.
To find lost orders: tidegate audit.";

/// The arguments of `tidegate order count`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct OrderCountArgs {
    /// Count by day or by hour
    #[arg(long, value_name = "LENGTH", default_value = "day")]
    by: By,
    /// The number of days, up to and including today
    #[arg(long, value_name = "DAYS", default_value = "7", value_parser = clap::value_parser!(u16).range(1..=3660))]
    days: u16,
    /// The offset from UTC at which days and hours begin
    #[arg(long, value_name = "HH:MM", default_value = "+00:00", value_parser = times::parse_utc_offset, allow_hyphen_values = true)]
    utc_offset: i32,
    /// Count only orders of this voucher
    #[arg(long, value_name = "ID")]
    pub voucher: Option<VoucherId>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    Day,
    Hour,
}

impl PartitionCommand for OrderCountArgs {
    fn scope(&self) -> Scope<'_> {
        Scope::EveryPartition(self.voucher)
    }

    /// Counts the orders.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let by = match self.by {
            By::Day => CountBy::Day,
            By::Hour => CountBy::Hour,
        };
        let request = CountRequest { by, voucher: self.voucher, days: self.days, offset_s: self.utc_offset };
        let counts = order_count::count(stores, request).await?;
        self.output.print(&counts, text)?;
        Ok(Exit::Ok)
    }
}

fn text(counts: &OrderCountReport) -> String {
    if counts.counts.is_empty() {
        return "no order was placed and no order id was given out in this time".to_owned();
    }
    let offset_s = counts.offset_s;
    let zone = if offset_s == 0 { "UTC".to_owned() } else { times::utc_offset_text(offset_s) };
    let from = format!("from ({zone})");
    let mut table =
        table(&[&from, "orders", "units", "live", "refused", "ids given out", "without an order"]);
    let shown = |count: Option<i64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    for of in &counts.counts {
        let from = times::whole_at(of.from_ms, offset_s);
        let numbers = [of.orders, of.units, of.live, of.refused].map(|number| number.to_string());
        let ids = [shown(of.ids), shown(of.without_order)];
        table.add_row([from].into_iter().chain(numbers).chain(ids));
    }
    let behind = counts.counts.iter().filter(|of| of.is_counter_behind);
    let behind = behind.map(|of| {
        format!(
            "\n{}: there are more orders than ids that were given out. A failover set the counter back, or producers make \
             their own ids. After a failover, compare both stores: tidegate reconcile",
            times::utc_whole(of.from_ms)
        )
    });
    format!("{table}{}", behind.collect::<String>())
}
