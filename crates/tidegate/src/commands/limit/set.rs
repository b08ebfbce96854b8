//! The command `tidegate limit set`: creates or changes a limit.

use std::num::NonZeroU32;

use clap::Args;
use tidegate_operations::{
    System,
    vouchers::{
        VoucherStores,
        limits::{self, LimitRequest, NewLimit},
    },
};
use tidegate_orders::limits::{RuleKind, Subject, SubjectName, Window};

use super::OwnerArgs;
use crate::{
    exit::{Exit, WrongUsage},
    operator::{Change, ChangeArgs},
    scope::SystemCommand,
    times,
};

const EXAMPLES: &str = "\
Examples:
  tidegate limit set --voucher 7 --name days --subject phone --window day --utc-offset +08:00 --orders 1 --units 2
  tidegate limit set --voucher 7 --name mine --subject user --window sale --orders 3
  tidegate limit set --voucher 7 --name each --window order --units 2
  tidegate limit set --campaign 5 --name months --subject address --window month --units 5
  tidegate limit set --voucher 7 --name fast --subject ip --rate 5/1s --burst 10

Redis checks limits in the script that takes the stock. The first limit moves the stock of the voucher to another key,
so that scripts that do not know limits cannot sell the voucher. From then on, producers have to use
lua/admit_limited.lua.

If you give the name of an existing limit, the command changes that limit. If you change its subject or window, counting
starts from zero. If you change only numbers, counting continues. During a sale, the command asks first. The question
says which callers the new limit refuses: callers that use lua/admit.lua, or that do not send the subject.

See docs/buying-limits.md. If the command fails half-way, run it again to complete it.";

/// The arguments of `tidegate limit set`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct LimitSetArgs {
    #[command(flatten)]
    owner: OwnerArgs,
    /// The name of the limit, which refused callers get: 1 to 32 characters (a-z 0-9 _), beginning with a letter
    #[arg(id = "limit", long = "name", value_name = "NAME", value_parser = parse_name)]
    name: SubjectName,
    /// Count orders by this subject: user, or a name for which callers send a value, such as phone. By default, the
    /// limit counts all orders together
    #[arg(long, value_name = "NAME", default_value = "*", value_parser = parse_subject)]
    subject: Subject,
    /// The time window: order (the units of one order), sale, day, month, or a span such as 10m
    #[arg(long, value_name = "WINDOW", value_parser = parse_window, required_unless_present = "rate", conflicts_with = "rate")]
    window: Option<Window>,
    /// The offset from UTC at which days and months begin
    #[arg(long, value_name = "HH:MM", value_parser = times::parse_utc_offset, allow_hyphen_values = true)]
    utc_offset: Option<i32>,
    /// The most orders in the time window
    #[arg(long, value_name = "ORDERS", value_parser = parse_most, conflicts_with = "rate")]
    orders: Option<u32>,
    /// The most units in the time window
    #[arg(long, value_name = "UNITS", value_parser = parse_most, conflicts_with = "rate")]
    units: Option<u32>,
    /// The most admissions per time, such as 5/1s, evenly spread. Orders that are cancelled later still count
    #[arg(long, value_name = "ORDERS/SPAN", value_parser = parse_rate)]
    rate: Option<TypedRate>,
    /// With --rate: the most admissions at once after a time without admissions
    #[arg(long, value_name = "ORDERS", default_value = "1", requires = "rate")]
    burst: NonZeroU32,
    #[command(flatten)]
    change: ChangeArgs,
}

impl SystemCommand for LimitSetArgs {
    /// Sets the limit, or reports why it refuses.
    async fn run(&self, system: &System) -> anyhow::Result<Exit> {
        let kind = kind(self)?;
        let (stores, owner) = self.owner.place(system).await?;
        let both = VoucherStores::connect(&stores).await?;
        let new = NewLimit { name: self.name.clone(), subject: self.subject.clone(), kind };
        let rate = self.rate.as_ref().map(|rate| rate.text.clone());
        let request = LimitRequest { owner, change: new.into(), by: self.change.who(), rate };
        let plan = limits::plan(&both, request).await?;
        Change::new(&stores, &self.change).run(plan, async |plan, _job| limits::run(&both, plan).await).await
    }
}

fn kind(args: &LimitSetArgs) -> Result<RuleKind, WrongUsage> {
    let LimitSetArgs { window, utc_offset, orders, units, burst, .. } = *args;
    let rate = args.rate.as_ref().map(|rate| rate.period_us);
    let wrong = |text: &str| Err(WrongUsage(text.to_owned()));
    let window = match (rate, window, utc_offset) {
        (_, Some(Window::Day { .. }), offset) => Window::Day { offset_s: offset.unwrap_or(0) },
        (_, Some(Window::Month { .. }), offset) => Window::Month { offset_s: offset.unwrap_or(0) },
        (_, _, Some(_)) => return wrong("--utc-offset can be used only with --window day or --window month"),
        (Some(period_us), ..) => return Ok(RuleKind::Rate { period_us, burst }),
        (None, Some(window), None) => window,
        (None, None, None) => return wrong("give --window or --rate"),
    };
    match (window, orders, units) {
        (Window::Order, None, Some(_)) => {}
        (Window::Order, ..) => {
            return wrong("--window order needs --units, and cannot be combined with --orders");
        }
        (_, None, None) => return wrong("give --orders, --units, or both"),
        _ => {}
    }
    Ok(RuleKind::Limit { window, orders, units })
}

pub(super) fn parse_name(text: &str) -> Result<SubjectName, String> {
    text.parse().map_err(|error: tidegate_orders::limits::BadSubject| error.to_string())
}

fn parse_subject(text: &str) -> Result<Subject, String> {
    text.parse().map_err(|error: tidegate_orders::limits::BadSubject| error.to_string())
}

fn parse_most(text: &str) -> Result<u32, String> {
    let most = text.parse::<u32>().ok().filter(|most| (1..=1_000_000_000).contains(most));
    most.ok_or_else(|| "the limit must be a number from 1 to 1000000000".to_owned())
}

fn parse_window(text: &str) -> Result<Window, String> {
    Ok(match text {
        "order" => Window::Order,
        "sale" => Window::Sale,
        "day" => Window::Day { offset_s: 0 },
        "month" => Window::Month { offset_s: 0 },
        span => {
            let seconds = times::parse_span(span).ok().filter(|span| span.subsec_nanos() == 0);
            let seconds =
                seconds.and_then(|span| u32::try_from(span.as_secs()).ok()).and_then(NonZeroU32::new);
            let wrong = || {
                "the window must be order, sale, day, month, or a span of whole seconds such as 10m"
                    .to_owned()
            };
            Window::Seconds(seconds.filter(|seconds| seconds.get() <= 366 * 86_400).ok_or_else(wrong)?)
        }
    })
}

/// A rate of admissions, and the text that the user typed for it.
#[derive(Clone, Debug)]
struct TypedRate {
    text: String,
    /// The time between two admissions, in microseconds.
    period_us: NonZeroU32,
}

fn parse_rate(text: &str) -> Result<TypedRate, String> {
    let wrong =
        || "the rate must look like 5/1s or 100/1m, from 1 in an hour up to 1000000 in a second".to_owned();
    let (orders, span) = text.split_once('/').ok_or_else(wrong)?;
    let orders = orders.parse::<u32>().ok().filter(|orders| *orders > 0).ok_or_else(wrong)?;
    let period_us = times::parse_span(span).map_err(|_| wrong())?.as_micros() / u128::from(orders);
    let period_us = u32::try_from(period_us).ok().filter(|period_us| *period_us <= 3_600_000_000);
    let period_us = period_us.and_then(NonZeroU32::new).ok_or_else(wrong)?;
    Ok(TypedRate { text: text.to_owned(), period_us })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_and_rates_are_read_as_people_write_them() {
        assert_eq!(parse_window("10m"), Ok(Window::Seconds(NonZeroU32::new(600).unwrap())));
        for wrong in ["", "week", "0s", "500ms", "400d"] {
            assert!(parse_window(wrong).is_err(), "{wrong}");
        }
        for (text, period_us) in [("5/1s", 200_000), ("100/1m", 600_000), ("1/1h", 3_600_000_000)] {
            assert_eq!(parse_rate(text).map(|rate| rate.period_us.get()), Ok(period_us), "{text}");
        }
        for wrong in ["5", "0/1s", "5/", "1/2h", "9999999/1s", "-1/1s"] {
            assert!(parse_rate(wrong).is_err(), "{wrong}");
        }
    }
}
