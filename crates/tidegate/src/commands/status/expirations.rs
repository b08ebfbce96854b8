//! The table of unpaid orders that expire if they are not paid in time.

use std::time::Duration;

use tidegate_compare::text::{printable, span};
use tidegate_operations::expirations::{ExpirationsView, WENT_BACK};
use tidegate_orders::RestoreState;

use crate::{output::table, times};

/// The table of unpaid orders, with the reason if they cannot expire now. None: there is no unpaid order with a time
/// limit, and neither store lost data.
pub fn render(view: &ExpirationsView) -> Option<String> {
    let unpaid = &view.unpaid;
    if unpaid.orders == 0 && view.state == RestoreState::Whole {
        return None;
    }
    let more = if view.at_least { " or more" } else { "" };
    let mut table = table(&["orders to be paid in time", &format!("{}{more}", unpaid.orders)]);
    let since = span(Duration::from_secs_f64(unpaid.overdue_s));
    let since = if unpaid.overdue == 0 { String::new() } else { format!(", the oldest for {since}") };
    table.add_row(["overdue", &format!("{}{since}", unpaid.overdue)]);
    let oldest = unpaid.oldest_due_ms.map_or_else(|| "none".to_owned(), times::utc);
    table.add_row(["oldest due", &oldest]);
    let sweeper = view.sweeper.as_deref().map_or_else(|| "no worker".to_owned(), printable);
    table.add_row(["expired by", &sweeper]);
    table.add_row(["stores", &stores(view)]);
    Some(table.to_string())
}

/// The phrase which says whether Redis or MySQL lost data, with the restore counters that show this, and what to do
/// then.
pub fn stores(view: &ExpirationsView) -> String {
    let counters = &view.counters;
    let (store, has, other) = match view.state {
        RestoreState::Whole => return format!("agree (restore counter {})", counters.mark),
        RestoreState::RedisWentBack => ("Redis", counters.redis, counters.confirmed),
        RestoreState::MySqlWentBack => ("MySQL", counters.mark, counters.redis),
    };
    format!("{store} went back in time: its restore counter is {has}, and was {other}; see {WENT_BACK}")
}
