//! The texts of `tidegate order event`: the expected and the real outcomes of events.

use tidegate_compare::text::counted;
use tidegate_operations::order_event::{
    EventBlocker, EventOrders, Expectation, OrderEventPlan, OrderEventReport, PlannedEvent, SentEvent,
    SentEventOutcome,
};
use tidegate_orders::event::{EventOutcome, EventRejection};

use super::super::order_show::status;

/// The most orders of a file that a text lists.
const SHOWN: usize = 20;

/// The text about the events that the command would append.
pub fn plan(plan: &OrderEventPlan) -> String {
    if !plan.older_workers.is_empty() {
        return older_workers(&plan.older_workers);
    }
    let obstacles: Vec<String> =
        plan.obstacles().map(|(planned, obstacle)| refused(planned, obstacle)).collect();
    if !obstacles.is_empty() {
        return format!("{}\nNothing was appended.", listed(&obstacles));
    }
    if let [one] = plan.orders.as_slice() {
        return expected(one);
    }
    let mut groups: Vec<(&str, usize)> = Vec::new();
    let expectations = || plan.orders.iter().filter_map(|planned| planned.expected);
    for expectation in expectations() {
        let words = would_be(&expectation);
        match groups.iter_mut().find(|(known, _)| *known == words) {
            Some((_, count)) => *count += 1,
            None => groups.push((words, 1)),
        }
    }
    let groups: Vec<String> = groups.iter().map(|(words, count)| format!("{count} {words}")).collect();
    let orders = counted(plan.orders.len() as u64, "order");
    let mut lines = vec![format!("{} for {orders}: {}", plan.event, groups.join(", "))];
    let is_plain = |planned: &&PlannedEvent| {
        let outcome = planned.expected.map(|expected| expected.outcome);
        matches!(outcome, Some(EventOutcome::Applied | EventOutcome::Unchanged))
    };
    let others: Vec<String> = plan.orders.iter().filter(|it| !is_plain(it)).map(expected).collect();
    if !others.is_empty() {
        lines.push(listed(&others));
    }
    lines.join("\n")
}

/// The message that no event is appended while workers of an older version are alive.
pub fn older_workers(workers: &[String]) -> String {
    format!(
        "{} of an older version that would make events dead letters: {}. Stop or upgrade these workers, then try \
         again.\nNothing was appended.",
        if workers.len() == 1 { "a worker is" } else { "some workers are" },
        workers.join(", "),
    )
}

fn refused(planned: &PlannedEvent, obstacle: EventBlocker) -> String {
    let order = place(planned.line, planned.order.to_string());
    match obstacle {
        EventBlocker::UnknownOrder => {
            let id = planned.order;
            format!(
                "{order}: MySQL does not know the order. If it is not written yet, or never was, add --user and \
                 --voucher; to find the order: tidegate order show {id}"
            )
        }
        EventBlocker::OtherOwner { .. } => format!("{order}: {obstacle}"),
    }
}

fn expected(planned: &PlannedEvent) -> String {
    let order = place(planned.line, planned.order.to_string());
    let owner = planned.user.zip(planned.voucher);
    let owner =
        owner.map_or_else(String::new, |(user, voucher)| format!(" of user {user} for voucher {voucher}"));
    let is = planned.status.map_or_else(|| "not in MySQL".to_owned(), status);
    let then = planned.expected.map(|expectation| would(&expectation)).unwrap_or_default();
    format!("{order}{owner} is {is}: {then}")
}

fn would_be(expectation: &Expectation) -> &'static str {
    match expectation.outcome {
        EventOutcome::Applied => "would be applied",
        EventOutcome::Unchanged => "would change nothing",
        EventOutcome::RefundDue => "would have to be refunded",
        EventOutcome::Rejected(_) => "would be rejected",
    }
}

fn would(expectation: &Expectation) -> String {
    match (expectation.outcome, expectation.to) {
        (EventOutcome::Applied, Some(to)) => format!("the order would be {}", status(to)),
        (EventOutcome::Applied, None) => {
            "the event would be noted, and the status of the order would stay".to_owned()
        }
        (EventOutcome::Unchanged, _) => "the event would change nothing".to_owned(),
        (EventOutcome::RefundDue, _) => "the payment would have to be refunded".to_owned(),
        (EventOutcome::Rejected(why), _) => format!("the event would be rejected, because {}", because(why)),
    }
}

/// The text about the events that were appended, and their outcomes.
pub fn report(report: &OrderEventReport) -> String {
    let mut lines = Vec::new();
    if let [one] = report.orders.as_slice() {
        lines.push(told(report.event.word(), one));
    } else {
        let of_each = SentEventOutcome::ALL.into_iter().map(|fate| (report.count(fate), in_words(fate)));
        let counts: Vec<String> = of_each
            .filter(|(count, _)| *count > 0)
            .map(|(count, words)| format!("{count} {words}"))
            .collect();
        let orders = counted(report.orders.len() as u64, "order");
        lines.push(format!("{} for {orders}: {}", report.event, counts.join(", ")));
        let is_plain = |sent: &&SentEvent| {
            matches!(
                sent.fate,
                SentEventOutcome::Applied | SentEventOutcome::Unchanged | SentEventOutcome::NotAppended
            )
        };
        let others: Vec<String> = report
            .orders
            .iter()
            .filter(|sent| !is_plain(sent))
            .map(|sent| told(report.event.word(), sent))
            .collect();
        if !others.is_empty() {
            lines.push(listed(&others));
        }
        lines.extend(boundary(report));
    }
    lines.extend(waiting(report));
    lines.extend(unknown(report));
    lines.join("\n")
}

/// The text that names the first line of the file whose event was not appended.
fn boundary(report: &OrderEventReport) -> Option<String> {
    let first = report.with_fate(SentEventOutcome::NotAppended).next()?;
    let EventOrders::File { path, .. } = &report.request.orders else { return None };
    let line = first.line?;
    Some(format!(
        "The file {} has events that were not appended: all events from line {line} on.",
        path.display()
    ))
}

fn waiting(report: &OrderEventReport) -> Option<String> {
    report.with_fate(SentEventOutcome::NotRecorded).next()?;
    let stays = "Events that are not recorded yet stay in the stream";
    Some(match report.workers_live {
        Some(false) => {
            format!("{stays}, and no living worker reads the stream: start a worker (tidegate worker).")
        }
        Some(true) => format!(
            "{stays}, and workers are alive: to see their backlog, tidegate status; to see events that are \
             dead letters, tidegate dead list."
        ),
        None => format!("{stays}: workers record them later."),
    })
}

fn unknown(report: &OrderEventReport) -> Option<String> {
    let mut unknown = report.with_fate(SentEventOutcome::Unknown).peekable();
    unknown.peek()?;
    Some(match unknown.all(|sent| sent.reference.is_some()) {
        true => "It is unknown whether some events are in the stream. Append them again: each has a ref.",
        false => {
            "It is unknown whether some events are in the stream. You may append events with a ref again. Before you \
             append an event without a ref again, check with tidegate order show whether it was recorded."
        }
    }
    .to_owned())
}

/// The text about the outcome of one event of the kind `event`.
pub fn told(event: &str, sent: &SentEvent) -> String {
    let order = place(sent.line, sent.order.to_string());
    let entry = sent.entry.map(|entry| entry.to_string()).unwrap_or_default();
    let units = match sent.moved.released {
        0 => String::new(),
        units => format!(", {} released", counted(units, "unit")),
    };
    match (sent.fate, sent.moved.to) {
        (SentEventOutcome::Applied, Some(to)) => format!("{order} is {}{units} (entry {entry})", status(to)),
        (SentEventOutcome::Applied, None) => format!("{order}: {event} was noted (entry {entry})"),
        (SentEventOutcome::Unchanged, _) => {
            format!("{order}: unchanged, because it already had this status (entry {entry})")
        }
        (SentEventOutcome::RefundDue, _) => {
            format!("{order}: this payment has to be refunded (entry {entry})")
        }
        (SentEventOutcome::Rejected, _) => {
            let why = sent.rejection.map(because).unwrap_or_default();
            format!("{order}: {event} was rejected, because {why} (entry {entry})")
        }
        (SentEventOutcome::NotRecorded, _) => format!("{order}: not recorded yet (entry {entry})"),
        (SentEventOutcome::Unknown, _) => {
            format!("{order}: it is unknown whether the event was appended, because Redis did not reply")
        }
        (SentEventOutcome::NotAppended, _) => format!("{order}: nothing was appended"),
    }
}

const fn in_words(fate: SentEventOutcome) -> &'static str {
    match fate {
        SentEventOutcome::Applied => "applied",
        SentEventOutcome::Unchanged => "unchanged",
        SentEventOutcome::RefundDue => "to be refunded",
        SentEventOutcome::Rejected => "rejected",
        SentEventOutcome::NotRecorded => "not recorded yet",
        SentEventOutcome::Unknown => "unknown",
        SentEventOutcome::NotAppended => "not appended",
    }
}

fn place(line: Option<u64>, order: String) -> String {
    line.map_or_else(|| format!("order {order}"), |line| format!("line {line}, order {order}"))
}

fn listed(lines: &[String]) -> String {
    let mut shown: Vec<String> = lines.iter().take(SHOWN).cloned().collect();
    if lines.len() > SHOWN {
        shown.push(format!("and {} more (--json lists all)", lines.len() - SHOWN));
    }
    shown.join("\n")
}

fn because(rejection: EventRejection) -> &'static str {
    match rejection {
        EventRejection::WrongOwner => "the order belongs to another user, or is for another voucher",
        EventRejection::NoOrder => "there is no such order",
        EventRejection::Refused => "the order was refused and holds no units",
        EventRejection::NotPaid => "the order is not paid",
        EventRejection::Paid => "the order is paid, and only a refund can end it",
        EventRejection::Used => "the order is used",
        EventRejection::Cancelled => "the order is cancelled",
        EventRejection::Refunding => "the payment of the order is being refunded",
        EventRejection::Refunded => "the payment of the order was refunded",
        EventRejection::PaymentNeeded => "the order was paid more than once: name the payment with --payment",
        EventRejection::NoSuchPayment => "the order has no payment with the ref of --payment",
        EventRejection::ChangedElsewhere => {
            "a person or another program changed the status or slot of the order (see \
             docs/runbook/audit-fails.md#orders-are-neither-live-nor-cancelled)"
        }
    }
}
