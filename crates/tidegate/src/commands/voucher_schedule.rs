//! The command `tidegate voucher schedule`: changes the window of a sale.

use clap::Args;
use jiff::Timestamp;
use tidegate_operations::{
    Stores,
    vouchers::{
        VoucherStores,
        schedule::{self, NewEnd, ScheduleOutcome, ScheduleRequest, ScheduleState},
    },
};
use tidegate_orders::VoucherId;

use crate::{
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ReportText},
    scope::{PartitionCommand, Scope},
    times,
};

const EXAMPLES: &str = "\
Examples:
  tidegate voucher schedule --voucher 7 --end \"2026-11-20 13:00\"
  tidegate voucher schedule --voucher 7 --begin 2026-11-20T10:00:00Z --end 2026-11-20T12:00:00Z
  tidegate voucher schedule --voucher 7 --end now --yes

Changes the begin and the end of a sale in MySQL, and then in Redis, also while the sale is on. A time that you do not
give stays as MySQL has it. If the sale is on, --end now ends it, and existing orders stay. If the sale is on and --begin
is in the future, it stops until then. If the voucher is not loaded into Redis, only MySQL changes. If the command fails half-way, run it
again to complete it. To see both windows: tidegate voucher show. See docs/calendar.md.";

/// The arguments of `tidegate voucher schedule`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
#[group(id = "bounds", required = true, multiple = true, args = ["begin", "end", "no_end"])]
pub struct VoucherScheduleArgs {
    /// The voucher whose window changes
    #[arg(long, value_name = "ID")]
    pub voucher: VoucherId,
    /// When the sale begins: now, RFC 3339, local time or Unix milliseconds
    #[arg(long, value_name = "TIME", value_parser = times::parse)]
    begin: Option<Timestamp>,
    /// When the sale ends, in the same formats
    #[arg(long, value_name = "TIME", value_parser = times::parse)]
    end: Option<Timestamp>,
    /// The sale has no end
    #[arg(long, conflicts_with = "end")]
    no_end: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

impl PartitionCommand for VoucherScheduleArgs {
    fn scope(&self) -> Scope<'_> {
        Scope::Voucher(self.voucher)
    }

    /// Changes the window, or reports why it refuses.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let Self { voucher, begin, end, no_end, ref change } = *self;
        let end = if no_end { Some(NewEnd::Never) } else { end.map(NewEnd::At) };
        let both = VoucherStores::connect(stores).await?;
        let plan = schedule::plan(&both, ScheduleRequest { voucher, begin, end }).await?;
        Change::new(stores, change).run(plan, async |plan, _job| schedule::run(&both, plan).await).await
    }
}

impl PlanText for ScheduleState {
    fn text(&self) -> String {
        render(self)
    }
}

impl ReportText for ScheduleState {
    fn text(&self) -> String {
        render(self)
    }
}

fn render(state: &ScheduleState) -> String {
    let ScheduleState { voucher, window, mysql_window, redis_window, .. } = state;
    let stores = if redis_window.is_some() {
        "in both stores"
    } else {
        "in MySQL only: Redis does not have the voucher"
    };
    match (state.outcome, &state.reason) {
        (_, Some(reason)) => format!("voucher {voucher}: refused, {reason}"),
        (ScheduleOutcome::WouldSchedule, _) => {
            let redis = redis_window.map(|redis| format!("; in Redis: {redis}")).unwrap_or_default();
            format!(
                "voucher {voucher}: the sale would be on {window}, {stores} (now in MySQL: {mysql_window}{redis})"
            )
        }
        (ScheduleOutcome::ScheduledBefore, _) => {
            format!("voucher {voucher}: the sale is already on {window}; nothing was changed")
        }
        _ => format!("voucher {voucher}: the sale is on {window}, {stores}"),
    }
}
