//! Tests of limits while the clock of Redis is set ahead and back. No subject gets more than a limit allows. A subject
//! waits at most until the window ends in which its order was counted, or for a burst.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use tidegate_lab::{Clock, RedisServer};

use super::{JOURNAL, Reply, Sale, USES};
use crate::fixture::Fixture;

const HOUR_S: i64 = 3_600;
const DAY_S: i64 = 24 * HOUR_S;
/// The deadline for Redis to show a new time.
const DEADLINE: Duration = Duration::from_secs(30);
/// With this jump, the clock is in another month, however long the month is.
const MONTH_S: i64 = 31 * DAY_S;
const JUMPS_S: [i64; 3] = [HOUR_S, DAY_S, MONTH_S];

async fn fixture_by(clock: &Clock) -> Result<Arc<Fixture>> {
    Ok(Arc::new(Fixture::on(RedisServer::options().clock(clock).start()?).await?))
}

/// Sets the clock of a Redis ahead of the machine's, and waits until Redis shows the new time. Valkey 9.1 asks the
/// system for the time once a millisecond only, and in between adds what the processor counts. So it sees the change
/// late.
async fn set_ahead_by(clock: &Clock, fixture: &Fixture, seconds: i64) -> Result<()> {
    clock.set_ahead_by(seconds)?;
    let now_ms = || jiff::Timestamp::now().as_millisecond() + seconds * 1000;
    let began = Instant::now();
    loop {
        let before_ms = now_ms();
        let told: (i64, i64) = fixture.typed("TIME").await?.convert()?;
        let told_ms = told.0 * 1000 + told.1 / 1000;
        if (before_ms - 2..=now_ms() + 2).contains(&told_ms) {
            return Ok(());
        }
        ensure!(began.elapsed() < DEADLINE, "set ahead by {seconds} s, and Redis says {told_ms}");
    }
}

/// A sale, and the clock of its Redis.
struct ByClock<'a> {
    clock: &'a Clock,
    sale: Sale,
    next: i64,
}

impl ByClock<'_> {
    /// Asks for an order. Each order has a user of its own.
    async fn ask(&mut self, phone: &str) -> Result<Reply> {
        self.next += 1;
        let id = self.next.to_string();
        self.sale.admit(&id, &id, "1", &["phone", phone]).await.map_err(anyhow::Error::msg)
    }

    /// Asks until an order is refused. Returns the number of admitted orders, and the refusal.
    async fn ask_until_refused(&mut self, phone: &str) -> Result<(usize, Vec<String>)> {
        for passed in 0..10 {
            match self.ask(phone).await? {
                Reply::Code(0) => {}
                Reply::Refused(parts) => return Ok((passed, parts)),
                other => anyhow::bail!("{other:?}"),
            }
        }
        anyhow::bail!("ten orders, and none was refused")
    }

    /// Counts the live orders by the text of their uses: `1,<window>,<phone>`.
    async fn counted(&self) -> Result<BTreeMap<String, usize>> {
        let mut counted = BTreeMap::new();
        for note in self.sale.hash(JOURNAL).await?.into_values().filter(|note| note.contains("\"admit\"")) {
            let note: serde_json::Value = serde_json::from_str(&note)?;
            *counted.entry(note["uses"].as_str().context("what it uses")?.to_owned()).or_default() += 1;
        }
        Ok(counted)
    }

    /// Sets the clock to this many seconds after a time in Unix milliseconds.
    async fn set_to(&self, moment_ms: i64, after_s: i64) -> Result<()> {
        let now_s = jiff::Timestamp::now().as_second();
        self.set_ahead_by(moment_ms / 1000 + after_s - now_s).await
    }

    async fn set_ahead_by(&self, seconds: i64) -> Result<()> {
        set_ahead_by(self.clock, &self.sale.fixture, seconds).await
    }
}

/// A limit of two orders a window. The test places one order before the clock jumps ahead and another after it. Then it
/// sets the clock back and checks all effects.
async fn a_window_goes_ahead_and_back(by_clock: &mut ByClock<'_>, jump_s: i64, window_s: i64) -> Result<()> {
    by_clock.set_ahead_by(0).await?;
    ensure!(by_clock.ask("a").await? == Reply::Code(0));
    by_clock.set_ahead_by(jump_s).await?;
    ensure!(by_clock.ask("a").await? == Reply::Code(0));
    by_clock.set_ahead_by(0).await?;
    let (_, refusal) = by_clock.ask_until_refused("a").await?;
    ensure!(refusal[..2] == ["9", "mine"], "{refusal:?}");
    let opens_ms: i64 = refusal[4].parse()?;
    // The window that is stored, and no later one.
    let now_ms = jiff::Timestamp::now().as_millisecond();
    let latest_ms = now_ms + (jump_s + window_s) * 1000;
    ensure!((now_ms..=latest_ms).contains(&opens_ms), "it opens at {opens_ms}, it is {now_ms}");
    // A subject that placed no order meanwhile is counted as if the clock had not moved.
    let (passed, others) = by_clock.ask_until_refused("b").await?;
    let at_once_ms: i64 = others[4].parse()?;
    ensure!(
        passed == 2 && at_once_ms <= now_ms + window_s * 1000 + 1_000,
        "{passed} passed, then {others:?}"
    );
    // A release makes room in the window, once.
    let before = by_clock.sale.hash(USES).await?;
    let last = (1..=by_clock.next).rev();
    let mut released = false;
    for order in last.map(|order| order.to_string()) {
        let note = by_clock.sale.hash(JOURNAL).await?.remove(&order).unwrap_or_default();
        if note.contains("\"admit\"") && note.contains(",a\"") {
            ensure!(by_clock.sale.release(&order, &order, "1", "1").await == Ok(1));
            ensure!(by_clock.sale.release(&order, &order, "1", "1").await == Ok(0));
            released = true;
            break;
        }
    }
    ensure!(released && by_clock.sale.hash(USES).await? != before);
    ensure!(by_clock.ask("a").await? == Reply::Code(0));
    ensure!(by_clock.ask("a").await? == Reply::Refused(refusal.clone()), "and no more than that");

    by_clock.set_to(opens_ms, -20).await?;
    ensure!(by_clock.ask("a").await? == Reply::Refused(refusal), "not before it opens");
    by_clock.set_to(opens_ms, 1).await?;
    ensure!(by_clock.ask_until_refused("a").await?.0 == 2, "when it opens, as it was told");
    let over = by_clock.counted().await?.into_iter().find(|(_, orders)| *orders > 2);
    ensure!(over.is_none(), "{over:?}");
    Ok(())
}

#[tokio::test]
async fn a_window_that_went_back_stays_in_the_stored_one_and_opens_when_it_says() -> Result<()> {
    let clock = Clock::start()?;
    let fixture = fixture_by(&clock).await?;
    for jump_s in JUMPS_S {
        for (window, window_s) in
            [("600", 600), ("3600", HOUR_S), ("86400", DAY_S), ("day", DAY_S), ("month", MONTH_S)]
        {
            let rules = format!("1 mine phone {window} 0 2 -");
            let prefix = format!("{jump_s}:{window}:");
            set_ahead_by(&clock, &fixture, 0).await?;
            let sale = Sale::open_on(Arc::clone(&fixture), prefix, (&rules, "", "0")).await?;
            let mut by_clock = ByClock { clock: &clock, sale, next: 0 };
            let done = a_window_goes_ahead_and_back(&mut by_clock, jump_s, window_s).await;
            done.with_context(|| format!("ahead by {jump_s} s, window {window}"))?;
        }
    }
    Ok(())
}

/// If a limit counts the whole sale as one subject, all users wait. A limit that is set anew counts from zero.
#[tokio::test]
async fn a_limit_that_was_used_up_while_the_clock_was_ahead_counts_from_zero_under_another_number()
-> Result<()> {
    let clock = Clock::start()?;
    let sale =
        Sale::open_on(fixture_by(&clock).await?, String::new(), ("1 all * day 0 2 -", "", "0")).await?;
    let mut by_clock = ByClock { clock: &clock, sale, next: 0 };
    by_clock.set_ahead_by(MONTH_S).await?;
    ensure!(by_clock.ask_until_refused("a").await?.0 == 2);
    by_clock.set_ahead_by(0).await?;
    ensure!(by_clock.ask_until_refused("a").await?.0 == 0);
    by_clock.sale.limits("0 -;2 all * day 0 2 -").await?;
    ensure!(by_clock.ask_until_refused("a").await?.0 == 2);
    Ok(())
}

/// One order a second and three in a row, with each jump ahead and back.
#[tokio::test]
async fn a_rate_is_right_again_within_a_burst_however_far_the_clock_was_set() -> Result<()> {
    let clock = Clock::start()?;
    let fixture = fixture_by(&clock).await?;
    for (nth, jump_s) in JUMPS_S.into_iter().flat_map(|jump_s| [jump_s, -jump_s]).enumerate() {
        set_ahead_by(&clock, &fixture, 0).await?;
        let rules = "1 fast phone rate 1000000 3 -";
        let sale = Sale::open_on(Arc::clone(&fixture), format!("{nth}:"), (rules, "", "0")).await?;
        let mut by_clock = ByClock { clock: &clock, sale, next: 0 };
        ensure!(by_clock.ask_until_refused("a").await?.0 >= 3, "a burst");
        let mut before_s = 0;
        for ahead_s in [jump_s, 0] {
            by_clock.set_ahead_by(ahead_s).await?;
            // If the clock is ahead of the stored time, a burst passes. If it went back, one order passes, and then one
            // a second.
            let (passed, refusal) = by_clock.ask_until_refused("a").await?;
            let expected = if ahead_s < before_s { 1..=1 } else { 3..=4 };
            ensure!(expected.contains(&passed), "by {ahead_s} s: {passed} passed");
            before_s = ahead_s;
            ensure!(refusal[..2] == ["10", "fast"] && refusal[2].parse::<u64>()? <= 1_000, "{refusal:?}");
            // A second later there is room again: the limit does not wait for the earlier time.
            for later_s in 1..=2 {
                by_clock.set_ahead_by(ahead_s + later_s).await?;
                let (passed, _) = by_clock.ask_until_refused("a").await?;
                ensure!(passed >= 1, "{later_s} s later, by {ahead_s} s: {passed} passed");
            }
        }
    }
    Ok(())
}
