//! The command `tidegate order event`: appends events such as payments to orders.

mod text;

use std::{collections::HashSet, path::PathBuf, time::Duration};

use anyhow::Context;
use clap::{
    ArgGroup, Args,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use tidegate_operations::{
    Next, Plan, Stores, System,
    order_event::{
        EventOrders, OneOrder, OrderEventPlan, OrderEventReport, OrderEventRequest, OrderEvents,
        SentEventOutcome,
    },
};
use tidegate_orders::{EventKind, OrderId, Partition, UserId, VoucherId, event::EventText};

pub use text::{older_workers, told};

use crate::{
    command_line::CommandLine,
    exit::{Exit, WrongUsage},
    operator::{Change, ChangeArgs, PlanText, ReportText},
    partitions::{at_once, over_all, place_of},
    scope::SystemCommand,
    times,
};

/// The default time that the command waits until workers have recorded the events.
const WAIT: Duration = Duration::from_secs(30);
pub const WAIT_TEXT: &str = "30s";

/// The event kinds that operators can type, each with its help text. `expired` is missing, because only Tidegate
/// appends it.
const KINDS: [(EventKind, &str); 6] = [
    (
        EventKind::Paid,
        "The order was paid. A second payment, or a payment of an order that has ended, has to be refunded",
    ),
    (
        EventKind::Cancelled,
        "An unpaid order is cancelled: its units are on sale again, and its user may buy again. For a paid order, use `refunding` and `refunded`",
    ),
    (EventKind::Used, "A paid order was used"),
    (EventKind::Refunding, "The payment is being refunded. The order keeps its units until `refunded`"),
    (
        EventKind::Refunded,
        "The payment was refunded: the units of the order are on sale again, and its user may buy again",
    ),
    (EventKind::RefundFailed, "The refund failed: the status of the order returns to paid"),
];

/// The usage line, in the order of the words: clap would name the group of `ORDER` and `--file` before `KIND`.
const USAGE: &str = "tidegate order event [OPTIONS] <KIND> <ORDER|--file <FILE>>";

const EXAMPLES: &str = "\
Examples:
  tidegate order event paid 693106606080001 --ref pay-8812
  tidegate order event paid --file paid.csv --yes
  tidegate order event cancelled 693106606080001 --reason by_phone --dry-run
  tidegate order event refunded 693106606080001 --payment pay-8813 --ref refund-18

Appends the event to the stream and waits until a worker has recorded it. Exits with 1 if workers rejected the event, if
a payment has to be refunded, or if the event was not recorded within --for. An event that was not recorded in time
stays in the stream, and workers record it later. If MySQL does not know the order, give --user and --voucher.

Two events with the same --ref are the same event: you may run the command again, and nothing changes twice. Each line
of --file is ORDER or ORDER,REF; for a refund also ORDER,REF,PAYMENT. If the event of one line cannot be appended, the
command appends no event. Ctrl-C ends the command with 6, and it prints which events are in the stream.";

/// The arguments of `tidegate order event`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, override_usage = USAGE, group = ArgGroup::new("which").required(true).args(["order", "file"]))]
pub struct OrderEventArgs {
    /// The kind of the event
    #[arg(value_name = "KIND", value_parser = kind_parser())]
    kind: EventKind,
    /// The id of the order
    #[arg(value_name = "ORDER")]
    order: Option<OrderId>,
    /// A file with one order a line: ORDER or ORDER,REF; for refunds also ORDER,REF,PAYMENT
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Start at this line of the file; line 1 is the first
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "file", value_parser = clap::value_parser!(u64).range(1..))]
    from_line: u64,
    /// Your own id of the event (ref): of several events with the same ref, workers record only the first
    #[arg(long = "ref", value_name = "REF", conflicts_with = "file")]
    reference: Option<EventText>,
    /// The reason, in one word
    #[arg(long, value_name = "WORD")]
    reason: Option<EventText>,
    /// The user of the order, if MySQL does not know the order
    #[arg(long, value_name = "ID", conflicts_with = "file")]
    user: Option<UserId>,
    /// The voucher of the order, if MySQL does not know the order
    #[arg(long, value_name = "ID", conflicts_with = "file")]
    voucher: Option<VoucherId>,
    /// How long to wait until the events are recorded
    #[arg(long = "for", value_name = "SPAN", value_parser = times::parse_span, default_value = WAIT_TEXT)]
    wait: Duration,
    /// For a refund: the --ref of the payment that is refunded; required if the order was paid more than once
    #[arg(long, value_name = "REF")]
    payment: Option<EventText>,
    #[command(flatten)]
    change: ChangeArgs,
}

fn kind_parser() -> impl TypedValueParser<Value = EventKind> {
    let kinds = KINDS.map(|(kind, help)| PossibleValue::new(kind.word()).help(help));
    let kind = |word: String| EventKind::from_word(word.as_bytes()).expect("the word of a kind");
    PossibleValuesParser::new(kinds).map(kind)
}

impl OrderEventArgs {
    fn request(&self) -> OrderEventRequest {
        let Self { kind, order, ref file, from_line, ref reference, user, voucher, wait, .. } = *self;
        let orders = match (order, file) {
            (Some(order), _) => {
                EventOrders::One(OneOrder { order, reference: reference.clone(), user, voucher })
            }
            (None, file) => EventOrders::File { path: file.clone().unwrap_or_default(), from_line },
        };
        OrderEventRequest { kind, orders, payment: self.payment.clone(), reason: self.reason.clone(), wait }
    }
}

impl SystemCommand for OrderEventArgs {
    /// Appends the events, and waits until workers have recorded them.
    async fn run(&self, system: &System) -> anyhow::Result<Exit> {
        if self.payment.is_some() && !self.kind.is_refund() {
            let wrong = "--payment can be used only with the kinds refunding, refunded and refund_failed";
            return Err(WrongUsage(wrong.to_owned()).into());
        }
        send(system, self.request(), &self.change).await
    }
}

async fn send(system: &System, request: OrderEventRequest, change: &ChangeArgs) -> anyhow::Result<Exit> {
    if let (EventOrders::File { .. }, true) = (&request.orders, system.partitions().len() > 1) {
        return send_everywhere(system, request, change).await;
    }
    let settings = match &request.orders {
        EventOrders::One(one) => place_of(system, one.order, one.voucher).await?.certain()?,
        EventOrders::File { .. } => system.only()?,
    };
    let stores = Stores::new(settings);
    let events = OrderEvents::connect(&stores, request.clone()).await?;
    let plan = events.plan().await?;
    run_in(&stores, &events, (plan, request), change).await
}

/// Appends the event of each order in a file to the partition of the order. All orders are checked first: if one event
/// cannot be appended, no event is appended.
async fn send_everywhere(
    system: &System,
    request: OrderEventRequest,
    change: &ChangeArgs,
) -> anyhow::Result<Exit> {
    let all: Vec<Stores> = system.partitions().iter().map(Stores::new).collect();
    let look = async |stores| {
        let events = OrderEvents::connect(stores, request.clone()).await?;
        let plan = events.plan().await?;
        anyhow::Ok((events, plan))
    };
    let mut looked = Vec::new();
    for (stores, found) in all.iter().zip(at_once(&all, look).await) {
        let partition = stores.settings().partition();
        let (events, plan) = found.with_context(|| {
            format!("Nothing was appended, because partition {partition} gives no answer")
        })?;
        looked.push((partition, events, plan));
    }
    let known: HashSet<OrderId> = looked.iter().flat_map(|(.., plan)| plan.known()).collect();
    for (partition, _, plan) in &mut looked {
        plan.narrow(partition, &known);
    }
    if let Some((.., refused)) = looked.iter().find(|(.., plan)| plan.next() == Next::Refused) {
        change.output().print(refused, PlanText::text)?;
        return Ok(Exit::No);
    }
    over_all(system, async |stores| {
        let of_partition = |looked: &&(&Partition, _, _)| looked.0 == stores.settings().partition();
        match looked.iter().find(of_partition) {
            Some((_, events, plan)) if !plan.orders.is_empty() => {
                run_in(stores, events, (plan.clone(), request.clone()), change).await
            }
            _ => Ok(Exit::Ok),
        }
    })
    .await
}

async fn run_in(
    stores: &Stores,
    events: &OrderEvents<'_>,
    (plan, request): (OrderEventPlan, OrderEventRequest),
    change: &ChangeArgs,
) -> anyhow::Result<Exit> {
    let report = OrderEventReport::new(&plan, request);
    Change::new(stores, change)
        .run_in_steps(plan, report, async |plan, report, job| events.run(&plan, report, job).await)
        .await
}

impl PlanText for OrderEventPlan {
    fn text(&self) -> String {
        text::plan(self)
    }
}

impl ReportText for OrderEventReport {
    fn text(&self) -> String {
        text::report(self)
    }

    fn continue_with(&self) -> Option<CommandLine> {
        let EventOrders::File { path, .. } = &self.request.orders else { return None };
        let OrderEventRequest { kind, payment, reason, wait, .. } = &self.request;
        let line = self.first_to_append()?.line?;
        let command = CommandLine::new("order event").word(kind).flag("--file", Some(path.display()));
        let command = command.flag("--from-line", Some(line)).flag("--payment", payment.as_ref());
        let command = command.flag("--reason", reason.as_ref());
        Some(command.flag("--for", Some(format!("{}ms", wait.as_millis())).filter(|_| *wait != WAIT)))
    }

    fn look_with(&self) -> Option<CommandLine> {
        if self.first_to_append().is_some() {
            return None;
        }
        let mut open = self.with_fate(SentEventOutcome::NotRecorded);
        match (open.next()?, open.next()) {
            (one, None) => Some(CommandLine::new("order show").word(one.order)),
            _ => Some(CommandLine::new("status")),
        }
    }
}
