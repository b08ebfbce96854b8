//! What can be done about an order, with everything that is needed to do it. Pure.

use tidegate_orders::{
    OrderStatus, VoucherId,
    order_status::{JournalFact, LetterFact, Remedy},
    records::{DeadLetterRecord, OrderRow, RefusalRow},
};
use tidegate_stream::EntryId;

use super::{EntryLocation, EntryRecord, OrderQuery, OrderReport};
use crate::dead_letters::REQUEUE_LIMIT;

/// One thing to do about an order. The caller of the operation says how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Audit this voucher.
    AuditVoucher(i64),
    /// Release what this consumer holds for claiming: its process is gone.
    ClaimOf(String),
    /// Start a worker: none lives.
    StartWorker,
    /// Look at this dead letter.
    ShowLetter(EntryId),
    /// Put this dead letter back into the stream.
    RequeueLetter {
        /// The letter.
        letter: EntryId,
        /// It was put back so often that somebody has to insist.
        force: bool,
    },
    /// Release what this dead letter holds, and delete it.
    CancelLetter(EntryId),
    /// Delete this dead letter, of which nothing can be released.
    DropLetter(EntryId),
    /// Run this entry of the stream again.
    Replay(EntryId),
    /// Append the order to the stream again: its entry is gone.
    Append {
        /// Its user, as the journal has it.
        user: String,
        /// Its voucher.
        voucher: VoucherId,
        /// Its units.
        quantity: i64,
    },
    /// Look at the note that the journal of this voucher has of it: it cannot be read.
    ReadNote(VoucherId),
    /// Release the order in Redis by `lua/release.lua`: nothing but the journal is left of it there.
    Release {
        /// Its user.
        user: i64,
        /// Its voucher.
        voucher: VoucherId,
        /// Its units.
        quantity: i64,
    },
    /// Look for it once more, further than this time.
    SearchFurther(OrderQuery),
}

/// What can be done, in this order.
pub(super) fn next_steps(report: &OrderReport) -> Vec<NextStep> {
    let mut steps = of_status(report);
    // Its own letter takes them along.
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
        | OrderStatus::Unknown => match facts.remedy() {
            Remedy::RunAgain => run_again(report).into_iter().collect(),
            Remedy::LookFurther => search_further(report).into_iter().collect(),
            _ => Vec::new(),
        },
    }
}

fn of_row(report: &OrderReport, row: &OrderRow) -> Vec<NextStep> {
    let (own, foreign): (Vec<_>, Vec<_>) =
        report.records.letters.iter().partition(|letter| letter.is_order_of(row.user, row.voucher));
    let mut steps = match report.facts.remedy() {
        Remedy::Audit => vec![NextStep::AuditVoucher(row.voucher)],
        Remedy::DeleteLetter if report.status == OrderStatus::Written => {
            own.iter().flat_map(|letter| [show(letter), NextStep::DropLetter(letter.id)]).collect()
        }
        Remedy::Release if own.is_empty() => release(report, row).into_iter().collect(),
        Remedy::Release => own.iter().map(|letter| NextStep::CancelLetter(letter.id)).collect(),
        Remedy::DeleteLetter => own.iter().map(|letter| delete(report, letter)).collect(),
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
    match (report.facts.remedy(), own) {
        (Remedy::DeleteLetter, Some(letter)) => vec![NextStep::CancelLetter(letter.id)],
        (Remedy::Release, Some(letter)) => vec![show(letter), NextStep::CancelLetter(letter.id)],
        (Remedy::Audit, _) => vec![audit],
        (Remedy::RunAgain, _) => vec![records.readable_entry().map_or(audit, replay)],
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
    match report.facts.remedy() {
        Remedy::RunAgainOrRelease => {
            steps.extend([requeue(letter), NextStep::CancelLetter(letter.id)]);
        }
        Remedy::DeleteLetter => steps.push(delete(report, letter)),
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

/// None where all was looked at: then a store did not answer.
fn search_further(report: &OrderReport) -> Option<NextStep> {
    let searched = &report.records.search.coverage;
    let OrderQuery { budget, .. } = report.query;
    let is_complete = searched.stream.complete && searched.dead.complete;
    let further = OrderQuery { budget: budget.saturating_mul(100), ..report.query };
    (!is_complete).then_some(NextStep::SearchFurther(further))
}

/// Releases what no letter is left of, where the journal says what that is.
fn release(report: &OrderReport, row: &OrderRow) -> Option<NextStep> {
    let is_here = |note: &&super::JournalRecord| note.is_admission() && note.voucher.get() == row.voucher;
    let note = report.records.journal.iter().find(is_here)?;
    Some(NextStep::Release { user: row.user, voucher: note.voucher, quantity: row.quantity })
}

/// What deletes a letter: cancel, unless it would release what is not the letter's.
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

/// What makes others take an entry from a consumer that is gone, unless it is claimable already.
fn claim(entry: &EntryRecord) -> Option<NextStep> {
    match &entry.state {
        EntryLocation::Pending { consumer, alive: false, idle_ms: Some(_), .. } => {
            Some(NextStep::ClaimOf(consumer.clone()))
        }
        _ => None,
    }
}
