//! `tidegate dead cancel`: gives the orders of letters back.

use clap::Args;
use futures_util::future::join_all;
use tidegate_orders::{
    DeadLetters, Gate, Incoming, Keys, Ledger, Order,
    dead_letters::CancelReply,
    gate::{GateError, Release, ReleaseReply, UserAfter},
    ledger::Withdrawal,
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
  tidegate dead cancel --reason unknown_voucher --voucher 7
  tidegate dead cancel 1795175193179-0 --yes
  tidegate dead cancel --all --dry-run

Use it for orders that are not to be written any more. It tells MySQL first, by a cancelled
order (status 4) under the same id, so that no copy of the order can ever be written. Then, in
one step, its units go back to the stock in Redis, its user may order again, the journal says
so, and the letter is deleted. This happens once for each order id, however often you ask.

Some letters stay:
  - one whose order stands in MySQL
  - one that holds no order
  - one whose order id belongs to another user, as the journal or MySQL knows
  - one whose cancelled row MySQL refuses (a foreign key, a check)

Exits with 1 if letters stay. Ctrl-C ends it between two pages with exit code 6, and it says how
to continue.";

/// What `tidegate dead cancel` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DeadCancelArgs {
    #[command(flatten)]
    pub(super) selection: SelectionArgs,
    #[command(flatten)]
    change: ChangeArgs,
}

struct Cancel<'a> {
    dead: &'a DeadLetters,
    ledger: Ledger,
    gate: Gate,
}

impl Deed for Cancel<'_> {
    const COMMAND: &'static str = "dead cancel";
    const DONE: &'static str = "cancelled";

    fn question(&self, letters: &str) -> String {
        format!("Give the orders of {letters} back, for good?")
    }

    async fn judge(&self, letters: &[Letter]) -> Result<Vec<Option<Obstacle>>, Outage> {
        let orders = self.orders_of(letters).await?;
        let mut withdrawals = self.ledger.would_withdraw(&flat(&orders)).await?.into_iter();
        let judge = |order: &Result<Incoming, Obstacle>| match order {
            Ok(_) => withdrawals.next().and_then(obstacle),
            Err(obstacle) => Some(*obstacle),
        };
        Ok(orders.iter().map(judge).collect())
    }

    async fn act(&self, letters: &[Letter]) -> Result<Vec<Result<Fate, Outage>>, Outage> {
        let orders = self.orders_of(letters).await?;
        let mut withdrawals = self.ledger.withdraw(&flat(&orders)).await?.into_iter();
        let withdrawn = orders.into_iter().map(|order| order.map(|order| (order, withdrawals.next())));
        let cancelled = letters.iter().zip(withdrawn).map(async |(letter, order)| match order {
            Ok((incoming, Some(withdrawal))) => self.cancel(letter, &incoming, withdrawal).await,
            Ok((_, None)) => Ok(Fate::Gone),
            Err(obstacle) => Ok(Fate::Stays(obstacle)),
        });
        Ok(join_all(cancelled).await)
    }
}

impl Cancel<'_> {
    /// What the letters hold. The journal is asked whose the ids are before MySQL is told of any: a cancelled row of a
    /// forged order would keep the genuine one, of the same id, from being written.
    async fn orders_of(&self, letters: &[Letter]) -> Result<Vec<Result<Incoming, Obstacle>>, Outage> {
        let order = |letter: &Letter| match (self.dead.order_of(letter), &letter.burial) {
            (_, None) => Err(Obstacle::Foreign),
            (Err(_), _) => Err(Obstacle::NoOrder),
            (Ok(order), Some(burial)) => Ok(Incoming { order, entry: burial.entry }),
        };
        let orders: Vec<_> = letters.iter().map(order).collect();
        let known: Vec<Order> = orders.iter().flatten().map(|incoming| incoming.order.clone()).collect();
        let are_of_others = self.gate.are_of_others(&known).await;
        let mut are_of_others = are_of_others.map_err(|error| Outage::new("Redis", error))?.into_iter();
        let mut own = |order: Incoming| match are_of_others.next() {
            Some(true) => Err(Obstacle::IdTaken),
            _ => Ok(order),
        };
        Ok(orders.into_iter().map(|order| order.and_then(&mut own)).collect())
    }

    async fn cancel(
        &self,
        letter: &Letter,
        Incoming { order, .. }: &Incoming,
        withdrawal: Withdrawal,
    ) -> Result<Fate, Outage> {
        let user_after = match withdrawal {
            Withdrawal::Withdrawn(user_after) => user_after,
            Withdrawal::OrderExists => return Ok(Fate::Stays(Obstacle::OrderExists)),
            Withdrawal::IdTaken => return Ok(Fate::Stays(Obstacle::IdTaken)),
            Withdrawal::Rejected(error) => return Ok(Fate::Rejected(error)),
            Withdrawal::Contended => return Ok(Fate::Stays(Obstacle::Contended)),
        };
        let reply = match self.dead.cancel(letter, order, user_after).await {
            // Somebody has put the letter back, and now the order is withdrawn: nobody else would give it back.
            Ok(CancelReply::Gone) => match self.gate.release(&release(order, user_after)).await {
                Ok(ReleaseReply::GivenBackBefore) => return Ok(Fate::Gone),
                reply => reply,
            },
            Ok(CancelReply::Cancelled(reply)) => Ok(reply),
            Err(error) => Err(error),
        };
        Ok(match reply {
            Ok(reply) => Fate::Done(Note {
                letter: letter.id.to_string(),
                outcome: match reply {
                    ReleaseReply::GivenBack => "given_back",
                    ReleaseReply::GivenBackBefore => "given_back_before",
                    ReleaseReply::GivenBackWithoutStock => "given_back_without_stock",
                },
                order: Some(order.id.to_string()),
                entry: None,
            }),
            Err(GateError::IdTaken { .. }) => Fate::Stays(Obstacle::IdTaken),
            Err(GateError::Unreachable(error)) => return Err(Outage::new("Redis", error)),
            Err(error) => Fate::Failed(error),
        })
    }
}

/// Gives the order of a letter back that is gone.
pub(super) fn release(order: &Order, user_after: UserAfter) -> Release {
    let Order { id, user, voucher, quantity, .. } = *order;
    Release { order: id, user, voucher, units: Some(quantity), user_after, by: "operator:dead_cancel".into() }
}

fn flat(orders: &[Result<Incoming, Obstacle>]) -> Vec<Incoming> {
    orders.iter().flatten().cloned().collect()
}

fn obstacle(withdrawal: Withdrawal) -> Option<Obstacle> {
    match withdrawal {
        Withdrawal::Withdrawn(_) => None,
        Withdrawal::OrderExists => Some(Obstacle::OrderExists),
        Withdrawal::IdTaken => Some(Obstacle::IdTaken),
        Withdrawal::Rejected(_) => Some(Obstacle::Rejected),
        Withdrawal::Contended => Some(Obstacle::Contended),
    }
}

/// Gives them back.
///
/// # Errors
/// When a store cannot be reached, the key holds no stream, or it was not said which letters.
pub async fn run(settings: &Settings, args: &DeadCancelArgs) -> anyhow::Result<Exit> {
    args.selection.is_said()?;
    let (redis, mysql) = tokio::try_join!(connect::redis(settings), connect::mysql(settings))?;
    let dead = door(settings, &redis);
    let selection = args.selection.resolve(&redis, &dead).await?;
    let gate = Gate::new(redis, Keys::new(settings.keys.clone()), settings.stream.name.as_str());
    let deed = Cancel { dead: &dead, ledger: Ledger::new(mysql, settings.mysql.statement_timeout), gate };
    course::run(settings, &args.change, (&dead, selection), &deed).await
}
