//! `tidegate expirations show`: orders that expire if they are not paid in time.

use std::time::Duration;

use clap::Args;
use tidegate_compare::text::{counted, printable, span};
use tidegate_operations::{
    SystemSettings, connect,
    expirations::{ExpirationsView, WENT_BACK},
};
use tidegate_orders::MarkState;

use crate::{
    exit::Exit,
    moment,
    output::{OutputArgs, table},
};

const EXAMPLES: &str = "\
Examples:
  tidegate expirations show
  tidegate expirations show --json | jq .overdue

One worker at a time lets orders expire. Exits with 1 while a store went back in time: nothing expires then, until somebody
types tidegate expirations resume.";

/// A store that needs longer counts as away.
const PATIENCE: Duration = Duration::from_secs(10);

/// What `tidegate expirations show` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ExpirationsShowArgs {
    #[command(flatten)]
    output: OutputArgs,
}

/// Shows them.
///
/// # Errors
/// When a store cannot be reached.
pub async fn run(settings: &SystemSettings, args: &ExpirationsShowArgs) -> anyhow::Result<Exit> {
    let (redis, mysql) = tokio::try_join!(connect::redis(settings), connect::mysql(settings))?;
    let view = ExpirationsView::read(settings, &redis, &mysql, PATIENCE).await?;
    args.output.print(&view, render)?;
    Ok(if view.state == MarkState::Whole { Exit::Ok } else { Exit::No })
}

/// All of it.
pub fn render(view: &ExpirationsView) -> String {
    let mut table = table(&["", ""]);
    table.add_row(["unpaid orders with a limit", &at_least(view)]);
    table.add_row(["overdue", &view.unpaid.overdue.to_string()]);
    let oldest = view.unpaid.oldest_due_ms.map_or_else(|| "none".to_owned(), moment::utc);
    table.add_row(["oldest due", &oldest]);
    let sweeper = view.sweeper.as_deref().map_or_else(|| "no worker".to_owned(), printable);
    table.add_row(["done by", &sweeper]);
    table.add_row(["stores", &stores(view)]);
    table.to_string()
}

/// In a sentence, where there is something to say; for `tidegate status`.
pub fn sentence(view: &ExpirationsView) -> Option<String> {
    let is_whole = view.state == MarkState::Whole;
    if view.unpaid.orders == 0 && is_whole {
        return None;
    }
    let overdue = match view.unpaid.overdue {
        0 => String::new(),
        overdue => {
            let since = span(Duration::from_secs_f64(view.unpaid.overdue_s));
            format!(", {overdue} overdue, the oldest for {since}")
        }
    };
    let back = if is_whole { String::new() } else { format!("; nothing expires: {}", stores(view)) };
    Some(format!("{} to be paid in time{overdue}{back}", at_least(view)))
}

fn at_least(view: &ExpirationsView) -> String {
    let more = if view.at_least { " or more" } else { "" };
    format!("{}{more}", counted(view.unpaid.orders, "order"))
}

/// Whether they fit each other, and what to do where they do not.
pub fn stores(view: &ExpirationsView) -> String {
    let marks = &view.marks;
    let (store, has, other) = match view.state {
        MarkState::Whole => return format!("fit each other (mark {})", marks.mark),
        MarkState::RedisWentBack => ("Redis", marks.redis, marks.confirmed),
        MarkState::MySqlWentBack => ("MySQL", marks.mark, marks.redis),
    };
    format!("{store} went back in time: its mark is {has}, and was {other}; see {WENT_BACK}")
}
