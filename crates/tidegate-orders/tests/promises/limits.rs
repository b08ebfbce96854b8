//! Limits, at the scripts: whatever is admitted and released in any order, nobody is over a limit, and no use is lost or given back
//! twice.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use anyhow::{Context, Result, ensure};
use fred::types::Value;
use futures_util::future::try_join_all;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tidegate_orders::{
    Gate, Subjects,
    gate::{Admission, AdmitReply, GateError, ReleaseReply},
    limits::LimitReached,
};
use tidegate_stream::Script;

use crate::ground::{Ground, STREAM, admission, release};

const PLAIN: &str = "seckill:stock:7";
const LIMITED: &str = "seckill:limited:7";
const BUYERS: &str = "seckill:order:7";
const VOUCHER: &str = "seckill:voucher:7";
const JOURNAL: &str = "seckill:journal:7";
const LIMITS: &str = "seckill:limits:voucher:7";
const USES: &str = "seckill:uses:voucher:7";
const COMMON_LIMITS: &str = "seckill:limits:campaign:5";
const COMMON_USES: &str = "seckill:uses:campaign:5";
const UNITS: i64 = 40;
/// Of the voucher, and of its campaign.
const RULES: &str = "1 each phone order 0 - 2;2 mine user 2 0 2 -;3 days phone day 28800 3 4";
const COMMON: &str = "4 months address month -3600 5 7;5 all * sale 0 30 -";

/// The scripts on a server of their own.
struct Sale {
    ground: Arc<Ground>,
    /// Before every name: many sales share a server.
    prefix: String,
    admit: Script,
    release: Script,
    limit: Script,
}

impl Sale {
    async fn open(rules: &str, campaign: &str, slots: &str) -> Result<Self> {
        Self::open_on(Arc::new(Ground::new().await?), String::new(), (rules, campaign, slots)).await
    }

    async fn open_on(
        ground: Arc<Ground>,
        prefix: String,
        (rules, campaign, slots): (&str, &str, &str),
    ) -> Result<Self> {
        let sale = Self {
            ground,
            prefix,
            admit: Script::new("admit_limited", include_str!("../../../../lua/admit_limited.lua")),
            release: Script::new("release_limited", include_str!("../../../../lua/release_limited.lua")),
            limit: Script::new("limit", include_str!("../../../../lua/limit.lua")),
        };
        sale.ground.typed(&format!("SET {} {UNITS}", sale.key(PLAIN))).await?;
        sale.limits(&text(slots, campaign, rules)).await?;
        Ok(sale)
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    async fn call(&self, script: &Script, keys: &[&str], args: &[&str]) -> Result<Value, String> {
        let keys = keys.iter().map(|key| self.key(key).into()).collect();
        let args = args.iter().map(|arg| Value::from(*arg)).collect();
        script.call(&self.ground.pool, keys, args).await.map_err(|error| error.to_string())
    }

    /// Empty: none any more.
    async fn limits(&self, rules: &str) -> Result<Value> {
        let keys = [PLAIN, LIMITED, JOURNAL, LIMITS, VOUCHER, STREAM];
        let reply = self.call(&self.limit, &keys, &[rules, "operator:test"]).await;
        reply.map_err(anyhow::Error::msg)
    }

    async fn admit(
        &self,
        order: &str,
        user: &str,
        quantity: &str,
        subjects: &[&str],
    ) -> Result<Reply, String> {
        let keys = [LIMITED, BUYERS, VOUCHER, JOURNAL, STREAM, LIMITS, USES, COMMON_LIMITS, COMMON_USES];
        let args = [&[order, user, "7", quantity, ""][..], subjects].concat();
        let reply = self.call(&self.admit, &keys, &args).await;
        Ok(match reply? {
            Value::Array(parts) => {
                Reply::Refused(parts.iter().map(|part| part.as_string().unwrap_or_default()).collect())
            }
            code => Reply::Code(code.as_i64().unwrap_or(-1)),
        })
    }

    async fn release(&self, order: &str, user: &str, units: &str, free: &str) -> Result<i64, String> {
        let keys = [LIMITED, PLAIN, BUYERS, JOURNAL, USES, COMMON_USES];
        let reply = self.call(&self.release, &keys, &[order, user, units, free, "worker:test", "5"]).await?;
        reply.as_i64().ok_or_else(|| format!("{reply:?}"))
    }

    async fn hash(&self, key: &str) -> Result<BTreeMap<String, String>> {
        Ok(self.ground.typed(&format!("HGETALL {}", self.key(key))).await?.convert()?)
    }

    async fn text(&self, command: &str) -> Result<Option<String>> {
        Ok(self.ground.typed(command).await?.convert()?)
    }
}

/// As the field `rules` has it.
fn text(slots: &str, campaign: &str, rules: &str) -> String {
    let campaign = if campaign.is_empty() { "-" } else { campaign };
    format!("{slots} {campaign};{rules}")
}

#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Code(i64),
    Refused(Vec<String>),
}

fn refused(parts: &[&str]) -> Reply {
    Reply::Refused(parts.iter().map(|part| (*part).to_owned()).collect())
}

#[tokio::test]
async fn a_voucher_with_limits_has_its_stock_under_another_name_and_no_other_script_sells_it() -> Result<()> {
    let sale = Sale::open("", "", "0").await?;
    assert_eq!(sale.text(&format!("GET {PLAIN}")).await?, None);
    assert_eq!(sale.text(&format!("GET {LIMITED}")).await?.as_deref(), Some("40"));
    let admit = Script::new("admit", include_str!("../../../../lua/admit.lua"));
    let many = Script::new("admit_many", include_str!("../../../../lua/admit_many.lua"));
    let keys = [PLAIN, BUYERS, VOUCHER, JOURNAL, STREAM];
    let reply = sale.call(&admit, &keys, &["1", "1", "7", "1", ""]).await;
    assert_eq!(reply.map(|it| it.as_i64()), Ok(Some(12)));
    let reply = sale.call(&many, &keys, &["7", "1", "1", "1", "", "2", "2", "1", ""]).await;
    assert_eq!(reply, Ok(Value::Array(vec![12.into(), 12.into()])));

    assert_eq!(sale.admit("1", "1", "2", &[]).await, Ok(Reply::Code(0)));
    assert_eq!(sale.admit("1", "1", "2", &[]).await, Ok(Reply::Code(6)));
    assert_eq!(sale.admit("2", "1", "1", &[]).await, Ok(Reply::Code(2)));
    // What is known comes first, by the wrong door, too.
    let reply = sale.call(&admit, &keys, &["1", "1", "7", "2", ""]).await;
    assert_eq!(reply.map(|it| it.as_i64()), Ok(Some(6)));
    let release = Script::new("release", include_str!("../../../../lua/release.lua"));
    let by = |order| vec![order, "1", "2", "1", "worker:test"];
    for order in ["1", "9"] {
        let refused = sale.call(&release, &[PLAIN, BUYERS, JOURNAL], &by(order)).await;
        assert!(refused.as_ref().is_err_and(|error| error.contains("LIMITED")), "{refused:?}");
    }
    // Without limits it is sold as before, and what was admitted with them keeps to its script.
    assert!(matches!(sale.limits("").await?, Value::Array(_)));
    assert_eq!(sale.text(&format!("GET {PLAIN}")).await?.as_deref(), Some("38"));
    let reply = sale.call(&admit, &keys, &["3", "3", "7", "1", ""]).await;
    assert_eq!(reply.map(|it| it.as_i64()), Ok(Some(0)));
    let error = sale.admit("4", "4", "1", &[]).await.expect_err("it has none");
    assert!(error.contains("NOLIMITS"), "{error}");
    assert!(sale.call(&release, &[PLAIN, BUYERS, JOURNAL], &by("1")).await.is_err());
    assert_eq!(sale.release("1", "1", "2", "1").await, Ok(1));
    assert_eq!(sale.release("1", "1", "2", "1").await, Ok(0));
    assert_eq!(sale.text(&format!("GET {PLAIN}")).await?.as_deref(), Some("39"));
    assert_eq!(sale.release("3", "3", "1", "1").await, Ok(1), "also what came without");
    Ok(())
}

#[tokio::test]
async fn a_refusal_says_which_limit_what_is_left_and_when_it_opens_and_leaves_no_trace() -> Result<()> {
    let sale = Sale::open(RULES, "5", "1").await?;
    let error = sale.admit("1", "1", "1", &["phone", "a", "address", "x"]).await.expect_err("not told of it");
    assert!(error.contains("CAMPAIGN 5 "), "{error}");
    sale.ground.words(&["HSET", COMMON_LIMITS, "rules", &text("0", "5", COMMON)]).await?;
    let before = sale.ground.everything().await?;
    let error = sale.admit("1", "1", "1", &["phone", "a"]).await.expect_err("no address");
    assert!(error.contains("NOSUBJECT address"), "{error}");
    assert_eq!(
        sale.admit("1", "1", "3", &["phone", "a", "address", "x"]).await,
        Ok(refused(&["9", "each", "", "2", ""]))
    );
    for hostile in ["", "a b", "a\"b", "a\0b", "\u{fc}", "a\n", &"x".repeat(65), &"x".repeat(65_536)] {
        let error =
            sale.admit("1", "1", "1", &["phone", hostile, "address", "x"]).await.expect_err("no value");
        assert!(error.contains("BADARG"), "{error}");
    }
    assert_eq!(sale.ground.everything().await?, before);

    for order in ["1", "2"] {
        assert_eq!(sale.admit(order, order, "2", &["phone", "a", "address", "x"]).await, Ok(Reply::Code(0)));
    }
    let before = sale.ground.everything().await?;
    let reply = sale.admit("3", "3", "1", &["phone", "a", "address", "x"]).await;
    let Ok(Reply::Refused(parts)) = &reply else { anyhow::bail!("{reply:?}") };
    assert_eq!(parts[..4], ["9", "days", "1", "0"]);
    let (opens, day_ms) = (parts[4].parse::<i64>()?, 86_400_000);
    let now = jiff::Timestamp::now().as_millisecond();
    assert!(opens > now && opens <= now + day_ms && (opens + 28_800_000) % day_ms == 0, "{opens}");
    assert_eq!(sale.ground.everything().await?, before);
    // Other phones, the same address: 4 of 7 units a month are used.
    assert_eq!(sale.admit("4", "4", "2", &["phone", "b", "address", "x"]).await, Ok(Reply::Code(0)));
    let reply = sale.admit("5", "5", "2", &["phone", "c", "address", "x"]).await;
    let Ok(Reply::Refused(parts)) = &reply else { anyhow::bail!("{reply:?}") };
    assert_eq!(parts[..4], ["9", "months", "2", "1"]);
    let opens = jiff::Timestamp::from_millisecond(parts[4].parse()?)?;
    let there = opens.to_zoned(jiff::tz::TimeZone::fixed(jiff::tz::offset(-1)));
    let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::fixed(jiff::tz::offset(-1)));
    let next = now.first_of_month()?.start_of_day()?.checked_add(jiff::Span::new().months(1))?;
    assert_eq!(there, next, "the first moment of the next month, an hour west");
    Ok(())
}

#[tokio::test]
async fn thirty_one_orders_of_a_user_have_slots_of_their_own_and_a_freed_one_is_taken_again() -> Result<()> {
    let sale = Sale::open("1 mine user sale 0 100 -", "", "1").await?;
    sale.ground.typed(&format!("SADD {BUYERS} 2")).await?;
    for order in 1..=31 {
        assert_eq!(sale.admit(&order.to_string(), "1", "1", &[]).await, Ok(Reply::Code(0)), "{order}");
    }
    assert_eq!(sale.admit("32", "1", "1", &[]).await, Ok(refused(&["9", "slots", "0", "", ""])));
    assert_eq!(sale.release("17", "1", "1", "1").await, Ok(1));
    assert_eq!(sale.admit("33", "1", "1", &[]).await, Ok(Reply::Code(0)));
    let note = sale.text(&format!("HGET {JOURNAL} 33")).await?.context("a note")?;
    assert!(note.contains("\"slot\":17,"), "{note}");
    // A buyer of before the limit has the first.
    assert_eq!(sale.admit("40", "2", "1", &[]).await, Ok(Reply::Code(0)));
    assert!(sale.text(&format!("HGET {JOURNAL} 40")).await?.context("a note")?.contains("\"slot\":2,"));
    let slots: Vec<i64> = sale.ground.orders().await?.iter().map(|order| order.slot.get()).collect();
    assert_eq!(slots, (1..=31).chain([17, 2]).collect::<Vec<_>>());

    for order in (1..=31).filter(|order| *order != 17) {
        assert_eq!(sale.release(&order.to_string(), "1", "1", "1").await, Ok(1));
    }
    assert_eq!(sale.text(&format!("SISMEMBER {BUYERS} 1")).await?.as_deref(), Some("1"), "one is left");
    assert_eq!(sale.release("33", "1", "1", "1").await, Ok(1));
    assert_eq!(sale.text(&format!("SISMEMBER {BUYERS} 1")).await?.as_deref(), Some("0"));
    assert_eq!(sale.hash(USES).await?.keys().collect::<Vec<_>>(), ["1:2", "u:2"], "nothing of user 1");
    Ok(())
}

#[tokio::test]
async fn a_rate_lets_a_burst_pass_and_then_one_in_each_period() -> Result<()> {
    // One in 300 ms, three in a row.
    let sale = Sale::open("1 fast * rate 300000 3 -", "", "0").await?;
    for order in ["1", "2", "3"] {
        assert_eq!(sale.admit(order, order, "1", &[]).await, Ok(Reply::Code(0)));
    }
    let before = sale.ground.everything().await?;
    let reply = sale.admit("4", "4", "1", &[]).await;
    let Ok(Reply::Refused(parts)) = &reply else { anyhow::bail!("{reply:?}") };
    assert_eq!(parts[..2], ["10", "fast"]);
    let wait_ms: u64 = parts[2].parse()?;
    assert!((1..=300).contains(&wait_ms), "{wait_ms}");
    assert_eq!(sale.ground.everything().await?, before, "a refusal leaves no trace");
    tokio::time::sleep(std::time::Duration::from_millis(wait_ms)).await;
    assert_eq!(sale.admit("4", "4", "1", &[]).await, Ok(Reply::Code(0)), "at the moment that it was told");
    assert_eq!(sale.release("4", "4", "1", "1").await, Ok(1));
    assert!(matches!(sale.admit("5", "5", "1", &[]).await, Ok(Reply::Refused(_))), "never given back");
    // A clock that was far ahead: the burst is the worst.
    sale.ground.typed(&format!("HSET {USES} 1: 99999999999999999")).await?;
    let Ok(Reply::Refused(parts)) = sale.admit("5", "5", "1", &[]).await else { anyhow::bail!("too fast") };
    assert!(parts[2].parse::<u64>()? <= 300, "{parts:?}");
    Ok(())
}

#[tokio::test]
async fn the_gate_finds_the_limits_and_the_campaign_of_a_voucher_by_itself() -> Result<()> {
    let sale = Sale::open("1 phones phone sale 0 2 3", "5", "0").await?;
    sale.ground.words(&["HSET", COMMON_LIMITS, "rules", &text("0", "5", "2 all * sale 0 3 -")]).await?;
    let gate = &sale.ground.gate;
    let wanted = |order: i64, phone: &str| -> Result<Admission> {
        Ok(Admission { subjects: Subjects::none().with("phone", phone)?, ..admission(order, order) })
    };
    assert_eq!(gate.admit(&wanted(1, "a")?).await?, AdmitReply::Admitted);
    assert_eq!(gate.admit(&wanted(1, "a")?).await?, AdmitReply::AdmittedBefore);
    let error = gate.admit(&admission(2, 2)).await.expect_err("it says no phone");
    assert!(matches!(&error, GateError::NoSubject { name, .. } if name == "phone"), "{error}");
    let other = gate.admit(&Admission { user: 9.try_into()?, ..wanted(1, "a")? }).await;
    assert!(matches!(other, Err(GateError::IdTaken { .. })), "{other:?}");

    // Many in one call, of a gate that has not heard of limits either.
    let fresh = Gate::new(sale.ground.pool.clone(), sale.ground.keys.clone(), STREAM);
    let all = [wanted(2, "a")?, wanted(3, "a")?, wanted(4, "b")?, wanted(5, "c")?];
    let replies: Vec<AdmitReply> = fresh.admit_all(&all).await.into_iter().collect::<Result<_, _>>()?;
    let over = |name: &str, orders: u64, units: Option<u64>| {
        let (orders_left, units_left) = (Some(orders), units);
        AdmitReply::OverLimit(LimitReached { name: name.into(), orders_left, units_left, opens_ms: None })
    };
    let expected =
        [AdmitReply::Admitted, over("phones", 0, Some(1)), AdmitReply::Admitted, over("all", 0, None)];
    assert_eq!(replies, expected);
    let released = fresh.release_all(&[release(2, 2), release(4, 4), release(4, 4)]).await;
    let released: Vec<ReleaseReply> = released.into_iter().collect::<Result<_, _>>()?;
    assert_eq!(released, [ReleaseReply::GivenBack, ReleaseReply::GivenBack, ReleaseReply::GivenBackBefore]);
    assert_eq!(sale.hash(COMMON_USES).await?, BTreeMap::from([("2:".to_owned(), "0:1:1".to_owned())]));
    assert_eq!(gate.admit(&wanted(6, "a")?).await?, AdmitReply::Admitted, "there is room again");

    sale.limits("").await?;
    assert_eq!(gate.admit(&admission(7, 7)).await?, AdmitReply::Admitted, "without limits, without a phone");
    assert_eq!(gate.release(&release(6, 6)).await?, ReleaseReply::GivenBack);
    assert_eq!(sale.text(&format!("GET {PLAIN}")).await?, Some((UNITS - 2).to_string()));
    Ok(())
}

/// What there must be, beside the server.
#[derive(Default)]
struct Model {
    /// By rule and subject: window, orders, units.
    uses: HashMap<(u32, String), (i64, i64, i64)>,
    /// Order, user, units, slot, and what it uses.
    live: Vec<Admitted>,
    slots: HashMap<i64, u32>,
    stock: i64,
}

struct Admitted {
    order: i64,
    user: i64,
    units: i64,
    slot: u32,
    uses: Vec<(u32, String, i64)>,
}

struct Rule {
    number: u32,
    subject: &'static str,
    window: &'static str,
    offset_s: i64,
    orders: i64,
    units: i64,
}

fn rules() -> Vec<Rule> {
    let parse = |rule: &'static str| {
        let words: Vec<&'static str> = rule.split(' ').collect();
        let most = |at: usize| words[at].parse().unwrap_or(i64::MAX);
        Rule {
            number: words[0].parse().unwrap(),
            subject: words[2],
            window: words[3],
            offset_s: words[4].parse().unwrap(),
            orders: most(5),
            units: most(6),
        }
    };
    RULES.split(';').chain(COMMON.split(';')).map(parse).collect()
}

fn window_at(rule: &Rule, at_ms: i64) -> i64 {
    let seconds = at_ms / 1000 + rule.offset_s;
    match rule.window {
        "sale" => 0,
        "day" => seconds.div_euclid(86_400),
        "month" => {
            let date = jiff::Timestamp::from_second(seconds).unwrap().to_zoned(jiff::tz::TimeZone::UTC);
            i64::from(date.year()) * 12 + i64::from(date.month()) - 1
        }
        length => (at_ms / 1000).div_euclid(length.parse().unwrap()),
    }
}

impl Model {
    fn used(&self, rule: &Rule, value: &str, at: i64) -> (i64, i64) {
        match self.uses.get(&(rule.number, value.to_owned())) {
            Some((window, orders, units)) if *window == at => (*orders, *units),
            _ => (0, 0),
        }
    }

    /// Whether an order would be admitted at this moment.
    fn has_room(&self, user: i64, units: i64, subjects: &HashMap<&str, String>, at_ms: i64) -> bool {
        let fits = |rule: &Rule| {
            if rule.window == "order" {
                return units <= rule.units;
            }
            let (orders, used) = self.used(rule, &subjects[rule.subject], window_at(rule, at_ms));
            orders < rule.orders && used + units <= rule.units
        };
        self.stock >= units
            && rules().iter().all(fits)
            && self.slots.get(&user).copied() != Some(u32::MAX >> 1)
    }

    fn admit(&mut self, (order, user, units): (i64, i64, i64), subjects: &HashMap<&str, String>, at_ms: i64) {
        let mut uses = Vec::new();
        for rule in rules().iter().filter(|rule| rule.window != "order") {
            let (value, window) = (subjects[rule.subject].clone(), window_at(rule, at_ms));
            let (orders, used) = self.used(rule, &value, window);
            self.uses.insert((rule.number, value.clone()), (window, orders + 1, used + units));
            uses.push((rule.number, value, window));
        }
        let slots = self.slots.entry(user).or_default();
        let slot = (!*slots).trailing_zeros() + 1;
        *slots |= 1 << (slot - 1);
        self.stock -= units;
        self.live.push(Admitted { order, user, units, slot, uses });
    }

    fn release(&mut self, at: usize) -> Admitted {
        let given = self.live.swap_remove(at);
        for (number, value, window) in &given.uses {
            let key = (*number, value.clone());
            if let Some((at, orders, units)) = self.uses.get_mut(&key).filter(|(at, ..)| at == window) {
                let _same = at;
                *orders -= 1;
                *units -= given.units;
                if *orders == 0 && *units == 0 {
                    self.uses.remove(&key);
                }
            }
        }
        let slots = self.slots.get_mut(&given.user).expect("it has one");
        *slots &= !(1 << (given.slot - 1));
        self.stock += given.units;
        given
    }

    /// As the hashes of both have it.
    fn fields(&self) -> BTreeMap<String, String> {
        let uses = self.uses.iter().map(|((rule, value), (window, orders, units))| {
            (format!("{rule}:{value}"), format!("{window}:{orders}:{units}"))
        });
        let slots = self.slots.iter().filter(|(_, slots)| **slots != 0);
        uses.chain(slots.map(|(user, slots)| (format!("u:{user}"), slots.to_string()))).collect()
    }
}

async fn now_ms(sale: &Sale) -> Result<i64> {
    let time: Vec<String> = sale.ground.typed("TIME").await?.convert()?;
    Ok(time[0].parse::<i64>()? * 1000 + time[1].parse::<i64>()? / 1000)
}

#[tokio::test]
async fn whatever_is_admitted_and_released_counters_slots_and_stock_are_what_they_must_be() -> Result<()> {
    let ground = Arc::new(Ground::new().await?);
    let runs = (0..200)
        .map(async |seed| run_model(Arc::clone(&ground), seed).await.with_context(|| format!("seed {seed}")));
    try_join_all(runs).await.map(|_| ())
}

async fn run_model(ground: Arc<Ground>, seed: u64) -> Result<()> {
    let mut random = StdRng::seed_from_u64(seed);
    let sale = Sale::open_on(ground, format!("{seed}:"), (RULES, "5", "1")).await?;
    sale.ground.words(&["HSET", &sale.key(COMMON_LIMITS), "rules", &text("0", "5", COMMON)]).await?;
    let mut model = Model { stock: UNITS, ..Model::default() };
    let mut gone: Vec<(i64, i64)> = Vec::new();
    for order in 1..=60_i64 {
        let (user, units) = (random.random_range(1..=4_i64), random.random_range(1..=3_i64));
        let phone = format!("p{}", random.random_range(0..3));
        let address = format!("a/{}", random.random_range(0..3));
        let subjects = HashMap::from([
            ("user", user.to_string()),
            ("phone", phone.clone()),
            ("address", address.clone()),
            ("*", String::new()),
        ]);
        let before = now_ms(&sale).await?;
        let named = ["phone", phone.as_str(), "address", address.as_str()];
        let (id, by, quantity) = (order.to_string(), user.to_string(), units.to_string());
        let reply = sale.admit(&id, &by, &quantity, &named).await.map_err(anyhow::Error::msg)?;
        if reply == Reply::Code(0) {
            let note = sale.text(&format!("HGET {} {id}", sale.key(JOURNAL))).await?.context("a note")?;
            let at_ms =
                serde_json::from_str::<serde_json::Value>(&note)?["timestamp"].as_i64().context("a time")?;
            ensure!(model.has_room(user, units, &subjects, at_ms), "order {id} is over a limit: {note}");
            model.admit((order, user, units), &subjects, at_ms);
            ensure!(note.contains(&format!("\"slot\":{},", model.live.last().unwrap().slot)), "{note}");
            ensure!(sale.admit(&id, &by, &quantity, &named).await == Ok(Reply::Code(6)), "asked again");
        } else {
            let after = now_ms(&sale).await?;
            let could = [before, after].map(|at_ms| model.has_room(user, units, &subjects, at_ms));
            ensure!(could != [true, true], "order {id} is refused for nothing: {reply:?}");
        }
        if random.random_range(0..3) == 0 && !model.live.is_empty() {
            let Admitted { order, user, units, .. } = model.release(random.random_range(0..model.live.len()));
            let (id, by, units) = (order.to_string(), user.to_string(), units.to_string());
            ensure!(sale.release(&id, &by, &units, "1").await == Ok(1));
            ensure!(sale.release(&id, &by, &units, "1").await == Ok(0), "once");
            gone.push((order, user));
        }
        if random.random_range(0..10) == 0 {
            // So that windows close in the middle.
            tokio::time::sleep(std::time::Duration::from_millis(700)).await;
        }
    }
    for (order, user) in gone {
        ensure!(sale.release(&order.to_string(), &user.to_string(), "1", "1").await == Ok(0), "still once");
    }
    let held: BTreeMap<String, String> =
        sale.hash(USES).await?.into_iter().chain(sale.hash(COMMON_USES).await?).collect();
    assert_eq!(held, model.fields());
    assert_eq!(sale.text(&format!("GET {}", sale.key(LIMITED))).await?, Some(model.stock.to_string()));
    let buyers: Vec<String> =
        sale.ground.typed(&format!("SMEMBERS {}", sale.key(BUYERS))).await?.convert()?;
    assert_eq!(buyers.len(), model.slots.values().filter(|slots| **slots != 0).count());
    // Window by window, whatever was given back since.
    for rule in rules().iter().filter(|rule| rule.window != "order") {
        let mut by_window: HashMap<(&str, i64), (i64, i64)> = HashMap::new();
        for live in &model.live {
            for (_, value, window) in live.uses.iter().filter(|(number, ..)| *number == rule.number) {
                let (orders, units) = by_window.entry((value, *window)).or_default();
                *orders += 1;
                *units += live.units;
            }
        }
        let over = by_window.values().any(|(orders, units)| *orders > rule.orders || *units > rule.units);
        assert!(!over, "rule {}: {by_window:?}", rule.number);
    }
    Ok(())
}
