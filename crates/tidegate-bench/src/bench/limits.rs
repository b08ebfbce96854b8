//! The cost of limits for an admission: bare scripts over plain pipelined connections, in turn, as in
//! [`super::admission`].

use anyhow::Result;

use super::{
    admission::{ADMIT, KEYS, open_sale, pipelined, queue_admit},
    fixture::Fixture,
    meter::RedisReading,
    orders::{NewOrder, Orders},
    resp::{Reply, Resp},
    results::{Calls, Rate, limits::LimitsResults},
};

const ADMIT_LIMITED: &str = include_str!("../../../../lua/admit_limited.lua");
const LIMITED: &str = "seckill:limited:1";
const LIMITS: &str = "seckill:limits:voucher:1";
const USES: &str = "seckill:uses:voucher:1";
/// Three limits, as many as a careful seller has: by day, by month, by order. Each caller brings a new phone and
/// address.
const THREE: &str = "0 -;1 phones phone day 28800 2 4;2 months address month 0 - 5;3 each user order 0 - 2";
/// The same limits, but the first one refuses everyone.
const FIRST_IS_FULL: &str =
    "0 -;1 phones phone day 28800 0 4;2 months address month 0 - 5;3 each user order 0 - 2";

#[derive(Clone, Copy, Debug)]
enum Case {
    Without,
    Three,
    Refused,
    SoldOut,
}

/// Measures all cases `rounds` times in turn.
pub async fn measure(fixture: &mut Fixture, calls: usize, rounds: usize) -> Result<LimitsResults> {
    let mut found = [const { Vec::new() }; 4];
    for _ in 0..rounds {
        for (at, case) in [Case::Without, Case::Three, Case::Refused, Case::SoldOut].into_iter().enumerate() {
            found[at].push(once(fixture, case, calls).await?);
        }
    }
    let [without, three, refused_by_limit, sold_out] = found.map(conclude);
    Ok(LimitsResults { without, three, refused_by_limit, sold_out })
}

fn conclude(found: Vec<(f64, f64)>) -> Calls {
    let (per_s, redis_cpu_us) = found.into_iter().unzip();
    Calls { per_s: Rate::of(per_s), redis_cpu_us: Rate::of(redis_cpu_us) }
}

/// Returns the calls per second, and Redis' CPU time of a call in microseconds.
async fn once(fixture: &mut Fixture, case: Case, calls: usize) -> Result<(f64, f64)> {
    open_sale(fixture).await?;
    match case {
        Case::Without => {}
        Case::SoldOut => _ = fixture.redis.call(&["SET", KEYS[0], "0"]).await?,
        Case::Three | Case::Refused => {
            let rules = if matches!(case, Case::Three) { THREE } else { FIRST_IS_FULL };
            fixture.redis.call(&["RENAME", KEYS[0], LIMITED]).await?;
            fixture.redis.call(&["HSET", LIMITS, "rules", rules, "since", "1"]).await?;
            fixture.redis.call(&["HSET", KEYS[3], "#limited", "{}"]).await?;
        }
    }
    let warm_up = fixture.numbers.take(calls.min(1_000), 1);
    call_all(fixture, case, &warm_up).await?;
    let orders = fixture.numbers.take(calls, 1);
    let before = RedisReading::take(&mut fixture.redis).await?;
    let took = call_all(fixture, case, &orders).await?;
    let after = RedisReading::take(&mut fixture.redis).await?;
    Ok((calls as f64 / took.as_secs_f64(), (after.cpu_s - before.cpu_s) * 1e6 / calls as f64))
}

async fn call_all(fixture: &Fixture, case: Case, orders: &Orders) -> Result<std::time::Duration> {
    let is_wanted = move |reply: &Reply| match case {
        Case::Without | Case::Three => *reply == Reply::Int(0),
        Case::SoldOut => *reply == Reply::Int(1),
        Case::Refused => reply.items().first() == Some(&Reply::Int(9)),
    };
    match case {
        Case::Without | Case::SoldOut => pipelined(fixture, ADMIT, is_wanted, orders, queue_admit).await,
        Case::Three | Case::Refused => {
            pipelined(fixture, ADMIT_LIMITED, is_wanted, orders, queue_limited).await
        }
    }
}

fn queue_limited(redis: &mut Resp, sha: &str, order: NewOrder) {
    let [id, user, voucher] = [order.id, order.user, order.voucher].map(|number| number.to_string());
    let (phone, address) = (format!("{:x}", order.id.wrapping_mul(7)), format!("a{:x}", order.id));
    let [_, buyers, sale, journal, stream] = KEYS;
    redis.queue(&[
        "EVALSHA", sha, "7", LIMITED, buyers, sale, journal, stream, LIMITS, USES, &id, &user, &voucher, "1",
        "", "phone", &phone, "address", &address,
    ]);
}
