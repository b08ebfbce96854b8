//! `tidegate dead requeue`: puts letters back into the stream.

use clap::Args;
use futures_util::future::join_all;
use tidegate_orders::{
    DeadLetters, Foresight, Gate, Incoming, Keys, Ledger, Order, Verdict,
    dead_letters::{MOST_FIELDS, RequeueReply},
    gate::{GateError, ReleaseReply},
    ledger::Decided,
};
use tidegate_stream::{Letter, Outage};

use super::{
    cancel::release,
    course::{self, Deed, Doom, Fate, Note, Obstacle},
    door,
    selection::SelectionArgs,
};
use crate::{command_line::CommandLine, config::Settings, connect, exit::Exit, operator::ChangeArgs};

const EXAMPLES: &str = "\
Examples:
  tidegate dead requeue --reason unknown_voucher --voucher 7
  tidegate dead requeue 1795175193179-0 1795175193180-0 --yes
  tidegate dead requeue --all --dry-run
  tidegate dead requeue --reason rejected_by_database --force

Adds the entry to the stream again, byte for byte and with its history, and deletes the letter,
in one step. Workers write it like any other. If the cause is not mended, the entry dies again,
as a new letter that says so. --dry-run and the question say how many would die again as things
stand.

Some letters stay:
  - one that was requeued operator.requeue_limit times, unless you give --force
  - one whose order was cancelled or given back, because it would not be written

If somebody else cancels the order at the same moment, it is given back. Two requeues at once,
or the same one again, put a letter back only once.

Exits with 1 if letters stay. Ctrl-C ends it between two pages with exit code 6, and it says how
to continue.";

/// What `tidegate dead requeue` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DeadRequeueArgs {
    #[command(flatten)]
    pub(super) selection: SelectionArgs,
    /// Also those that were requeued operator.requeue_limit times
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

struct Requeue<'a> {
    dead: &'a DeadLetters,
    gate: Gate,
    ledger: Ledger,
    stream: &'a str,
    /// None: however often.
    limit: Option<u32>,
}

impl Deed for Requeue<'_> {
    const COMMAND: &'static str = "dead requeue";
    const DONE: &'static str = "requeued";

    fn question(&self, letters: &str) -> String {
        format!("Put {letters} back into {}?", self.stream)
    }

    fn typed(&self, command: CommandLine) -> CommandLine {
        command.switch("--force", self.limit.is_none())
    }

    async fn judge(&self, letters: &[Letter]) -> Result<Vec<Option<Obstacle>>, Outage> {
        let orders: Vec<_> = letters.iter().filter_map(|letter| self.dead.order_of(letter).ok()).collect();
        let ids: Vec<_> = orders.iter().map(|order| (order.voucher, order.id)).collect();
        let given_back = self.gate.given_back(&ids).await.map_err(|error| Outage::new("Redis", error))?;
        let is_given_back = |letter: &Letter| {
            self.dead.order_of(letter).is_ok_and(|order| given_back.contains(&(order.voucher, order.id)))
        };
        let judge = |(letter, obstacle): (&Letter, Option<Obstacle>)| match obstacle {
            None | Some(Obstacle::Cancelled) if is_given_back(letter) => Some(Obstacle::GivenBack),
            obstacle => obstacle,
        };
        Ok(letters.iter().zip(self.obstacles(letters).await?).map(judge).collect())
    }

    async fn doomed(&self, letters: &[&Letter]) -> Result<Vec<Doom>, Outage> {
        let incoming = letters.iter().filter_map(|letter| {
            self.dead.order_of(letter).ok().map(|order| Incoming { order, entry: letter.id })
        });
        let incoming: Vec<Incoming> = incoming.collect();
        let decided = self.ledger.look(&incoming).await?.foresee(&incoming, &mut Foresight::default());
        let doom = |(incoming, decided): (&Incoming, Decided)| match decided.verdict {
            Verdict::UnknownVoucher => Some(Doom::UnknownVoucher(incoming.order.voucher)),
            Verdict::IdTaken => Some(Doom::IdTaken),
            _ => None,
        };
        let no_order = vec![Doom::NoOrder; letters.len() - incoming.len()];
        Ok(incoming.iter().zip(decided).filter_map(doom).chain(no_order).collect())
    }

    async fn act(&self, letters: &[Letter]) -> Result<Vec<Result<Fate, Outage>>, Outage> {
        // The first alone: where Redis does not know the script yet, the others would overtake each other.
        let obstacles = self.obstacles(letters).await?;
        let mut all = letters.iter().zip(obstacles).map(|(letter, obstacle)| self.requeue(letter, obstacle));
        let Some(first) = all.next() else { return Ok(Vec::new()) };
        let mut fates = vec![first.await];
        if fates[0].is_ok() {
            fates.extend(join_all(all).await);
        }
        self.give_back_cancelled(letters, &mut fates).await;
        Ok(fates)
    }
}

impl Requeue<'_> {
    /// Which of them stay, by what they are and what MySQL says of them. A worker that was given a cancelled order would
    /// acknowledge it, and nothing would be left by which what Redis holds for it could be given back.
    async fn obstacles(&self, letters: &[Letter]) -> Result<Vec<Option<Obstacle>>, Outage> {
        let orders: Vec<Option<Order>> =
            letters.iter().map(|letter| self.dead.order_of(letter).ok()).collect();
        let of = |(letter, order): (&Letter, &Option<Order>)| {
            order.clone().map(|order| Incoming { order, entry: letter.id })
        };
        let all: Vec<Incoming> = letters.iter().zip(&orders).filter_map(of).collect();
        let seen = self.ledger.look(&all).await?;
        let is_cancelled =
            |order: &Option<Order>| order.as_ref().is_some_and(|order| seen.is_cancelled(order));
        let obstacle = |(letter, order)| {
            self.obstacle(letter).or_else(|| is_cancelled(order).then_some(Obstacle::Cancelled))
        };
        Ok(letters.iter().zip(&orders).map(obstacle).collect())
    }

    fn obstacle(&self, letter: &Letter) -> Option<Obstacle> {
        if letter.burial.is_none() {
            return Some(Obstacle::Foreign);
        }
        if letter.fields.len() > MOST_FIELDS {
            return Some(Obstacle::TooManyFields);
        }
        let is_too_often = self.limit.is_some_and(|limit| letter.history.requeued >= limit);
        is_too_often.then_some(Obstacle::NeedsForce)
    }

    /// Asks MySQL once more. Whoever cancels an order writes that down before its letter is ended: if the letter is put
    /// back in between, workers only acknowledge the order, and should the other die now, nobody would give it back.
    async fn give_back_cancelled(&self, letters: &[Letter], fates: &mut [Result<Fate, Outage>]) {
        let moved =
            letters.iter().zip(fates).filter(|(_, fate)| matches!(fate, Ok(Fate::Done(_) | Fate::Gone)));
        let moved = moved.filter_map(|(letter, fate)| {
            Some((Incoming { order: self.dead.order_of(letter).ok()?, entry: letter.id }, fate))
        });
        let (orders, fates): (Vec<Incoming>, Vec<_>) = moved.unzip();
        let withdrawn = match self.ledger.withdrawn(&orders).await {
            Ok(withdrawn) => withdrawn,
            Err(outage) => return fates.into_iter().for_each(|fate| *fate = Err(outage.clone())),
        };
        let releases = orders.iter().zip(withdrawn).zip(fates).map(async |((incoming, withdrawn), fate)| {
            let Some(user_after) = withdrawn else { return };
            *fate = match self.gate.release(&release(&incoming.order, user_after)).await {
                Ok(ReleaseReply::GivenBackBefore) | Err(GateError::IdTaken { .. }) => Ok(Fate::Gone),
                Ok(ReleaseReply::GivenBack | ReleaseReply::GivenBackWithoutStock) => Ok(Fate::GivenBack),
                Err(GateError::Unreachable(error)) => Err(Outage::new("Redis", error)),
                Err(error) => Ok(Fate::Failed(error)),
            };
        });
        join_all(releases).await;
    }

    async fn requeue(&self, letter: &Letter, obstacle: Option<Obstacle>) -> Result<Fate, Outage> {
        if let Some(obstacle) = obstacle {
            return Ok(Fate::Stays(obstacle));
        }
        Ok(match self.dead.requeue(letter).await {
            Ok(RequeueReply::Requeued(entry)) => Fate::Done(Note {
                letter: letter.id.to_string(),
                outcome: Self::DONE,
                order: self.dead.order_of(letter).ok().map(|order| order.id.to_string()),
                entry: Some(entry.to_string()),
            }),
            Ok(RequeueReply::Gone) => Fate::Gone,
            Ok(RequeueReply::GivenBack) => Fate::Stays(Obstacle::GivenBack),
            Err(GateError::Unreachable(error)) => return Err(Outage::new("Redis", error)),
            Err(error) => Fate::Failed(error),
        })
    }
}

/// Puts them back.
///
/// # Errors
/// When a store cannot be reached, the key holds no stream, or it was not said which letters.
pub async fn run(settings: &Settings, args: &DeadRequeueArgs) -> anyhow::Result<Exit> {
    args.selection.is_said()?;
    // Earlier orders win where the stock does not suffice for all.
    let (redis, mysql) = tokio::try_join!(connect::redis_in_order(settings), connect::mysql(settings))?;
    let dead = door(settings, &redis);
    let selection = args.selection.resolve(&redis, &dead).await?;
    let stream = settings.stream.name.as_str();
    let gate = Gate::new(redis, Keys::new(settings.keys.clone()), stream);
    let limit = (!args.force).then_some(settings.operator.requeue_limit);
    let ledger = Ledger::new(mysql, settings.mysql.statement_timeout);
    let deed = Requeue { dead: &dead, gate, ledger, stream, limit };
    course::run(settings, &args.change, (&dead, selection), &deed).await
}
