//! A change of a voucher's stock, and what keeps it from being made, in words.

use tidegate_orders::{
    VoucherId,
    gate::{RestockReply, StockChange},
};

use crate::{command_line::CommandLine, output::counted};

/// Where Redis is while MySQL did not answer.
pub fn redis_side(units: i64) -> &'static str {
    if units > 0 { "Redis has not got it," } else { "Redis has it," }
}

/// Why Redis refused a step.
pub fn refusal(reply: RestockReply) -> String {
    match reply {
        RestockReply::Done => "it was done",
        RestockReply::OtherNote => "somebody else is changing it at this very moment: look again",
        RestockReply::NoStock => "Redis has no stock of it any more (see docs/runbook/redis-lost-data.md)",
        RestockReply::TooFew => "Redis has fewer units left by now",
    }
    .to_owned()
}

/// What to do where MySQL stands neither before the change nor after it.
pub fn apart(change: &StockChange, initial: Option<i64>) -> String {
    let (before, after) = (change.before, change.after());
    let initial = initial.map_or_else(|| "no number".to_owned(), |initial| initial.to_string());
    format!(
        "somebody else has changed initial_stock in MySQL meanwhile: it is {initial}, and was {before} \
         before this change and is {after} after it; write {before} there if stock is without this change, {after} if stock has it \
         (tidegate audit)"
    )
}

/// A change in words: `500 units added by alice@shop at 2026-11-20T10:00:00Z`.
pub fn told(change: &StockChange) -> String {
    let units = counted(change.units.abs(), "unit");
    format!("{units} {} by {} at {:.0}", participle(change.units), change.by, change.at)
}

/// What became of the units.
pub fn participle(units: i64) -> &'static str {
    if units > 0 { "added" } else { "taken" }
}

/// What is asked.
pub fn imperative(units: i64) -> String {
    let count = counted(units.abs(), "unit");
    if units > 0 { format!("Add {count} to") } else { format!("Take {count} from") }
}

/// What to type for it.
pub fn typed(voucher: VoucherId, units: i64, initial: i64) -> CommandLine {
    let command = CommandLine::new(if units > 0 { "voucher add" } else { "voucher take" });
    let command = command.flag("--voucher", Some(voucher)).flag("--units", Some(units.abs()));
    command.flag("--initial-stock", Some(initial))
}

/// The same in a sentence.
pub fn command(voucher: VoucherId, units: i64, initial: i64) -> String {
    let verb = if units > 0 { "add" } else { "take" };
    format!("tidegate voucher {verb} --voucher {voucher} --units {} --initial-stock {initial}", units.abs())
}
