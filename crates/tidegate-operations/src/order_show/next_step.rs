//! The actions that an operator can take about an order, with everything that is needed for them. The functions are
//! pure.

use tidegate_orders::{
    OrderStatus, VoucherId,
    order_status::{Advice, JournalFact, LetterFact},
    records::{DeadLetterRecord, OrderRow, RefusalRow},
};
use tidegate_stream::EntryId;

use super::{EntryLocation, EntryRecord, OrderQuery, OrderReport};
use crate::dead_letters::REQUEUE_LIMIT;

/// An action that the operator can take about an order. The caller of the operation formats the command for the action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Audit the voucher with this id.
    AuditVoucher(i64),
    /// Make the entries of this consumer claimable: its process is dead.
    ClaimOf(String),
    /// Start a worker, because no worker lives.
    StartWorker,
    /// Show the dead letter with this id.
    ShowLetter(EntryId),
    /// Requeue the dead letter with this id.
    RequeueLetter {
        /// The id of the dead letter.
        letter: EntryId,
        /// Whether the letter was requeued so often that the command needs `--force`.
        force: bool,
    },
    /// Cancel the order of this dead letter, which also releases it.
    CancelLetter(EntryId),
    /// Delete this dead letter, which has nothing to release.
    DropLetter(EntryId),
    /// Replay this entry of the stream.
    Replay(EntryId),
    /// Append the order to the stream again, because its entry is gone.
    Append {
        /// The user of the order, as the journal has it.
        user: String,
        /// The voucher of the order.
        voucher: VoucherId,
        /// The units of the order.
        quantity: i64,
    },
    /// Read the note of the order in the journal of this voucher, because Tidegate cannot parse it.
    ReadNote(VoucherId),
    /// Release the order in Redis with `lua/release.lua`: Redis has nothing of it except the journal's note.
    Release {
        /// The user of the order.
        user: i64,
        /// The voucher of the order.
        voucher: VoucherId,
        /// The units of the order.
        quantity: i64,
    },
    /// Search for the order again, with a higher limit.
    SearchFurther(OrderQuery),
}

/// Returns the possible actions, in the order in which to take them.
pub(super) fn next_steps(report: &OrderReport) -> Vec<NextStep> {
    let mut steps = of_status(report);
    // A requeue of the order's own letter also requeues its events.
    if report.status != OrderStatus::Dead {
        let events = report.records.buried_events.iter();
        steps.extend(events.map(|event| NextStep::RequeueLetter { letter: event.letter, force: false }));
    }
    steps
}

fn of_status(report: &OrderReport) -> Vec<NextStep> {
    let OrderReport { records, facts, status, .. } = report;
    match status {
        OrderStatus::Written | OrderStatus::Cancelled | OrderStatus::Contradictory => {
            records.row.as_ref().map_or_else(Vec::new, |it| of_row(report, &it.row))
        }
        OrderStatus::Refused => {
            records.refusal.as_ref().map_or_else(Vec::new, |refusal| of_refusal(report, refusal))
        }
        OrderStatus::Pending | OrderStatus::Undelivered => in_flight(report),
        OrderStatus::Dead => {
            records.letters.first().map_or_else(Vec::new, |letter| of_letter(report, letter))
        }
        OrderStatus::Released
        | OrderStatus::Mismatched
        | OrderStatus::Lost
        | OrderStatus::Unsure
        | OrderStatus::Unknown => match facts.advice() {
            Advice::RunAgain => run_again(report).into_iter().collect(),
            Advice::LookFurther => search_further(report).into_iter().collect(),
            _ => Vec::new(),
        },
    }
}

fn of_row(report: &OrderReport, row: &OrderRow) -> Vec<NextStep> {
    let (own, foreign): (Vec<_>, Vec<_>) =
        report.records.letters.iter().partition(|letter| letter.is_order_of(row.user, row.voucher));
    let mut steps = match report.facts.advice() {
        Advice::Audit => vec![NextStep::AuditVoucher(row.voucher)],
        Advice::DeleteLetter if report.status == OrderStatus::Written => {
            own.iter().flat_map(|letter| [show(letter), NextStep::DropLetter(letter.id)]).collect()
        }
        Advice::Release if own.is_empty() => release(report, row).into_iter().collect(),
        Advice::Release => own.iter().map(|letter| NextStep::CancelLetter(letter.id)).collect(),
        Advice::DeleteLetter => own.iter().map(|letter| delete(report, letter)).collect(),
        _ => Vec::new(),
    };
    steps.extend(report.records.open_entry().and_then(claim));
    steps.extend(foreign.into_iter().map(show));
    steps
}

fn of_refusal(report: &OrderReport, refusal: &RefusalRow) -> Vec<NextStep> {
    let records = &report.records;
    let own = records.letters.iter().find(|letter| letter.is_order_of(refusal.user, refusal.voucher));
    let audit = NextStep::AuditVoucher(refusal.voucher);
    match (report.facts.advice(), own) {
        (Advice::DeleteLetter, Some(letter)) => vec![NextStep::CancelLetter(letter.id)],
        (Advice::Release, Some(letter)) => vec![show(letter), NextStep::CancelLetter(letter.id)],
        (Advice::Audit, _) => vec![audit],
        (Advice::RunAgain, _) => vec![records.readable_entry().map_or(audit, replay)],
        _ if report.facts.journal == JournalFact::Released => Vec::new(),
        _ => records.open_entry().and_then(claim).into_iter().collect(),
    }
}

fn in_flight(report: &OrderReport) -> Vec<NextStep> {
    let Some(entry) = report.records.entry_to_handle() else { return Vec::new() };
    let is_held = matches!(entry.state, EntryLocation::Pending { alive: true, .. });
    let step = match is_held {
        true => None,
        false if !report.workers_live => Some(NextStep::StartWorker),
        false => claim(entry),
    };
    step.into_iter().collect()
}

fn of_letter(report: &OrderReport, letter: &DeadLetterRecord) -> Vec<NextStep> {
    let mut steps = vec![show(letter)];
    match report.facts.advice() {
        Advice::RunAgainOrRelease => {
            steps.extend([requeue(letter), NextStep::CancelLetter(letter.id)]);
        }
        Advice::DeleteLetter => steps.push(delete(report, letter)),
        _ if letter.content.error.is_some() => steps.push(NextStep::DropLetter(letter.id)),
        _ => {}
    }
    steps
}

fn run_again(report: &OrderReport) -> Option<NextStep> {
    let records = &report.records;
    records.readable_entry().map(replay).or_else(|| {
        let admission = records.journal.iter().find(|note| note.is_admission() && note.by.is_some());
        let Some(note) = admission else {
            return records.journal.first().map(|note| NextStep::ReadNote(note.voucher));
        };
        let (user, quantity) = (note.by.clone()?, note.change.map_or(1, i64::abs));
        Some(NextStep::Append { user, voucher: note.voucher, quantity })
    })
}

/// Returns the further search; None if everything was searched, which means that a store did not answer.
fn search_further(report: &OrderReport) -> Option<NextStep> {
    let searched = &report.records.search.coverage;
    let OrderQuery { budget, .. } = report.query;
    let is_complete = searched.stream.complete && searched.dead.complete;
    let further = OrderQuery { budget: budget.saturating_mul(100), ..report.query };
    (!is_complete).then_some(NextStep::SearchFurther(further))
}

/// Returns the release of an order without a letter, if the journal holds its admission.
fn release(report: &OrderReport, row: &OrderRow) -> Option<NextStep> {
    let is_here = |note: &&super::JournalRecord| note.is_admission() && note.voucher.get() == row.voucher;
    let note = report.records.journal.iter().find(is_here)?;
    Some(NextStep::Release { user: row.user, voucher: note.voucher, quantity: row.quantity })
}

/// Returns the action that deletes a letter: cancel, unless it would release units of another order.
fn delete(report: &OrderReport, letter: &DeadLetterRecord) -> NextStep {
    let is_released = report.facts.journal == JournalFact::Released;
    match report.facts.letter {
        LetterFact::NoOrder => NextStep::DropLetter(letter.id),
        _ if is_released => NextStep::CancelLetter(letter.id),
        _ => NextStep::DropLetter(letter.id),
    }
}

fn show(letter: &DeadLetterRecord) -> NextStep {
    NextStep::ShowLetter(letter.id)
}

fn requeue(letter: &DeadLetterRecord) -> NextStep {
    NextStep::RequeueLetter { letter: letter.id, force: letter.requeued >= REQUEUE_LIMIT }
}

fn replay(entry: &EntryRecord) -> NextStep {
    NextStep::Replay(entry.id)
}

/// Returns the action with which other workers claim an entry of a dead consumer, unless it is claimable already.
fn claim(entry: &EntryRecord) -> Option<NextStep> {
    match &entry.state {
        EntryLocation::Pending { consumer, alive: false, idle_ms: Some(_), .. } => {
            Some(NextStep::ClaimOf(consumer.clone()))
        }
        _ => None,
    }
}
