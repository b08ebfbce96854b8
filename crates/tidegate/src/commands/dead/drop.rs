//! `tidegate dead drop`: deletes letters of which nothing can be given back.

use clap::Args;
use futures_util::future::join_all;
use tidegate_orders::{DeadLetters, Gate, Keys, Order, dead_letters::DropReply, gate::GateError};
use tidegate_stream::{Letter, Outage};

use super::{
    course::{self, Deed, Fate, Note, Obstacle},
    door,
    letter::reason_of,
    selection::SelectionArgs,
};
use crate::{config::Settings, connect, exit::Exit, operator::ChangeArgs};

/// The reason of letters whose order id is another order's.
const ID_TAKEN: &str = "id_taken";

const EXAMPLES: &str = "\
Examples:
  tidegate dead drop --reason bad_value --from -1h
  tidegate dead drop 1795175193179-0 --yes
  tidegate dead drop --reason id_taken --to -7d

For letters that are no orders, and for those whose order id is another order's (id_taken, or the journal knows it as
another user's): nothing can be given back of them. Deletes the letter and what is left of its entry in the stream. An order stays, and so does one of which the journal
says that it took units: see tidegate dead cancel. Nothing brings a letter back: export it before. Exits with 1 where
letters stay. Ctrl-C ends it between two pages with exit code 6, and says how to go on.";

/// What `tidegate dead drop` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DeadDropArgs {
    #[command(flatten)]
    pub(super) selection: SelectionArgs,
    #[command(flatten)]
    change: ChangeArgs,
}

struct Drop<'a> {
    dead: &'a DeadLetters,
    gate: Gate,
}

impl Deed for Drop<'_> {
    const COMMAND: &'static str = "dead drop";
    const DONE: &'static str = "dropped";

    fn question(&self, letters: &str) -> String {
        format!("Delete {letters} for good?")
    }

    async fn judge(&self, letters: &[Letter]) -> Result<Vec<Option<Obstacle>>, Outage> {
        let orders: Vec<Option<Order>> =
            letters.iter().map(|letter| self.dead.order_of(letter).ok()).collect();
        let known: Vec<Order> = orders.iter().flatten().cloned().collect();
        let are_of_others = self.gate.are_of_others(&known).await;
        let mut are_of_others = are_of_others.map_err(|error| Outage::new("Redis", error))?.into_iter();
        let obstacle = |(letter, order): (&Letter, &Option<Order>)| {
            let is_of_another = order.is_some() && are_of_others.next().unwrap_or(false);
            let is_of_no_use = order.is_none() || is_of_another || reason_of(letter) == ID_TAKEN;
            (!is_of_no_use).then_some(Obstacle::HoldsOrder)
        };
        Ok(letters.iter().zip(&orders).map(obstacle).collect())
    }

    async fn act(&self, letters: &[Letter]) -> Result<Vec<Result<Fate, Outage>>, Outage> {
        let judged = letters.iter().zip(self.judge(letters).await?);
        Ok(join_all(judged.map(|(letter, obstacle)| self.drop(letter, obstacle))).await)
    }
}

impl Drop<'_> {
    async fn drop(&self, letter: &Letter, obstacle: Option<Obstacle>) -> Result<Fate, Outage> {
        if let Some(obstacle) = obstacle {
            return Ok(Fate::Stays(obstacle));
        }
        Ok(match self.dead.drop(letter).await {
            Ok(DropReply::Dropped) => Fate::Done(Note {
                letter: letter.id.to_string(),
                outcome: Self::DONE,
                order: self.dead.order_of(letter).ok().map(|order| order.id.to_string()),
                entry: None,
            }),
            Ok(DropReply::Gone) => Fate::Gone,
            Ok(DropReply::HoldsUnits) => Fate::Stays(Obstacle::HoldsUnits),
            Err(GateError::Unreachable(error)) => return Err(Outage::new("Redis", error)),
            Err(error) => Fate::Failed(error),
        })
    }
}

/// Deletes them.
///
/// # Errors
/// When Redis cannot be reached, the key holds no stream, or it was not said which letters.
pub async fn run(settings: &Settings, args: &DeadDropArgs) -> anyhow::Result<Exit> {
    args.selection.is_said()?;
    let redis = connect::redis(settings).await?;
    let dead = door(settings, &redis);
    let selection = args.selection.resolve(&redis, &dead).await?;
    let gate = Gate::new(redis, Keys::new(settings.keys.clone()), settings.stream.name.as_str());
    course::run(settings, &args.change, (&dead, selection), &Drop { dead: &dead, gate }).await
}
