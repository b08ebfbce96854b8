//! Tests of the scripts against a model, with random sequences of calls. After each call, the reply and all data of
//! Redis must match the model. So the test finds a trace of a refusal at the call that left it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::fixture::{Fixture, TRACE, admission, release, voucher};
use anyhow::{Result, ensure};
use fred::interfaces::{ClientLike, HashesInterface, KeysInterface, SetsInterface};
use jiff::{SignedDuration, Timestamp};
use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::{Value as Json, json};
use tidegate_orders::{
    Quantity,
    records::journal::Sum,
    scripts::{
        Admission, AdmitReply, BusyMark, ChangeReply, ChangeState, JournalUse, LoadReply, Pause, PauseScope,
        Release, ReleaseReply, SaleWindow, ScriptError, StockChange, SumCheck, UserAfter, WholeChange,
    },
};

/// The place of a bound of the sale window, as seen from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    None,
    Past,
    Future,
}

#[derive(Clone, Debug)]
enum Step {
    Admit(Wanted),
    AdmitAll(Vec<Wanted>),
    Release {
        order: i64,
        user: i64,
        units: i64,
        freed: bool,
    },
    /// The order, user and units of each release.
    ReleaseAll {
        unwanted: Vec<(i64, i64, i64)>,
        freed: bool,
    },
    Pause(PauseScope),
    Resume(PauseScope),
    Mark(BusyMark),
    Window {
        begin: Bound,
        end: Bound,
    },
    Load {
        stock: u64,
        begin: Bound,
        end: Bound,
        journal: JournalUse,
    },
    /// The units to add; a negative number takes units.
    Adjust {
        units: i64,
    },
    SetStock {
        stock: i64,
    },
    LoseStock,
}

const HOUR: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Debug)]
struct Wanted {
    order: i64,
    user: i64,
    quantity: i64,
    traced: bool,
}

impl Wanted {
    fn admission(self) -> Result<Admission> {
        let mut wanted = admission(self.order, self.user);
        wanted.quantity = Quantity::try_from(self.quantity)?;
        wanted.traceparent = self.traced.then(|| TRACE.to_owned());
        Ok(wanted)
    }
}

fn wanted() -> impl Strategy<Value = Wanted> {
    (1..6_i64, 1..4_i64, 1..4_i64, any::<bool>()).prop_map(|(order, user, quantity, traced)| Wanted {
        order,
        user,
        quantity,
        traced,
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bound = || prop_oneof![3 => Just(Bound::None), 1 => Just(Bound::Past), 1 => Just(Bound::Future)];
    let scope = || prop_oneof![Just(PauseScope::Own), Just(PauseScope::All)];
    let journal = prop_oneof![6 => Just(JournalUse::Complete), 1 => Just(JournalUse::None)];
    let step = prop_oneof![
        8 => wanted().prop_map(Step::Admit),
        8 => prop::collection::vec(wanted(), 0..5).prop_map(Step::AdmitAll),
        6 => (1..6_i64, 1..4_i64, 0..3_i64, any::<bool>())
            .prop_map(|(order, user, units, freed)| Step::Release { order, user, units, freed }),
        6 => (prop::collection::vec((1..6_i64, 1..4_i64, 0..3_i64), 0..5), any::<bool>())
            .prop_map(|(unwanted, freed)| Step::ReleaseAll { unwanted, freed }),
        1 => scope().prop_map(Step::Pause),
        2 => scope().prop_map(Step::Resume),
        1 => prop_oneof![
            Just(BusyMark::BusyFor(HOUR)), Just(BusyMark::ServedFor(HOUR)), Just(BusyMark::ServedFor(Duration::ZERO))
        ].prop_map(Step::Mark),
        2 => Just(Step::Mark(BusyMark::None)),
        2 => (bound(), bound()).prop_map(|(begin, end)| Step::Window { begin, end }),
        3 => (0..8_u64, bound(), bound(), journal)
            .prop_map(|(stock, begin, end, journal)| Step::Load { stock, begin, end, journal }),
        2 => (-4..5_i64).prop_map(|units| Step::Adjust { units }),
        1 => (-2..9_i64).prop_map(|stock| Step::SetStock { stock }),
        1 => Just(Step::LoseStock),
    ];
    prop::collection::vec(step, 1..40)
}

/// The behaviour of the scripts, written a second time without Redis.
#[derive(Debug)]
struct Model {
    stock: Option<i64>,
    buyers: BTreeSet<i64>,
    begin: Bound,
    end: Bound,
    paused: Option<PauseScope>,
    busy_mark: Option<BusyMark>,
    journal: BTreeMap<i64, Json>,
    /// The movements of the whole sale.
    sale: BTreeMap<String, Json>,
    /// The units that manual changes have put into the stock since the journal is complete. None: it is not complete.
    mismatch: Option<i64>,
    /// The last change of the stock.
    change: Option<StockChange>,
    /// The entries: order, user, quantity, and whether they have a trace context.
    stream: Vec<(i64, i64, i64, bool)>,
}

/// The answer of the typed gate, or its error.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Admit(AdmitReply),
    AdmitAll(Vec<Reply>),
    Release(ReleaseReply),
    ReleaseAll(Vec<Reply>),
    Load(LoadReply),
    Adjust(ChangeReply),
    Changed(bool),
    IdTaken,
    OtherQuantity,
    Refused,
    Nothing,
}

impl Model {
    fn new() -> Self {
        Self {
            stock: None,
            buyers: BTreeSet::new(),
            begin: Bound::None,
            end: Bound::None,
            paused: None,
            busy_mark: None,
            journal: BTreeMap::new(),
            sale: BTreeMap::new(),
            mismatch: None,
            change: None,
            stream: Vec::new(),
        }
    }

    fn apply(&mut self, step: &Step) -> Reply {
        match *step {
            Step::Admit(wanted) => self.admit(wanted),
            Step::AdmitAll(ref many) => {
                Reply::AdmitAll(many.iter().map(|wanted| self.admit(*wanted)).collect())
            }
            Step::Release { order, user, units, freed } => self.release(order, user, units, freed),
            Step::ReleaseAll { ref unwanted, freed } => {
                let release = |&(order, user, units): &_| self.release(order, user, units, freed);
                Reply::ReleaseAll(unwanted.iter().map(release).collect())
            }
            Step::Load { stock, begin, end, journal } => self.load(stock as i64, (begin, end), journal),
            Step::Adjust { units } => self.adjust(units),
            Step::Pause(scope) => {
                let was_paused = self.paused.is_some();
                if scope == PauseScope::Own || !was_paused {
                    self.paused = Some(scope);
                }
                Reply::Changed(!was_paused)
            }
            Step::Resume(scope) => {
                let ends =
                    self.paused.is_some_and(|paused| scope == PauseScope::Own || paused == PauseScope::All);
                Reply::Changed(ends && self.paused.take().is_some())
            }
            Step::Mark(BusyMark::None) => Reply::Changed(self.busy_mark.take().is_some()),
            Step::Mark(busy_mark) => {
                if self.stock.is_some() {
                    self.busy_mark = Some(busy_mark);
                }
                Reply::Changed(self.stock.is_some())
            }
            Step::Window { begin, end } => self.set(|model| (model.begin, model.end) = (begin, end)),
            Step::SetStock { stock } => self.set(|model| model.set_stock(Some(stock))),
            Step::LoseStock => self.set(|model| model.set_stock(None)),
        }
    }

    fn set_stock(&mut self, stock: Option<i64>) {
        let more = stock.unwrap_or(0) - self.stock.unwrap_or(0);
        self.mismatch = self.mismatch.map(|mismatch| mismatch + more);
        self.stock = stock;
    }

    fn set(&mut self, change: impl FnOnce(&mut Self)) -> Reply {
        change(self);
        Reply::Nothing
    }

    fn admit(&mut self, wanted: Wanted) -> Reply {
        let Wanted { order, user, quantity, traced } = wanted;
        if let Some(entry) = self.journal.get(&order) {
            let is_own = entry["by"] == json!(user.to_string());
            return match (entry["action"].as_str(), is_own, entry["change"] == json!(-quantity)) {
                (Some("release"), ..) => Reply::Admit(AdmitReply::Released),
                (_, false, _) => Reply::IdTaken,
                (_, true, true) => Reply::Admit(AdmitReply::AdmittedBefore),
                (_, true, false) => Reply::OtherQuantity,
            };
        }
        let reply = match self.stock {
            None if self.paused.is_some() => AdmitReply::Paused,
            None => AdmitReply::NoStock,
            Some(stock) if stock < quantity => AdmitReply::SoldOut,
            _ if self.paused.is_some() => AdmitReply::Paused,
            _ if self.begin == Bound::Future => AdmitReply::NotBegun,
            _ if self.end == Bound::Past => AdmitReply::Over,
            _ if self.busy_mark.is_some_and(|busy_mark| busy_mark != BusyMark::ServedFor(HOUR)) => {
                AdmitReply::Busy
            }
            _ if self.buyers.contains(&user) => AdmitReply::UserHasOrder,
            Some(stock) => {
                self.stock = Some(stock - quantity);
                self.buyers.insert(user);
                self.journal.insert(
                    order,
                    json!({ "action": "admit", "from": stock, "to": stock - quantity, "change": -quantity,
                        "by": user.to_string() }),
                );
                self.stream.push((order, user, quantity, traced));
                AdmitReply::Admitted
            }
        };
        Reply::Admit(reply)
    }

    fn release(&mut self, order: i64, user: i64, units: i64, freed: bool) -> Reply {
        if let Some(entry) = self.journal.get(&order) {
            if entry["action"] == "release" {
                return Reply::Release(ReleaseReply::ReleasedBefore);
            }
            if entry["by"] != json!(user.to_string()) {
                return Reply::IdTaken;
            }
        }
        if self.mismatch.is_some() && !self.journal.contains_key(&order) {
            return Reply::Release(ReleaseReply::NotAdmitted);
        }
        let has_keys = self.stock.is_some() || !(self.journal.is_empty() && self.sale.is_empty());
        if !has_keys && self.buyers.is_empty() {
            return Reply::Release(ReleaseReply::NoSale);
        }
        let to = self.stock.map(|stock| stock + units);
        let change = if self.stock.is_some() { units } else { 0 };
        let mut entry = json!({ "action": "release", "from": self.stock, "to": to, "change": change,
            "by": "worker:test" });
        if let Some(was) = self.journal.get(&order) {
            entry["admitted"] = json!({ "user": was["by"], "change": was["change"], "from": was["from"] });
        }
        self.journal.insert(order, entry);
        if freed {
            self.buyers.remove(&user);
        }
        let reply = match self.stock {
            None if units > 0 => ReleaseReply::ReleasedWithoutStock,
            _ => ReleaseReply::Released,
        };
        self.stock = to;
        Reply::Release(reply)
    }

    fn adjust(&mut self, units: i64) -> Reply {
        let Some(stock) = self.stock else {
            if units < 0 {
                return Reply::Adjust(ChangeReply::NoStock);
            }
            self.change = Some(self.next_change(units));
            return Reply::Adjust(ChangeReply::Done);
        };
        if units < 0 && stock + units < 0 {
            return Reply::Adjust(ChangeReply::TooFew);
        }
        let change = self.next_change(units);
        if units != 0 && !(self.journal.is_empty() && self.sale.is_empty()) {
            let action = if units < 0 { "take" } else { "add" };
            let movement = json!({ "action": action, "from": stock, "to": stock + units, "change": units,
                "by": "operator:restock" });
            self.sale.insert(format!("#{action}:{}", change.id), movement);
        }
        (self.stock, self.change) = (Some(stock + units), Some(change));
        Reply::Adjust(ChangeReply::Done)
    }

    /// The next change that an adjustment makes, in the state in which Redis gets its units.
    fn next_change(&self, units: i64) -> StockChange {
        let before = self.change.as_ref().map_or(0, |change| change.before + 1);
        let state = if units < 0 { ChangeState::Open } else { ChangeState::Done };
        let at = Timestamp::UNIX_EPOCH;
        StockChange {
            id: format!("change-{before}"),
            units,
            before,
            state,
            by: "test".into(),
            at,
            moved: None,
        }
    }

    fn journal_load(&mut self, stock: i64, journal: JournalUse) {
        if journal == JournalUse::None {
            self.sale.remove("#complete");
            self.mismatch = None;
            return;
        }
        let is_empty = self.journal.is_empty() && self.sale.is_empty();
        let was = self.sale.get("#load").and_then(|load| load["change"].as_i64()).unwrap_or(0);
        let change = if is_empty { stock } else { was + stock - self.stock.unwrap_or(0) };
        let load = json!({ "action": "load", "from": self.stock, "to": stock, "change": change,
            "by": "operator:voucher_load" });
        self.sale.insert("#load".to_owned(), load);
        if is_empty {
            self.mismatch = Some(0);
            self.sale.insert("#complete".to_owned(), json!({ "action": "complete", "by": "load" }));
        } else if self.stock.is_none() {
            self.sale.remove("#complete");
            self.mismatch = None;
        }
    }

    fn load(&mut self, stock: i64, (begin, end): (Bound, Bound), journal: JournalUse) -> Reply {
        if (begin, end) == (Bound::Future, Bound::Past) {
            return Reply::Refused;
        }
        if self.stock.is_some() && self.end != Bound::Past {
            return Reply::Load(LoadReply::OnSale);
        }
        self.journal_load(stock, journal);
        (self.stock, self.begin, self.end) = (Some(stock), begin, end);
        Reply::Load(if self.paused.is_some() { LoadReply::LoadedPaused } else { LoadReply::Loaded })
    }
}

/// Bounds that lie hours away from now; begin before end wherever that is possible.
fn window(begin: Bound, end: Bound) -> SaleWindow {
    let hours = |hours: i64| Some(Timestamp::now() + SignedDuration::from_hours(hours));
    let at = |bound, past, future| match bound {
        Bound::None => None,
        Bound::Past => hours(past),
        Bound::Future => hours(future),
    };
    SaleWindow { begin: at(begin, -2, 1), end: at(end, -1, 2) }
}

fn reply_of<T>(outcome: Result<T, ScriptError>, wrap: fn(T) -> Reply) -> Result<Reply> {
    Ok(match outcome {
        Ok(reply) => wrap(reply),
        Err(ScriptError::IdTaken { .. }) => Reply::IdTaken,
        Err(ScriptError::OtherQuantity { .. }) => Reply::OtherQuantity,
        Err(ScriptError::Refused(_)) => Reply::Refused,
        Err(other) => return Err(other.into()),
    })
}

fn unwanted((order, user, units): (i64, i64, i64), freed: bool) -> Release {
    let user_after = if freed { UserAfter::Freed } else { UserAfter::StaysBuyer };
    Release { units: Quantity::try_from(units).ok(), user_after, ..release(order, user) }
}

async fn apply(fixture: &Fixture, model: &Model, step: &Step) -> Result<Reply> {
    let (store, pool, keys) = (&fixture.store, &fixture.pool, fixture.store.keys());
    match *step {
        Step::Admit(wanted) => {
            return reply_of(store.admissions().admit(&wanted.admission()?).await, Reply::Admit);
        }
        Step::AdmitAll(ref many) => {
            let many = many.iter().map(|wanted| wanted.admission()).collect::<Result<Vec<_>>>()?;
            let replies = store
                .admissions()
                .admit_all(&many)
                .await
                .into_iter()
                .map(|reply| reply_of(reply, Reply::Admit));
            return Ok(Reply::AdmitAll(replies.collect::<Result<_>>()?));
        }
        Step::Release { order, user, units, freed } => {
            return reply_of(
                store.releases().release(&unwanted((order, user, units), freed)).await,
                Reply::Release,
            );
        }
        Step::ReleaseAll { unwanted: ref many, freed } => {
            let many: Vec<Release> = many.iter().map(|one| unwanted(*one, freed)).collect();
            let replies = store.releases().release_all(&many).await;
            let replies = replies.into_iter().map(|reply| reply_of(reply, Reply::Release));
            return Ok(Reply::ReleaseAll(replies.collect::<Result<_>>()?));
        }
        Step::Load { stock, begin, end, journal } => {
            let reply = store.sales().load_with(voucher(), stock, window(begin, end), journal).await;
            return reply_of(reply, Reply::Load);
        }
        Step::Adjust { units } => {
            let now = WholeChange { sides: vec![(voucher(), model.next_change(units))] };
            return reply_of(
                store.sales().note_change(std::slice::from_ref(&model.change), &now).await,
                Reply::Adjust,
            );
        }
        Step::Pause(scope) => return Ok(Reply::Changed(store.sales().pause(voucher(), scope).await?)),
        Step::Mark(busy_mark) => {
            return Ok(Reply::Changed(store.sales().mark_busy(&[voucher()], busy_mark).await?.changed == 1));
        }
        Step::Resume(scope) => return Ok(Reply::Changed(store.sales().resume(voucher(), scope).await?)),
        Step::Window { begin, end } => {
            let key = keys.voucher(voucher());
            let window = window(begin, end);
            for (field, bound) in [("begin_ms", window.begin), ("end_ms", window.end)] {
                match bound {
                    None => pool.hdel(&key, field).await?,
                    Some(bound) => pool.hset(&key, (field, bound.as_millisecond())).await?,
                }
            }
        }
        Step::SetStock { stock } => pool.set(keys.stock(voucher()), stock, None, None, false).await?,
        Step::LoseStock => pool.del(keys.stock(voucher())).await?,
    }
    Ok(Reply::Nothing)
}

/// Checks that Redis holds the data of the model, and no other data.
async fn compare(fixture: &Fixture, model: &Model, began_ms: i64) -> Result<()> {
    let (pool, keys) = (&fixture.pool, fixture.store.keys());
    let stock: Option<i64> = pool.get(keys.stock(voucher())).await?;
    ensure!(stock == model.stock, "stock {stock:?}");
    let buyers: BTreeSet<i64> =
        pool.smembers::<Vec<i64>, _>(keys.buyers(voucher())).await?.into_iter().collect();
    ensure!(buyers == model.buyers, "buyers {buyers:?}");
    let journal: BTreeMap<String, String> = pool.hgetall(keys.journal(voucher())).await?;
    let orders = model.journal.iter().map(|(order, entry)| (order.to_string(), entry.clone()));
    let expected: BTreeMap<String, Json> = orders.chain(model.sale.clone()).collect();
    ensure!(journal.keys().eq(expected.keys()), "journal {journal:?}");
    for (field, entry) in journal {
        let mut entry: Json = serde_json::from_str(&entry)?;
        let mut time_of = |note: &mut Json| {
            let at_ms = note.as_object_mut().and_then(|note| note.remove("timestamp"));
            let at_ms = at_ms.and_then(|at| at.as_i64()).unwrap_or_default();
            ensure!((began_ms..began_ms + 3_600_000).contains(&at_ms), "timestamp {at_ms}");
            Ok(())
        };
        time_of(&mut entry)?;
        entry.get_mut("admitted").map_or(Ok(()), &mut time_of)?;
        ensure!(entry == expected[&field], "{field}: {entry}");
    }
    compare_sum(fixture, model).await?;
    let stream = fixture.traced_orders().await?.into_iter().map(|(order, trace)| {
        let is_traced = trace.as_deref() == Some(TRACE.as_bytes());
        (order.id.get(), order.user.get(), order.quantity.get(), is_traced)
    });
    let stream: Vec<_> = stream.collect();
    ensure!(stream == model.stream, "stream {stream:?}");
    let state = fixture.store.sales().read_voucher(voucher()).await?;
    let paused = model.paused.map_or(Pause::Running, Pause::Paused);
    ensure!(state.pause == paused, "{:?}", state.pause);
    let read = fixture.store.sales().read_pauses(&[voucher()]).await.remove(0)?;
    ensure!(read == paused, "read with others: {read:?}");
    let bounds = (state.window.begin.is_some(), state.window.end.is_some());
    ensure!(bounds == (model.begin != Bound::None, model.end != Bound::None));
    ensure!((state.stock, state.buyers) == (model.stock, model.buyers.len() as u64), "{state:?}");
    let changes = model.sale.keys().filter(|field| field.starts_with("#add") || field.starts_with("#take"));
    ensure!(state.journaled == (model.journal.len() + changes.count()) as u64, "{state:?}");
    Ok(())
}

/// Checks that the stock is the sum of the journal, except for manual changes.
async fn compare_sum(fixture: &Fixture, model: &Model) -> Result<()> {
    let check = fixture.store.journals().check_sum(voucher(), 1_000).await?;
    let as_expected = match (check, model.mismatch) {
        (SumCheck::NotComplete, None) => true,
        (SumCheck::Checked(_, Sum::Holds), Some(mismatch)) => mismatch == 0,
        (SumCheck::Checked(_, Sum::Mismatch(found)), Some(mismatch)) => found == mismatch,
        _ => false,
    };
    ensure!(as_expected, "{check:?} instead of {:?}", model.mismatch);
    Ok(())
}

async fn run(fixture: &Fixture, steps: &[Step]) -> Result<()> {
    fixture.typed("FLUSHALL").await?;
    let began_ms = Timestamp::now().as_millisecond() - 1000;
    let mut model = Model::new();
    for (at, step) in steps.iter().enumerate() {
        let got = apply(fixture, &model, step).await?;
        let expected = model.apply(step);
        ensure!(got == expected, "step {at}, {step:?}: {got:?} instead of {expected:?}");
        compare(fixture, &model, began_ms).await.map_err(|error| {
            error.context(format!("after step {at}, {step:?}, which answered {got:?}; {model:?}"))
        })?;
    }
    Ok(())
}

#[test]
fn whatever_is_asked_in_whatever_order_replies_and_state_are_those_of_the_model() -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let fixture = runtime.block_on(Fixture::new())?;
    let config = ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config).run(&steps(), |steps| {
        runtime.block_on(run(&fixture, &steps)).map_err(|error| TestCaseError::fail(format!("{error:#}")))
    })?;
    runtime.block_on(fixture.pool.quit())?;
    Ok(())
}
