//! The command `tidegate admit`: places one order, as a producer does.

use std::borrow::Cow;

use anyhow::Context;
use clap::Args;
use tidegate_compare::text::counted;
use tidegate_operations::{Stores, admit, admit::AdmitRequest};
use tidegate_orders::{
    OrderId, Quantity, Subjects, UserId, VoucherId,
    limits::{LimitReached, RateReached},
    scripts::{AdmitReply, ScriptError},
    traceparent::Traceparent,
};

use crate::{
    exit::{Exit, WrongUsage},
    output::{OutputArgs, print_note},
    scope::{PartitionCommand, Scope},
    times,
};

const EXAMPLES: &str = "\
Examples:
  tidegate admit --voucher 7 --user 1001
  tidegate admit --voucher 7 --user 1001 --quantity 2 --json
  tidegate admit --voucher 7 --user 1001 --order 658234985123840001   # again, after a lost reply
  tidegate admit --voucher 7 --user 1001 --traceparent 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01

Prints the order id and the outcome. Exits with 0 if the order is admitted, now or by an earlier call, and with 1 if it
is refused. If the setting gate.wait_replicas is above 0, the command waits until that number of Redis replicas have the
order. Exit code 12 means that too few replicas had the order in time.";

/// The arguments of `tidegate admit`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct AdmitArgs {
    /// The voucher to place an order for
    #[arg(long, value_name = "ID")]
    pub voucher: VoucherId,
    /// The user who places the order
    #[arg(long, value_name = "ID")]
    user: UserId,
    /// The order id; by default, a new id. If you give the id of an earlier order, no second order is created
    #[arg(long, value_name = "ID")]
    order: Option<OrderId>,
    /// The number of units, up to 10,000
    #[arg(long, value_name = "UNITS", default_value = "1", allow_negative_numbers = true)]
    quantity: Quantity,
    /// A name and its value, such as phone=8d969eef6ecad3c2, by which limits count orders. You can give several
    #[arg(long = "subject", value_name = "NAME=VALUE", value_parser = parse_subject)]
    subjects: Vec<(String, String)>,
    /// The W3C trace context of the request: workers that send traces continue this trace. '' means no trace
    #[arg(long, value_name = "TRACEPARENT", value_parser = parse_traceparent)]
    traceparent: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Checks the text, and returns it unchanged. The gate would ignore a wrong traceparent; a person who types one should
/// see the mistake.
fn parse_traceparent(text: &str) -> Result<String, String> {
    let is_good = text.is_empty() || Traceparent::parse(text.as_bytes()).is_some();
    let example = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    is_good.then(|| text.to_owned()).ok_or_else(|| format!("the trace context must look like {example}"))
}

/// Parses a subject, such as `phone=8d969eef6ecad3c2`.
pub fn parse_subject(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a subject must look like phone=8d969eef6ecad3c2")?;
    Subjects::none().with(name, value).map_err(|error| error.to_string())?;
    Ok((name.to_owned(), value.to_owned()))
}

impl PartitionCommand for AdmitArgs {
    fn scope(&self) -> Scope<'_> {
        Scope::Voucher(self.voucher)
    }

    /// Admits the order in Redis, and prints the outcome.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let AdmitArgs { voucher, user, order, quantity, .. } = *self;
        let subjects =
            self.subjects.iter().try_fold(Subjects::none(), |all, (name, value)| all.with(name, value));
        let subjects = subjects.map_err(|error| WrongUsage(format!("--subject: {error}")))?;
        let traceparent = self.traceparent.clone();
        let request = AdmitRequest { voucher, user, order, quantity, subjects, traceparent };
        let report = admit::admit(stores, &request).await?;
        let order = report.order;
        self.output.print(&report, |report| format!("order {order}: {}", sentence(&report.reply)))?;
        match report.reply {
            Ok(reply) if reply.is_admitted() => Ok(Exit::Ok),
            Ok(_) | Err(ScriptError::IdTaken { .. } | ScriptError::OtherQuantity { .. }) => Ok(Exit::No),
            Err(error @ ScriptError::Unreachable(_)) => Err(error).with_context(|| {
                format!(
                    "Failed to learn the outcome of order {order}: run the command again with --order {order}"
                )
            }),
            Err(error @ ScriptError::Unconfirmed { .. }) => {
                print_note(&format!(
                    "{error}. Run the command again with --order {order}, and it waits for the replicas again"
                ));
                Ok(Exit::Unknown)
            }
            Err(error) => Err(error).with_context(|| format!("Failed to admit order {order}")),
        }
    }
}

/// The text of the outcome of an admission, such as `refused, the sale is paused`.
pub fn sentence(reply: &Result<AdmitReply, ScriptError>) -> Cow<'static, str> {
    let text = match reply {
        Ok(AdmitReply::Admitted) => "admitted",
        Ok(AdmitReply::AdmittedBefore) => "admitted before",
        Ok(AdmitReply::SoldOut) => "refused, the voucher is sold out, or fewer units are left than ordered",
        Ok(AdmitReply::UserHasOrder) => "refused, this user already has an order",
        Ok(AdmitReply::NoStock) => {
            "refused, Redis has no stock of the voucher (see what to do: tidegate voucher show)"
        }
        Ok(AdmitReply::NotBegun) => "refused, the sale has not begun",
        Ok(AdmitReply::Over) => "refused, the sale is over",
        Ok(AdmitReply::Paused) => "refused, the sale is paused",
        Ok(AdmitReply::Busy) => "refused, busy: workers are too far behind, or no worker is alive",
        Ok(AdmitReply::Released) => "refused, this order was admitted and released",
        Err(ScriptError::IdTaken { .. }) => "refused, the order id belongs to another user's order",
        Err(ScriptError::OtherQuantity { .. }) => {
            "refused, this order was admitted before, with another quantity"
        }
        Err(ScriptError::Unconfirmed { .. }) => "unsure, the Redis replicas may not have the order",
        Err(ScriptError::Unreachable(_)) => "unknown, Redis did not reply; the order may be admitted",
        Ok(AdmitReply::OverLimit(reached)) => return over_limit(reached).into(),
        Ok(AdmitReply::TooFast(RateReached { name, retry_ms })) => {
            return format!("refused, over the rate limit {name}: try again in {retry_ms} ms").into();
        }
        Err(ScriptError::NoSubject { name, .. }) => {
            return format!("not admitted, a limit counts orders by {name}: add --subject {name}=...").into();
        }
        Err(_) => "not admitted, Redis answered with an error",
    };
    text.into()
}

fn over_limit(reached: &LimitReached) -> String {
    let LimitReached { name, orders_left, units_left, opens_ms } = reached;
    let left = [(orders_left, "order"), (units_left, "unit")];
    let left: Vec<String> =
        left.into_iter().filter_map(|(left, what)| Some(counted((*left)?, what))).collect();
    let left = if left.is_empty() { String::new() } else { format!(", {} left", left.join(" and ")) };
    let opens = opens_ms.map_or_else(String::new, |opens_ms| format!(", until {}", times::utc(opens_ms)));
    format!("refused, over the limit {name}{left}{opens}")
}
