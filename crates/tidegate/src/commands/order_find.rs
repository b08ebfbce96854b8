//! `tidegate order find`: the orders of a user or a voucher, wherever they are.

use std::collections::BTreeMap;

use anyhow::Context;
use clap::{ArgGroup, Args};
use fred::clients::Pool;
use serde::Serialize;
use sqlx::MySqlPool;
use tidegate_orders::{
    Keys, Order, OrderId, RowState, UserId, VoucherId, sale,
    story::{Trail, VOUCHER_LIMIT, refusals_of, rows_of},
    vouchers,
    wire::FieldNames,
};
use tidegate_stream::{Entry, EntryId, Letter, PageSize, Survey};
use tokio::time::timeout;

use super::order_show::SCAN;
use crate::{
    config::Settings,
    connect,
    exit::Exit,
    moment::utc,
    operator::Progress,
    output::{OutputArgs, counted, table},
};

/// Entries that are read at once, at most.
const PAGE: u16 = 500;

const EXAMPLES: &str = "\
Examples:
  tidegate order find --user 1001
  tidegate order find --user 1001 --voucher 7
  tidegate order find --voucher 7 --open
  tidegate order find --voucher 7 --limit 20 --json | jq -r .orders[].order

Looks into MySQL (orders and refusals), the buyers of vouchers, what is pending or unread, and the dead letters. Without
--voucher, all keys of Redis are looked through for vouchers with buyers; besides these, the vouchers that have orders in
MySQL are searched, those with the highest ids, whether they have a row or not. `tidegate order show` tells the whole story of each order.

Exits with 1 where nothing was found. What was not searched is said.";

/// What `tidegate order find` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("of").required(true).multiple(true).args(["user", "voucher"]))]
pub struct OrderFindArgs {
    /// Of this user
    #[arg(long, value_name = "ID")]
    user: Option<UserId>,
    /// For this voucher
    #[arg(long, value_name = "ID")]
    voucher: Option<VoucherId>,
    /// Only what is still to be decided: undelivered, pending or dead
    #[arg(long)]
    open: bool,
    /// At most so many, the latest first
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    limit: u16,
    /// Pending entries, unread ones and dead letters to look through at most, each
    #[arg(long, value_name = "NUMBER", default_value_t = SCAN, value_parser = clap::value_parser!(u64).range(1..))]
    scan: u64,
    #[command(flatten)]
    output: OutputArgs,
}

/// Where an order is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Place {
    Written,
    Cancelled,
    Contradictory,
    Refused,
    Dead,
    Pending,
    Undelivered,
}

impl From<RowState> for Place {
    fn from(state: RowState) -> Self {
        match state {
            RowState::Live => Self::Written,
            RowState::Cancelled => Self::Cancelled,
            RowState::Contradictory => Self::Contradictory,
        }
    }
}

impl Place {
    fn word(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Cancelled => "cancelled",
            Self::Contradictory => "contradictory",
            Self::Refused => "refused",
            Self::Dead => "dead letter",
            Self::Pending => "pending",
            Self::Undelivered => "undelivered",
        }
    }
}

/// An order at one place; it may be at others, too.
#[derive(Clone, Debug, Serialize)]
struct Found {
    order: OrderId,
    user: String,
    voucher: String,
    #[serde(rename = "is")]
    place: Place,
    /// When it was written, refused, buried or added to the stream: Unix milliseconds.
    at_ms: Option<i64>,
    /// The entry, or the letter of a dead one.
    entry: Option<String>,
}

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct Answer {
    orders: Vec<Found>,
    /// Vouchers whose buyers the user is one of.
    buyer_of: Vec<VoucherId>,
    /// What was not searched.
    unsearched: Vec<String>,
}

/// Finds the orders.
///
/// # Errors
/// When a store cannot be reached, or a key holds something else than it should.
pub async fn run(settings: &Settings, args: &OrderFindArgs) -> anyhow::Result<Exit> {
    let (redis, mysql) = tokio::try_join!(connect::redis(settings), connect::mysql(settings))?;
    let keys = Keys::new(settings.keys.clone());
    let survey = Survey::new(redis.clone(), settings.stream_names());
    let mut answer = Answer { orders: Vec::new(), buyer_of: Vec::new(), unsearched: Vec::new() };
    let vouchers = match args.voucher {
        Some(voucher) => vec![voucher],
        None => bought(&redis, &keys).await.context("Failed to read Redis")?,
    };
    let vouchers = timeout(settings.mysql.statement_timeout, answer.in_mysql(&mysql, args, vouchers)).await;
    let vouchers = vouchers.context("MySQL did not answer in time")??;
    answer.in_redis(&redis, &survey, &keys, args, &vouchers).await.context("Failed to read Redis")?;
    answer.orders.sort_by_key(|found| (std::cmp::Reverse(found.at_ms), found.order));
    if answer.orders.len() > usize::from(args.limit) {
        answer.orders.truncate(usize::from(args.limit));
        answer.unsearched.push("there are more orders than --limit".to_owned());
    }
    args.output.print(&answer, render)?;
    Ok(if answer.orders.is_empty() && answer.buyer_of.is_empty() { Exit::No } else { Exit::Ok })
}

impl Answer {
    /// Rows and refusals, unless only what is open is wanted: of these vouchers, and of those with orders in MySQL unless one is
    /// meant. Answers with all that were looked
    /// through.
    async fn in_mysql(
        &mut self,
        mysql: &MySqlPool,
        args: &OrderFindArgs,
        mut vouchers: Vec<VoucherId>,
    ) -> anyhow::Result<Vec<VoucherId>> {
        if args.open {
            return Ok(vouchers);
        }
        if args.voucher.is_none() {
            let most = VOUCHER_LIMIT as usize;
            let ordered = vouchers::ordered(mysql, most).await;
            let ordered = ordered.context("Failed to look for vouchers with orders")?;
            if ordered.len() == most {
                self.unsearched.push(format!(
                    "of the vouchers that have orders in MySQL and no buyers in Redis, only those among the {VOUCHER_LIMIT} \
                     with the highest ids were looked through"
                ));
            }
            vouchers.extend(ordered);
            vouchers.sort_unstable();
            vouchers.dedup();
        }
        // One more than is shown tells whether there are more.
        let limit = usize::from(args.limit) + 1;
        let rows = rows_of(mysql, args.user, &vouchers, limit).await.context("Failed to read the orders")?;
        self.orders.extend(rows.into_iter().map(|row| Found {
            order: row.order,
            user: row.user.to_string(),
            voucher: row.voucher.to_string(),
            place: row.state().into(),
            at_ms: row.created_ms,
            entry: row.entry,
        }));
        let refusals = refusals_of(mysql, args.user, args.voucher, limit).await;
        self.orders.extend(refusals.context("Failed to read the refusals")?.into_iter().map(|it| Found {
            order: it.order,
            user: it.user.to_string(),
            voucher: it.voucher.to_string(),
            place: Place::Refused,
            at_ms: it.at_ms,
            entry: Some(it.entry),
        }));
        Ok(vouchers)
    }

    async fn in_redis(
        &mut self,
        redis: &Pool,
        survey: &Survey,
        keys: &Keys,
        args: &OrderFindArgs,
        vouchers: &[VoucherId],
    ) -> anyhow::Result<()> {
        let trail = Trail { pool: redis, survey, keys };
        if let Some(user) = args.user {
            self.buyer_of = trail.bought(vouchers, user).await?;
        }
        let progress = Progress::new();
        progress.expect(args.scan.saturating_mul(3), "entries looked at");
        self.pending((survey, keys), args, &progress).await?;
        self.undelivered((survey, keys), args, &progress).await?;
        let (mut budget, all) = (args.scan, (EntryId::MIN, EntryId::MAX));
        let buried = |entry: &Entry| Letter::parse(entry.clone()).entry();
        let is_meant = |entry: &Entry| wanted(keys.fields(), &buried(entry), args).is_some();
        let seen = |entries| progress.add(entries);
        let (letters, searched) =
            trail.search(&survey.names().dead, all, &mut budget, is_meant, seen).await?;
        if !searched.complete {
            self.unsearched
                .push(format!("only the last {} dead letters were looked through", searched.entries));
        }
        self.orders.extend(letters.iter().filter_map(|letter| {
            // Its place is that of the letter, and not of the entry that was buried.
            found(keys.fields(), &Entry { id: letter.id, ..buried(letter) }, args, Place::Dead)
        }));
        Ok(())
    }

    async fn pending(
        &mut self,
        (survey, keys): (&Survey, &Keys),
        args: &OrderFindArgs,
        progress: &Progress,
    ) -> anyhow::Result<()> {
        let (mut after, mut left, mut size) = (EntryId::MIN, args.scan, PageSize::new(PAGE));
        while left > 0 {
            let count = size.count(left);
            let ids = survey.pending(after, count).await?;
            let entries = survey.entries(&survey.names().stream, &ids).await?;
            size.learn(entries.iter().flatten().map(|entry| &entry.fields));
            self.orders.extend(
                entries
                    .iter()
                    .flatten()
                    .filter_map(|entry| found(keys.fields(), entry, args, Place::Pending)),
            );
            progress.add(ids.len() as u64);
            match ids.last() {
                Some(last) if ids.len() == usize::from(count) => after = *last,
                _ => return Ok(()),
            }
            left -= u64::from(count);
        }
        self.unsearched
            .push(format!("only the first {} were looked through", counted(args.scan, "pending entry")));
        Ok(())
    }

    async fn undelivered(
        &mut self,
        (survey, keys): (&Survey, &Keys),
        args: &OrderFindArgs,
        progress: &Progress,
    ) -> anyhow::Result<()> {
        let mut after = survey.last_delivered().await?.unwrap_or(EntryId::MIN);
        let (mut left, mut size) = (args.scan, PageSize::new(PAGE));
        while left > 0 {
            let count = size.count(left);
            let page = survey.page(&survey.names().stream, (after, EntryId::MAX), count).await?;
            size.learn(page.iter().map(|entry| &entry.fields));
            self.orders.extend(
                page.iter().filter_map(|entry| found(keys.fields(), entry, args, Place::Undelivered)),
            );
            progress.add(page.len() as u64);
            match page.last() {
                Some(last) if page.len() == usize::from(count) => after = last.id,
                _ => return Ok(()),
            }
            left -= u64::from(count);
        }
        self.unsearched
            .push(format!("only the first {} were looked through", counted(args.scan, "unread entry")));
        Ok(())
    }
}

/// All vouchers that have buyers in Redis: MySQL may know nothing of them.
async fn bought(redis: &Pool, keys: &Keys) -> anyhow::Result<Vec<VoucherId>> {
    let progress = Progress::new();
    progress.expect(sale::count_keys(redis).await?, "keys looked at");
    Ok(sale::find_bought(redis, keys, |keys| progress.add(keys)).await?)
}

/// The order in an entry, if it is one that is looked for.
fn wanted(fields: &FieldNames, entry: &Entry, args: &OrderFindArgs) -> Option<Order> {
    let is_meant = |order: &Order| {
        args.user.is_none_or(|user| user == order.user)
            && args.voucher.is_none_or(|voucher| voucher == order.voucher)
    };
    fields.decode(entry).ok().filter(is_meant)
}

fn found(fields: &FieldNames, entry: &Entry, args: &OrderFindArgs, place: Place) -> Option<Found> {
    let order = wanted(fields, entry, args)?;
    Some(Found {
        order: order.id,
        user: order.user.to_string(),
        voucher: order.voucher.to_string(),
        place,
        at_ms: i64::try_from(entry.id.ms).ok(),
        entry: Some(entry.id.to_string()),
    })
}

fn render(answer: &Answer) -> String {
    let mut parts = Vec::new();
    if !answer.orders.is_empty() {
        let mut table = table(&["order", "user", "voucher", "is", "time", "entry"]);
        for found in &answer.orders {
            table.add_row([
                found.order.to_string(),
                found.user.clone(),
                found.voucher.clone(),
                found.place.word().to_owned(),
                found.at_ms.map(utc).unwrap_or_default(),
                found.entry.clone().unwrap_or_default(),
            ]);
        }
        parts.push(table.to_string());
    }
    let mut places: BTreeMap<Place, u64> = BTreeMap::new();
    for found in &answer.orders {
        *places.entry(found.place).or_default() += 1;
    }
    let places: Vec<String> =
        places.iter().map(|(place, count)| format!("{count} {}", place.word())).collect();
    parts.push(if places.is_empty() {
        "No order was found.".to_owned()
    } else {
        format!("{}.", places.join(", "))
    });
    if !answer.buyer_of.is_empty() {
        let vouchers: Vec<String> = answer.buyer_of.iter().map(ToString::to_string).collect();
        parts.push(format!("The user is among the buyers of {}.", vouchers.join(", ")));
    }
    parts.extend(answer.unsearched.iter().map(|what| format!("Not all: {what}.")));
    parts.join("\n\n")
}
