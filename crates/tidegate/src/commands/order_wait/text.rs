//! The texts of `tidegate order wait`, for people.

use std::time::Duration;

use tidegate_compare::text::{counted, span};
use tidegate_operations::order_progress::{
    OrderProgress, ProgressEvent, QueueEstimate, QueuePosition, WaitEnd, WaitTarget,
};
use tidegate_orders::{OrderState, event::EventOutcome};

use crate::{command_line::CommandLine, invocation::Invocation, times::utc};

/// The time after which `tidegate order wait` prints what it waits for, even if the rate at which workers read entries
/// is not known yet.
pub const WITHOUT_RATE: Duration = Duration::from_millis(700);

/// Whether the estimate of when a worker handles the order is complete.
pub fn has_whole_estimate(progress: &OrderProgress) -> bool {
    progress.estimate.is_some_and(|guess| {
        guess.place != QueuePosition::Unread || guess.paused || guess.read_per_s.is_some()
    })
}

/// The sentence which says what the command waits for, and for how long.
pub fn waits(progress: &OrderProgress, until: WaitTarget, wait: Duration) -> String {
    let what = match until {
        WaitTarget::Confirmed => "written",
        WaitTarget::Paid => "paid",
    };
    let place = progress.estimate.map(|guess| format!(": {}", place(&guess))).unwrap_or_default();
    let (order, state) = (progress.order, progress.state.word());
    format!("order {order} is {state}{place}. Waiting up to {} until it is {what}", span(wait))
}

fn place(guess: &QueueEstimate) -> String {
    match guess.place {
        QueuePosition::InProgress => "a worker has it in progress".to_owned(),
        QueuePosition::SetAside => "a worker has set it aside and retries it later".to_owned(),
        QueuePosition::Unread => unread(guess),
    }
}

fn unread(guess: &QueueEstimate) -> String {
    let ahead = guess.ahead.map(|ahead| format!("about {} before it", counted(ahead, "entry")));
    let turn = match (guess.expected_s, guess.read_per_s) {
        _ if guess.paused => Some("the workers are paused".to_owned()),
        (Some(seconds), Some(rate)) => {
            Some(format!("its turn comes in about {seconds} s, at {rate:.0} entries a second"))
        }
        (None, Some(0.0)) => Some("workers read no entries at present".to_owned()),
        _ => None,
    };
    let said: Vec<String> = ahead.into_iter().chain(turn).collect();
    if said.is_empty() {
        "its place in the queue is unknown".to_owned()
    } else {
        format!("{} (an estimate)", said.join(", "))
    }
}

/// The sentence which says how the order ended.
pub fn told(progress: &OrderProgress, end: WaitEnd) -> String {
    let mut lines = vec![format!("order {}{} is {}.", progress.order, whose(progress), state(progress))];
    lines.extend(progress.events.iter().map(event));
    for due in &progress.refunds_due {
        let payment = due.reference.as_ref().map(|text| format!(" {text}")).unwrap_or_default();
        lines.push(format!("Its payment{payment} has to be refunded."));
    }
    if end == WaitEnd::TimeOver {
        let place =
            progress.estimate.map(|guess| format!(" {}.", sentence(&place(&guess)))).unwrap_or_default();
        lines.push(format!("The time to wait is over.{place}"));
    }
    if progress.cut_off {
        lines.push("Not all journals were searched: add --voucher".to_owned());
    }
    if !matches!(end, WaitEnd::Reached) {
        let show = CommandLine::new("order show").word(progress.order);
        lines.push(format!("For all details: {}", Invocation::current().line(&show)));
    }
    lines.join("\n")
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

fn whose(progress: &OrderProgress) -> String {
    let user = progress.user.map(|user| format!(" of user {user}")).unwrap_or_default();
    let voucher = progress.voucher.map(|voucher| format!(" for voucher {voucher}")).unwrap_or_default();
    user + &voucher
}

fn state(progress: &OrderProgress) -> String {
    let word = match progress.state {
        OrderState::Confirmed => "confirmed (written, not paid)",
        OrderState::Released => "released",
        OrderState::Dead => "a dead letter",
        OrderState::Unsure => "admitted, but not found in MySQL, the stream or the dead letters",
        state => state.word(),
    };
    progress.reason.as_ref().map_or_else(|| word.to_owned(), |reason| format!("{word} ({reason})"))
}

fn event(event: &ProgressEvent) -> String {
    let when = event.at_ms.map(utc).unwrap_or_default();
    let kind = event.event.map_or_else(|| "an event of a newer version".to_owned(), |kind| kind.to_string());
    let outcome = match event.outcome {
        EventOutcome::Rejected(why) => format!("rejected ({})", why.word()),
        outcome => outcome.word().to_owned(),
    };
    let reference = event.reference.as_ref().map(|text| format!(", ref {text}")).unwrap_or_default();
    format!("event {} at {when}: {kind}, {outcome}{reference}", event.step)
}
