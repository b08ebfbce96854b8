//! `tidegate dead requeue`: puts letters back into the stream.

use clap::Args;
use futures_util::future::join_all;
use tidegate_orders::{
    DeadLetters, Gate, Keys,
    dead_letters::{MOST_FIELDS, RequeueReply, order_of},
    gate::GateError,
};
use tidegate_stream::{Letter, Outage};

use super::{
    course::{self, Deed, Fate, Note, Obstacle},
    door,
    selection::SelectionArgs,
};
use crate::{config::Settings, connect, exit::Exit, operator::ChangeArgs};

const EXAMPLES: &str = "\
Examples:
  tidegate dead requeue --reason unknown_voucher --voucher 7
  tidegate dead requeue 1795175193179-0 1795175193180-0 --yes
  tidegate dead requeue --all --dry-run
  tidegate dead requeue --reason rejected_by_database --force

Adds the entry to the stream again, byte for byte and with its history, and deletes the letter, in one step: workers write
it as any other. What is not mended dies again, as a new letter that says so. A letter that was requeued
operator.requeue_limit times stays, unless --force is given. Two at once, or the same again, do it once. Exits with 1
where letters stay. Ctrl-C ends it between two pages with exit code 6, and says how to go on.";

/// What `tidegate dead requeue` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DeadRequeueArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    /// Also those that were requeued operator.requeue_limit times
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

struct Requeue<'a> {
    dead: &'a DeadLetters,
    gate: Gate,
    stream: &'a str,
    /// None: however often.
    limit: Option<u32>,
}

impl Deed for Requeue<'_> {
    const COMMAND: &'static str = "requeue";
    const DONE: &'static str = "requeued";

    fn question(&self, letters: &str) -> String {
        format!("Put {letters} back into {}?", self.stream)
    }

    fn typed(&self) -> &'static str {
        if self.limit.is_none() { " --force" } else { "" }
    }

    async fn judge(&self, letters: &[Letter]) -> Result<Vec<Option<Obstacle>>, Outage> {
        let orders: Vec<_> = letters.iter().filter_map(|letter| order_of(letter).ok()).collect();
        let ids: Vec<_> = orders.iter().map(|order| (order.voucher, order.id)).collect();
        let given_back = self.gate.given_back(&ids).await.map_err(|error| Outage::new("Redis", error))?;
        let is_given_back = |letter| order_of(letter).is_ok_and(|order| given_back.contains(&order.id));
        let judge = |letter| self.obstacle(letter).or(is_given_back(letter).then_some(Obstacle::GivenBack));
        Ok(letters.iter().map(judge).collect())
    }

    async fn act(&self, letters: &[Letter]) -> Result<Vec<Fate>, Outage> {
        // The first alone: where Redis does not know the script yet, the others would overtake each other.
        let Some((first, others)) = letters.split_first() else { return Ok(Vec::new()) };
        let first = self.requeue(first).await;
        let others = join_all(others.iter().map(|letter| self.requeue(letter))).await;
        std::iter::once(first).chain(others).collect()
    }
}

impl Requeue<'_> {
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

    async fn requeue(&self, letter: &Letter) -> Result<Fate, Outage> {
        if let Some(obstacle) = self.obstacle(letter) {
            return Ok(Fate::Stays(obstacle));
        }
        Ok(match self.dead.requeue(letter).await {
            Ok(RequeueReply::Requeued(entry)) => Fate::Done(Note {
                letter: letter.id.to_string(),
                outcome: Self::DONE,
                order: order_of(letter).ok().map(|order| order.id.to_string()),
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
/// When Redis cannot be reached, the key holds no stream, or it was not said which letters.
pub async fn run(settings: &Settings, args: &DeadRequeueArgs) -> anyhow::Result<Exit> {
    args.selection.is_said()?;
    // Earlier orders win where the stock does not suffice for all.
    let redis = connect::redis_in_order(settings).await?;
    let dead = door(settings, &redis);
    let selection = args.selection.resolve(&redis, &dead).await?;
    let stream = settings.stream.name.as_str();
    let gate = Gate::new(redis, Keys::new(settings.keys.clone()), stream);
    let limit = (!args.force).then_some(settings.operator.requeue_limit);
    let deed = Requeue { dead: &dead, gate, stream, limit };
    course::run(settings, &args.change, (&dead, selection), &deed).await
}
