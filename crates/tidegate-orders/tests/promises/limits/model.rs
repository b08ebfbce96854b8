//! Tests of the scripts of limits against a model. Orders are admitted and released at random while limits change,
//! windows close and replies are lost. Counters, slots and stock must match the model.

mod rules;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tidegate_lab::Seeds;

use super::{BUYERS, COMMON_LIMITS, COMMON_USES, JOURNAL, LIMITED, PLAIN, Reply, Sale, UNITS, USES, text};
use crate::fixture::Fixture;
use rules::{Owner, Rules};

/// The number of sales that run side by side.
const RUNS: u64 = 200;
/// The orders that are placed in each sale.
const ORDERS: i64 = 60;

/// The key of a counter: owner, number of the rule, value of its subject.
type Counter = (Owner, u32, String);

/// The state that the scripts must reach.
struct Model {
    rules: Rules,
    /// Window, orders and units of each counter.
    uses: HashMap<Counter, (i64, i64, i64)>,
    live: Vec<Admitted>,
    /// The slots of each user, as bits.
    slots: HashMap<i64, u32>,
    /// Users whose slots are in the hash. If an order is admitted while a user may have only one, its slot is not in
    /// the hash.
    noted: BTreeSet<i64>,
    stock: i64,
}

/// An order that was admitted and not released.
struct Admitted {
    order: i64,
    user: i64,
    units: i64,
    slot: u32,
    /// Each counter with the window in which the order was counted.
    uses: Vec<(Counter, i64)>,
}

/// A request for an order.
struct Wanted {
    order: i64,
    user: i64,
    units: i64,
    phone: String,
    address: String,
}

impl Wanted {
    fn at_random(order: i64, random: &mut StdRng) -> Self {
        Self {
            order,
            user: random.random_range(1..=4),
            units: random.random_range(1..=3),
            phone: format!("p{}", random.random_range(0..3)),
            address: format!("a/{}", random.random_range(0..3)),
        }
    }

    fn value(&self, subject: &str) -> String {
        match subject {
            "user" => self.user.to_string(),
            "phone" => self.phone.clone(),
            "address" => self.address.clone(),
            _ => String::new(),
        }
    }

    async fn ask(&self, sale: &Sale) -> Result<Reply, String> {
        let subjects = ["phone", self.phone.as_str(), "address", self.address.as_str()];
        let (order, user, units) = (self.order.to_string(), self.user.to_string(), self.units.to_string());
        sale.admit(&order, &user, &units, &subjects).await
    }
}

impl Model {
    fn used(&self, counter: &Counter, window: i64) -> (i64, i64) {
        match self.uses.get(counter) {
            Some((at, orders, units)) if *at == window => (*orders, *units),
            _ => (0, 0),
        }
    }

    /// Whether an order fits into all limits, slots and the stock at this time.
    fn has_room(&self, wanted: &Wanted, at_ms: i64) -> bool {
        let fits = |owner: Owner, rule: &rules::Rule| {
            let counter = (owner, rule.number, wanted.value(&rule.subject));
            match rule.window_at(at_ms) {
                None => wanted.units <= rule.units,
                Some(window) => {
                    let (orders, units) = self.used(&counter, window);
                    orders < rule.orders && units + wanted.units <= rule.units
                }
            }
        };
        let slots = self.slots.get(&wanted.user).copied().unwrap_or_default();
        let has_slot = if self.rules.has_slots { slots != u32::MAX >> 1 } else { slots == 0 };
        self.stock >= wanted.units && has_slot && self.rules.all().all(|(owner, rule)| fits(owner, rule))
    }

    fn admit(&mut self, wanted: &Wanted, at_ms: i64) -> u32 {
        let mut uses = Vec::new();
        for (owner, rule) in self.rules.all() {
            let Some(window) = rule.window_at(at_ms) else { continue };
            let counter = (owner, rule.number, wanted.value(&rule.subject));
            let (orders, units) = self.used(&counter, window);
            self.uses.insert(counter.clone(), (window, orders + 1, units + wanted.units));
            uses.push((counter, window));
        }
        let slots = self.slots.entry(wanted.user).or_default();
        let slot = (!*slots).trailing_zeros() + 1;
        *slots |= 1 << (slot - 1);
        if self.rules.has_slots {
            self.noted.insert(wanted.user);
        }
        self.stock -= wanted.units;
        self.live.push(Admitted { order: wanted.order, user: wanted.user, units: wanted.units, slot, uses });
        slot
    }

    fn release(&mut self, at: usize) -> Admitted {
        let given = self.live.swap_remove(at);
        for (counter, window) in &given.uses {
            let Some((at, orders, units)) = self.uses.get_mut(counter) else { continue };
            if at == window {
                *orders -= 1;
                *units -= given.units;
                if *orders == 0 && *units == 0 {
                    self.uses.remove(counter);
                }
            }
        }
        let slots = self.slots.get_mut(&given.user).expect("it has one");
        *slots &= !(1 << (given.slot - 1));
        if *slots == 0 {
            self.noted.remove(&given.user);
        }
        self.stock += given.units;
        given
    }

    /// The fields of an owner's hash.
    fn fields(&self, wanted: Owner) -> BTreeMap<String, String> {
        let own = self.uses.iter().filter(|((owner, ..), _)| *owner == wanted);
        let uses = own.map(|((_, number, value), (window, orders, units))| {
            (format!("{number}:{value}"), format!("{window}:{orders}:{units}"))
        });
        let noted = self.noted.iter().filter(|_| wanted == Owner::Voucher);
        uses.chain(noted.map(|user| (format!("u:{user}"), self.slots[user].to_string()))).collect()
    }

    /// Checks each window of each counter, whatever was released or changed since.
    fn assert_nobody_is_over_a_limit(&self) {
        let mut by_window: HashMap<(&Counter, i64), (i64, i64)> = HashMap::new();
        for live in &self.live {
            for (counter, window) in &live.uses {
                let (orders, units) = by_window.entry((counter, *window)).or_default();
                *orders += 1;
                *units += live.units;
            }
        }
        for ((counter, window), (orders, units)) in by_window {
            let (most, most_units) = self.rules.most_ever(counter.0, counter.1);
            assert!(orders <= most && units <= most_units, "{counter:?} in {window}: {orders} and {units}");
        }
    }
}

/// A sale, its model, and the released orders.
struct Run {
    sale: Sale,
    model: Model,
    random: StdRng,
    /// Order and user of each released order.
    gone: Vec<(i64, i64)>,
}

impl Run {
    async fn open(fixture: Arc<Fixture>, seed: u64) -> Result<Self> {
        let rules = Rules::at_first();
        let sale = Sale::open_on(fixture, format!("{seed}:"), ("", "5", "1")).await?;
        let (uses, live, slots, noted) = Default::default();
        let model = Model { rules, uses, live, slots, noted, stock: UNITS };
        let run = Self { sale, model, random: StdRng::seed_from_u64(seed), gone: Vec::new() };
        run.show_limits().await?;
        Ok(run)
    }

    fn one_of(&mut self, chances: u32) -> bool {
        self.random.random_range(0..chances) == 0
    }

    async fn show_limits(&self) -> Result<()> {
        let rules = &self.model.rules;
        let common = text("0", "5", &rules.text(Owner::Campaign));
        self.sale.fixture.words(&["HSET", &self.sale.key(COMMON_LIMITS), "rules", &common]).await?;
        let slots = if rules.has_slots { "1" } else { "0" };
        self.sale.limits(&text(slots, "5", &rules.text(Owner::Voucher))).await?;
        Ok(())
    }

    async fn now_ms(&self) -> Result<i64> {
        let time: Vec<String> = self.sale.fixture.typed("TIME").await?.convert()?;
        Ok(time[0].parse::<i64>()? * 1000 + time[1].parse::<i64>()? / 1000)
    }

    /// Places an order. One caller in four gets no reply, and repeats its request.
    async fn ask(&mut self, order: i64) -> Result<()> {
        let wanted = Wanted::at_random(order, &mut self.random);
        let before = self.now_ms().await?;
        let is_lost = self.one_of(4);
        if is_lost {
            let _nobody_hears = wanted.ask(&self.sale).await;
        }
        let reply = wanted.ask(&self.sale).await.map_err(anyhow::Error::msg)?;
        if reply == Reply::Code(0) || is_lost && reply == Reply::Code(6) {
            let note = format!("HGET {} {order}", self.sale.key(JOURNAL));
            let note = self.sale.text(&note).await?.context("a note")?;
            let at_ms = serde_json::from_str::<serde_json::Value>(&note)?["timestamp"].as_i64();
            let at_ms = at_ms.context("a time")?;
            ensure!(self.model.has_room(&wanted, at_ms), "order {order} is over a limit: {note}");
            let slot = self.model.admit(&wanted, at_ms);
            ensure!(note.contains(&format!("\"slot\":{slot},")), "slot {slot}: {note}");
        } else {
            let after = self.now_ms().await?;
            let could = [before, after].map(|at_ms| self.model.has_room(&wanted, at_ms));
            ensure!(could != [true, true], "order {order} is refused for nothing: {reply:?}");
        }
        Ok(())
    }

    /// Releases an order. One caller in four gets no reply. A second release changes nothing.
    async fn release(&mut self) -> Result<()> {
        if self.model.live.is_empty() {
            return Ok(());
        }
        let at = self.random.random_range(0..self.model.live.len());
        // A caller that releases many orders at once sends 2 for each but the last, in any sequence.
        let is_noted = self.model.noted.contains(&self.model.live[at].user);
        let free = if is_noted && self.one_of(2) { "2" } else { "1" };
        let Admitted { order, user, units, .. } = self.model.release(at);
        let (id, by, units) = (order.to_string(), user.to_string(), units.to_string());
        let reply = self.sale.release(&id, &by, &units, free).await;
        ensure!(self.one_of(4) || reply == Ok(1), "order {order} is released: {reply:?}");
        ensure!(self.sale.release(&id, &by, &units, "1").await == Ok(0), "order {order}, once");
        self.gone.push((order, user));
        Ok(())
    }

    /// Repeats a known order with other subjects. The reply must name its state, whatever was changed since. A second
    /// release must change nothing.
    async fn ask_for_known_ones(&mut self) -> Result<()> {
        let mut again = Wanted::at_random(0, &mut self.random);
        if !self.model.live.is_empty() {
            let known = &self.model.live[self.random.random_range(0..self.model.live.len())];
            (again.order, again.user, again.units) = (known.order, known.user, known.units);
            ensure!(again.ask(&self.sale).await == Ok(Reply::Code(6)), "order {} is admitted", again.order);
        }
        if !self.gone.is_empty() {
            (again.order, again.user) = self.gone[self.random.random_range(0..self.gone.len())];
            ensure!(again.ask(&self.sale).await == Ok(Reply::Code(8)), "order {} is gone", again.order);
            let (order, user) = (again.order.to_string(), again.user.to_string());
            ensure!(self.sale.release(&order, &user, "1", "1").await == Ok(0), "order {order}, still once");
        }
        Ok(())
    }

    /// Removes all limits for a while, in which an order may be released, and sets them again.
    async fn take_limits_away(&mut self) -> Result<()> {
        self.sale.limits("").await?;
        let error = Wanted::at_random(9_999, &mut self.random).ask(&self.sale).await;
        ensure!(error.as_ref().is_err_and(|error| error.contains("NOLIMITS")), "{error:?}");
        self.release().await?;
        let stock = self.sale.text(&format!("GET {}", self.sale.key(PLAIN))).await?;
        ensure!(stock == Some(self.model.stock.to_string()), "{stock:?} under the other name");
        self.show_limits().await
    }

    async fn step(&mut self, order: i64) -> Result<()> {
        self.ask(order).await?;
        if self.one_of(3) {
            self.release().await?;
        }
        if self.one_of(6) {
            self.model.rules.change(&mut self.random);
            self.show_limits().await?;
        }
        if self.one_of(5) {
            self.ask_for_known_ones().await?;
        }
        if self.one_of(30) {
            self.take_limits_away().await?;
        }
        if self.one_of(15) {
            // A pause, so that windows close meanwhile.
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
        Ok(())
    }

    async fn check(&self) -> Result<()> {
        let (sale, model) = (&self.sale, &self.model);
        assert_eq!(sale.hash(USES).await?, model.fields(Owner::Voucher));
        assert_eq!(sale.hash(COMMON_USES).await?, model.fields(Owner::Campaign));
        let stock = sale.text(&format!("GET {}", sale.key(LIMITED))).await?;
        assert_eq!(stock, Some(model.stock.to_string()));
        let buyers: BTreeSet<String> =
            sale.fixture.typed(&format!("SMEMBERS {}", sale.key(BUYERS))).await?.convert()?;
        let holders = model.slots.iter().filter(|(_, slots)| **slots != 0);
        assert_eq!(buyers, holders.map(|(user, _)| user.to_string()).collect());
        model.assert_nobody_is_over_a_limit();
        Ok(())
    }
}

async fn run(fixture: Arc<Fixture>, seed: u64) -> Result<()> {
    let mut run = Run::open(fixture, seed).await?;
    for order in 1..=ORDERS {
        run.step(order).await.with_context(|| format!("at order {order}"))?;
    }
    for (order, user) in run.gone.clone() {
        ensure!(run.sale.release(&order.to_string(), &user.to_string(), "1", "1").await == Ok(0), "once");
    }
    run.check().await
}

#[tokio::test]
async fn whatever_is_admitted_and_released_counters_slots_and_stock_are_what_they_must_be() -> Result<()> {
    let fixture = Arc::new(Fixture::new().await?);
    let runs = Seeds::chosen(RUNS).all().map(async |seed| {
        run(Arc::clone(&fixture), seed).await.with_context(|| format!("TIDEGATE_TEST_SEED={seed}"))
    });
    try_join_all(runs).await.map(|_| ())
}
