//! Tests of limits in the scripts: no subject gets over a limit, and no use is lost or released twice, whatever the
//! sequence of admissions and releases.

mod clock;
mod hostile;
mod model;

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Context, Result};
use fred::types::Value;
use tidegate_orders::{
    KeyTemplates, RedisStore, Subjects,
    limits::LimitReached,
    scripts::{Admission, AdmitReply, ReleaseReply, ScriptError},
};
use tidegate_stream::Script;

use crate::fixture::{Fixture, STREAM, admission, release};

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
/// The rules of the voucher; below it those of its campaign.
const RULES: &str = "1 each phone order 0 - 2;2 mine user 2 0 2 -;3 days phone day 28800 3 4";
const COMMON: &str = "4 months address month -3600 5 7;5 all * sale 0 30 -";

/// The scripts on a server of their own.
struct Sale {
    fixture: Arc<Fixture>,
    /// The prefix of all names, because many sales share a server.
    prefix: String,
    admit: Script,
    release: Script,
    limit: Script,
}

/// A sale of voucher 7 in which each user may hold two orders.
pub async fn two_orders_for_a_user() -> Result<Arc<Fixture>> {
    Ok(Sale::open("1 mine user sale 0 2 -", "-", "1").await?.fixture)
}

impl Sale {
    async fn open(rules: &str, campaign: &str, slots: &str) -> Result<Self> {
        Self::open_on(Arc::new(Fixture::new().await?), String::new(), (rules, campaign, slots)).await
    }

    async fn open_on(
        fixture: Arc<Fixture>,
        prefix: String,
        (rules, campaign, slots): (&str, &str, &str),
    ) -> Result<Self> {
        let sale = Self {
            fixture,
            prefix,
            admit: Script::new("admit_limited", include_str!("../../../../lua/admit_limited.lua")),
            release: Script::new("release_limited", include_str!("../../../../lua/release_limited.lua")),
            limit: Script::new("limit", include_str!("../../../../lua/limit.lua")),
        };
        sale.fixture.typed(&format!("SET {} {UNITS}", sale.key(PLAIN))).await?;
        sale.limits(&text(slots, campaign, rules)).await?;
        Ok(sale)
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    async fn call(&self, script: &Script, keys: &[&str], args: &[&str]) -> Result<Value, String> {
        let keys = keys.iter().map(|key| self.key(key).into()).collect();
        let args = args.iter().map(|arg| Value::from(*arg)).collect();
        script.call(&self.fixture.pool, keys, args).await.map_err(|error| error.to_string())
    }

    /// Sets the limits; an empty text removes them.
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
        Ok(self.fixture.typed(&format!("HGETALL {}", self.key(key))).await?.convert()?)
    }

    async fn text(&self, command: &str) -> Result<Option<String>> {
        Ok(self.fixture.typed(command).await?.convert()?)
    }
}

/// The text of the field `rules`.
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
    // A known order is found first, also by the script without limits.
    let reply = sale.call(&admit, &keys, &["1", "1", "7", "2", ""]).await;
    assert_eq!(reply.map(|it| it.as_i64()), Ok(Some(6)));
    let release = Script::new("release", include_str!("../../../../lua/release.lua"));
    let by = |order| vec![order, "1", "2", "1", "worker:test"];
    for order in ["1", "9"] {
        let refused = sale.call(&release, &[PLAIN, BUYERS, JOURNAL], &by(order)).await;
        assert!(refused.as_ref().is_err_and(|error| error.contains("LIMITED")), "{refused:?}");
    }
    // Without limits, the voucher is sold as before. Orders that were admitted with limits still need the script for
    // limits.
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
    sale.fixture.words(&["HSET", COMMON_LIMITS, "rules", &text("0", "5", COMMON)]).await?;
    let before = sale.fixture.everything().await?;
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
    assert_eq!(sale.fixture.everything().await?, before);

    for order in ["1", "2"] {
        assert_eq!(sale.admit(order, order, "2", &["phone", "a", "address", "x"]).await, Ok(Reply::Code(0)));
    }
    let before = sale.fixture.everything().await?;
    let reply = sale.admit("3", "3", "1", &["phone", "a", "address", "x"]).await;
    let Ok(Reply::Refused(parts)) = &reply else { anyhow::bail!("{reply:?}") };
    assert_eq!(parts[..4], ["9", "days", "1", "0"]);
    let (opens, day_ms) = (parts[4].parse::<i64>()?, 86_400_000);
    let now = jiff::Timestamp::now().as_millisecond();
    assert!(opens > now && opens <= now + day_ms && (opens + 28_800_000) % day_ms == 0, "{opens}");
    assert_eq!(sale.fixture.everything().await?, before);
    // Other phones with the same address: 4 of 7 units a month are used.
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
    sale.fixture.typed(&format!("SADD {BUYERS} 2")).await?;
    for order in 1..=31 {
        assert_eq!(sale.admit(&order.to_string(), "1", "1", &[]).await, Ok(Reply::Code(0)), "{order}");
    }
    assert_eq!(sale.admit("32", "1", "1", &[]).await, Ok(refused(&["9", "slots", "0", "", ""])));
    assert_eq!(sale.release("17", "1", "1", "1").await, Ok(1));
    assert_eq!(sale.admit("33", "1", "1", &[]).await, Ok(Reply::Code(0)));
    let note = sale.text(&format!("HGET {JOURNAL} 33")).await?.context("a note")?;
    assert!(note.contains("\"slot\":17,"), "{note}");
    // A user who bought before the limit holds the first slot.
    assert_eq!(sale.admit("40", "2", "1", &[]).await, Ok(Reply::Code(0)));
    assert!(sale.text(&format!("HGET {JOURNAL} 40")).await?.context("a note")?.contains("\"slot\":2,"));
    let slots: Vec<i64> = sale.fixture.orders().await?.iter().map(|order| order.slot.get()).collect();
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
async fn a_limit_that_was_set_anew_ten_times_gets_back_what_it_counted() -> Result<()> {
    let rules = "9 old phone sale 0 9 -;10 mine phone sale 0 9 -;123 late user sale 0 9 -";
    let sale = Sale::open(rules, "5", "0").await?;
    let common = text("0", "5", "10 all * sale 0 9 -;11 ours phone sale 0 9 -");
    sale.fixture.words(&["HSET", COMMON_LIMITS, "rules", &common]).await?;
    for order in ["1", "2"] {
        assert_eq!(sale.admit(order, order, "2", &["phone", "a"]).await, Ok(Reply::Code(0)));
    }
    let fields = |text: &[(&str, &str)]| -> BTreeMap<String, String> {
        text.iter().map(|(field, value)| ((*field).to_owned(), (*value).to_owned())).collect()
    };
    assert_eq!(sale.release("1", "1", "2", "1").await, Ok(1));
    assert_eq!(sale.hash(USES).await?, fields(&[("9:a", "0:1:2"), ("10:a", "0:1:2"), ("123:2", "0:1:2")]));
    assert_eq!(sale.hash(COMMON_USES).await?, fields(&[("10:", "0:1:2"), ("11:a", "0:1:2")]));
    assert_eq!(sale.release("2", "2", "2", "1").await, Ok(1));
    assert!(sale.hash(USES).await?.is_empty() && sale.hash(COMMON_USES).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_rate_lets_a_burst_pass_and_then_one_in_each_period() -> Result<()> {
    // One order in 300 ms, and three in a row.
    let sale = Sale::open("1 fast * rate 300000 3 -", "", "0").await?;
    for order in ["1", "2", "3"] {
        assert_eq!(sale.admit(order, order, "1", &[]).await, Ok(Reply::Code(0)));
    }
    let before = sale.fixture.everything().await?;
    let reply = sale.admit("4", "4", "1", &[]).await;
    let Ok(Reply::Refused(parts)) = &reply else { anyhow::bail!("{reply:?}") };
    assert_eq!(parts[..2], ["10", "fast"]);
    let wait_ms: u64 = parts[2].parse()?;
    assert!((1..=300).contains(&wait_ms), "{wait_ms}");
    assert_eq!(sale.fixture.everything().await?, before, "a refusal leaves no trace");
    tokio::time::sleep(std::time::Duration::from_millis(wait_ms)).await;
    assert_eq!(sale.admit("4", "4", "1", &[]).await, Ok(Reply::Code(0)), "at the moment that it was told");
    assert_eq!(sale.release("4", "4", "1", "1").await, Ok(1));
    assert!(matches!(sale.admit("5", "5", "1", &[]).await, Ok(Reply::Refused(_))), "never released");
    Ok(())
}

#[tokio::test]
async fn the_gate_finds_the_limits_and_the_campaign_of_a_voucher_by_itself() -> Result<()> {
    let sale = Sale::open("1 phones phone sale 0 2 3", "5", "0").await?;
    sale.fixture.words(&["HSET", COMMON_LIMITS, "rules", &text("0", "5", "2 all * sale 0 3 -")]).await?;
    let store = &sale.fixture.store;
    let wanted = |order: i64, phone: &str| -> Result<Admission> {
        Ok(Admission { subjects: Subjects::none().with("phone", phone)?, ..admission(order, order) })
    };
    assert_eq!(store.admissions().admit(&wanted(1, "a")?).await?, AdmitReply::Admitted);
    assert_eq!(store.admissions().admit(&wanted(1, "a")?).await?, AdmitReply::AdmittedBefore);
    let error = store.admissions().admit(&admission(2, 2)).await.expect_err("it says no phone");
    assert!(matches!(&error, ScriptError::NoSubject { name, .. } if name == "phone"), "{error}");
    let other = store.admissions().admit(&Admission { user: 9.try_into()?, ..wanted(1, "a")? }).await;
    assert!(matches!(other, Err(ScriptError::IdTaken { .. })), "{other:?}");

    // Many orders in one call, from a gate that does not know of the limits.
    let fresh = RedisStore::with_default_names(sale.fixture.pool.clone(), KeyTemplates::default());
    let all = [wanted(2, "a")?, wanted(3, "a")?, wanted(4, "b")?, wanted(5, "c")?];
    let replies: Vec<AdmitReply> =
        fresh.admissions().admit_all(&all).await.into_iter().collect::<Result<_, _>>()?;
    let over = |name: &str, orders: u64, units: Option<u64>| {
        let (orders_left, units_left) = (Some(orders), units);
        AdmitReply::OverLimit(LimitReached { name: name.into(), orders_left, units_left, opens_ms: None })
    };
    let expected =
        [AdmitReply::Admitted, over("phones", 0, Some(1)), AdmitReply::Admitted, over("all", 0, None)];
    assert_eq!(replies, expected);
    let released = fresh.releases().release_all(&[release(2, 2), release(4, 4), release(4, 4)]).await;
    let released: Vec<ReleaseReply> = released.into_iter().collect::<Result<_, _>>()?;
    assert_eq!(released, [ReleaseReply::Released, ReleaseReply::Released, ReleaseReply::ReleasedBefore]);
    assert_eq!(sale.hash(COMMON_USES).await?, BTreeMap::from([("2:".to_owned(), "0:1:1".to_owned())]));
    assert_eq!(
        store.admissions().admit(&wanted(6, "a")?).await?,
        AdmitReply::Admitted,
        "there is room again"
    );

    sale.limits("").await?;
    assert_eq!(
        store.admissions().admit(&admission(7, 7)).await?,
        AdmitReply::Admitted,
        "without limits, without a phone"
    );
    assert_eq!(store.releases().release(&release(6, 6)).await?, ReleaseReply::Released);
    assert_eq!(sale.text(&format!("GET {PLAIN}")).await?, Some((UNITS - 2).to_string()));
    Ok(())
}
