//! The texts of `tidegate dead requeue`, `cancel` and `drop`: their plans and reports, for people.

use tidegate_compare::text::{counted, printable};
use tidegate_operations::{
    Stores,
    dead_letters::{
        EndedLetter, LetterAction, LetterBlocker, LetterChange, LetterPlan, LetterReport, LetterRequest,
        PredictedFailures, ReasonCount, RetainedGroup, RetainedLetters, VoucherRelease,
    },
};
use tidegate_stream::EntryId;

use super::text;
use crate::{
    command_line::CommandLine,
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ProgressBar, ReportText},
    selection::letters::{self, LetterSelectionArgs},
};

/// Requeues, cancels or drops the selected dead letters (entries that workers could not write).
///
/// # Errors
/// When a store cannot be reached, the key holds no stream, there is no terminal to ask on, or no letters were
/// selected.
pub async fn run(
    stores: &Stores,
    (letters, change): (&LetterSelectionArgs, &ChangeArgs),
    action: LetterAction,
) -> anyhow::Result<Exit> {
    letters.is_said()?;
    let work = LetterChange::open(stores, action).await?;
    let plan = work.plan(letters.letters(work.redis()).await?, &ProgressBar::new()).await?;
    let report = work.report(&plan);
    Change::new(stores, change)
        .run_in_steps(plan, report, async |plan, report, job| work.run(&plan, report, job).await)
        .await
}

/// The command line that makes this request.
fn typed(LetterRequest { action, letters }: &LetterRequest) -> CommandLine {
    let command = match action {
        LetterAction::Requeue { force } => CommandLine::new("dead requeue").switch("--force", *force),
        LetterAction::Cancel => CommandLine::new("dead cancel"),
        LetterAction::Drop => CommandLine::new("dead drop"),
    };
    letters::typed(letters, command)
}

impl PlanText for LetterPlan {
    fn text(&self) -> String {
        let head = format!("{}: {} selected", self.stream, counted(self.counts.letters, "letter"));
        let table = Some(text::counts(&self.counts)).filter(|table| !table.is_empty());
        let lines = [Some(head), table, no_such_reason(self)].into_iter().flatten();
        let along = format!("{} would be appended after their orders", counted(self.along, "event"));
        let lines = lines.chain((self.along > 0).then_some(along));
        let lines = lines.chain(releasing(&self.releases)).chain(self.warnings());
        lines.chain(staying(&self.stay, &self.missing)).collect::<Vec<_>>().join("\n")
    }

    fn warnings(&self) -> Vec<String> {
        self.again.iter().map(dying_again).collect()
    }
}

impl ReportText for LetterReport {
    fn text(&self) -> String {
        let mut lines = vec![format!("{}: {} {}", self.stream, counted(self.letters, "letter"), self.what)];
        let along =
            format!("{} among these letters, each appended after its order", counted(self.along, "event"));
        lines.extend((self.along > 0).then_some(along));
        lines.extend(self.first.iter().map(ended));
        let more = self.letters - self.first.len() as u64;
        lines.extend((more > 0).then(|| format!("  and {more} more")));
        let gone = counted(self.gone, "letter");
        lines.extend(
            (self.gone > 0)
                .then(|| format!("{gone} skipped: another command has deleted or requeued them meanwhile")),
        );
        let released = counted(self.released, "order");
        lines.extend(
            (self.released > 0)
                .then(|| format!("{released} cancelled by another program in MySQL, now released")),
        );
        lines.extend(staying(&self.stay, &self.missing));
        lines.join("\n")
    }

    fn continue_with(&self) -> Option<CommandLine> {
        Some(typed(&self.rest))
    }
}

fn ended(EndedLetter { letter, outcome, order, entry }: &EndedLetter) -> String {
    let order = order.as_ref().map(|order| format!(", order {order}")).unwrap_or_default();
    let entry = entry.map(|entry| format!(" as {entry}")).unwrap_or_default();
    format!("  {letter} {}{entry}{order}", outcome.replace('_', " "))
}

/// A note that no letter has the reason that was typed, with the reasons that exist.
fn no_such_reason(plan: &LetterPlan) -> Option<String> {
    let wanted = plan.reason()?;
    let there: Vec<String> = plan
        .other_reasons
        .iter()
        .map(|ReasonCount { reason, letters }| format!("{} {letters}", printable(reason)))
        .collect();
    let wanted = printable(wanted);
    (!there.is_empty())
        .then(|| format!("no letter has the reason {wanted}; reasons and letters: {}", there.join(", ")))
}

/// The most vouchers that the plan names one by one.
const MOST_NAMED: usize = 20;
/// The most users that the plan names one by one.
const MOST_USERS: u64 = 3;

fn releasing(vouchers: &[VoucherRelease]) -> Vec<String> {
    let line = |VoucherRelease { voucher, orders, units, stock, freed, first_freed }: &VoucherRelease| {
        let stock =
            stock.map_or_else(|| "no stock of this voucher".to_owned(), |stock| counted(stock, "unit"));
        let users: Vec<String> = first_freed.iter().map(ToString::to_string).collect();
        let freed = match freed {
            0 => String::new(),
            1 => format!(", user {} may buy again", users.join(", ")),
            2..=MOST_USERS => format!(", users {} may buy again", users.join(", ")),
            more => format!(", {} may buy again", counted(*more, "user")),
        };
        let (orders, units) = (counted(*orders, "order"), counted(*units, "unit"));
        format!("{orders} would be released: {units} of voucher {voucher} (Redis has {stock}){freed}")
    };
    let unnamed: u64 = vouchers.iter().skip(MOST_NAMED).map(|voucher| voucher.orders).sum();
    let more =
        (unnamed > 0).then(|| format!("{} of other vouchers would be released", counted(unnamed, "order")));
    vouchers.iter().take(MOST_NAMED).map(line).chain(more).collect()
}

fn dying_again(PredictedFailures { reason, voucher, letters }: &PredictedFailures) -> String {
    let why = match (voucher, *reason) {
        (Some(voucher), _) => {
            format!("MySQL has no row of voucher {voucher}; see tidegate voucher show --voucher {voucher}")
        }
        (None, "id_taken") => "the order id belongs to another order".to_owned(),
        (None, "too_large") => {
            "workers do not accept an entry of this size; raise worker.entry_max_bytes for all workers and this command"
                .to_owned()
        }
        (None, _) => "the letter holds no order".to_owned(),
    };
    format!("{} would be buried again: {why}", counted(*letters, "letter"))
}

fn staying(stay: &RetainedLetters, missing: &[EntryId]) -> Vec<String> {
    let stay = stay.groups().map(|RetainedGroup { why, letters, first, error }| {
        let error = error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
        let verb = if *letters == 1 { "stays" } else { "stay" };
        let more = if *letters > first.len() as u64 { " ..." } else { "" };
        let ids = ids(first);
        format!("{} {verb}: {}{error} ({ids}{more})", counted(*letters, "letter"), reason(*why))
    });
    let gone = (!missing.is_empty()).then(|| format!("not there: {}", ids(missing)));
    stay.chain(gone).collect()
}

fn ids(letters: &[EntryId]) -> String {
    letters.iter().map(EntryId::to_string).collect::<Vec<_>>().join(" ")
}

/// The reason why a letter stays, and what to do about it.
fn reason(blocker: LetterBlocker) -> &'static str {
    match blocker {
        LetterBlocker::NeedsForce => "requeued three times or more: to requeue again, add --force",
        LetterBlocker::TooManyFields => "the entry has more fields than a script can add to a stream",
        LetterBlocker::Released => {
            "the order was released: place a new order with a new id; tidegate dead cancel deletes the letter"
        }
        LetterBlocker::Cancelled => {
            "the order is cancelled in MySQL: tidegate dead cancel releases its units and deletes the letter"
        }
        LetterBlocker::OrderExists => {
            "the order is written in MySQL, so it cannot be cancelled: tidegate dead drop deletes the letter"
        }
        LetterBlocker::IdTaken => {
            "the order id belongs to another order, so no units can be released: tidegate dead drop deletes the \
             letter, unless the journal names the user of the letter (see docs/runbook/id-taken.md)"
        }
        LetterBlocker::NoOrder => {
            "the letter holds no order to cancel: tidegate dead export, then tidegate dead drop"
        }
        LetterBlocker::Foreign => "another program wrote this letter, not tidegate",
        LetterBlocker::HoldsOrder => {
            "the order is not written in MySQL: requeue the letter, or cancel the order"
        }
        LetterBlocker::OrderIsDead => {
            "the order of this event is also a dead letter: requeue the order (this also requeues its events), or \
             cancel the order"
        }
        LetterBlocker::HoldsPayment => {
            "no other record of the payment or refund exists: tidegate dead requeue"
        }
        LetterBlocker::HoldsUnits => {
            "according to the journal, the units of the order were never released: see docs/runbook/id-taken.md"
        }
        LetterBlocker::Rejected => "MySQL rejected the row of the cancelled order, so no units were released",
        LetterBlocker::Contended => {
            "another MySQL session locks rows that this command needs: run the command again later"
        }
        LetterBlocker::Failed => "Redis answered with an error",
    }
}
