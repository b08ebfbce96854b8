//! `POST /voucher-order/seckill/{id}`, answered as the tutorial's own service does, so that its front end works with
//! the gate. Answers have the members `success`, `errorMsg` and `data`, and always the status 200; a client that is
//! not logged in gets 401.

use fred::{error::Error, interfaces::HashesInterface};
use hyper::{
    HeaderMap, StatusCode,
    header::{AUTHORIZATION, HeaderValue},
};
use serde_json::{Value, json};
use tidegate_orders::{UserId, VoucherId};

use super::{
    gates::Gates,
    problem::{Admitted, Problem, ProblemKind},
    refusals::Refusals,
};
use crate::answer::{Answer, JSON, answer};

/// The URL path for ordering a voucher as in the tutorial shop hm-dianping, up to the voucher id.
pub const PATH: &str = "/voucher-order/seckill/";
const TOKEN: &str = "<token>";
/// The field of a login that holds the user's id.
const ID: &str = "id";
const MOST_TOKEN_BYTES: usize = 128;

/// The logins that the login service of the tutorial shop hm-dianping writes to Redis. A login is a hash with the
/// user's `id`; its key contains the token of the header `authorization`.
#[derive(Clone, Debug)]
pub struct Logins {
    before: String,
    after: String,
}

impl Logins {
    /// Creates the lookup of logins from the template of the Redis key. The template contains `<token>`.
    pub fn new(template: &str) -> Self {
        let (before, after) = template.split_once(TOKEN).unwrap_or((template, ""));
        Self { before: before.to_owned(), after: after.to_owned() }
    }

    /// Finds the user who is logged in with the token in these headers. None: the user is not logged in.
    pub async fn user(
        &self,
        gates: &Gates,
        headers: &HeaderMap,
        refusals: &Refusals,
    ) -> Result<Option<UserId>, Problem> {
        let token = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
        let is_token =
            (1..=MOST_TOKEN_BYTES).contains(&token.len()) && token.iter().all(u8::is_ascii_graphic);
        let Some(token) = std::str::from_utf8(token).ok().filter(|_| is_token) else { return Ok(None) };
        // The logins are in the Redis of the first partition.
        let redis = gates.redis_of_all().into_iter().next().flatten().ok_or(ProblemKind::RedisAway)?;
        let key = format!("{}{token}{}", self.before, self.after);
        let id: Result<Option<String>, Error> = redis.pool().hget(key, ID).await;
        let id = id.map_err(|error| refusals.not_asked(&error.into()))?;
        Ok(id.and_then(|id| id.parse().ok()))
    }
}

/// The voucher whose id a path contains. None: the path is invalid.
pub fn voucher(path: &str) -> Option<VoucherId> {
    path.strip_prefix(PATH)?.parse().ok()
}

/// The answer to a user who is not logged in, in the form that the interceptor of the tutorial shop hm-dianping uses.
pub fn not_logged_in() -> Answer {
    answer(StatusCode::UNAUTHORIZED, JSON, "")
}

/// The answer to a request for an order, in the form that the controller of the tutorial shop hm-dianping uses.
pub fn told(outcome: &Result<Admitted, Problem>) -> Answer {
    let body: Value = match outcome {
        Ok(admitted) => json!({ "success": true, "data": admitted.order.to_string() }),
        Err(problem) => json!({ "success": false, "errorMsg": message(problem.kind) }),
    };
    answer(StatusCode::OK, JSON, body.to_string())
}

/// The message for a kind of problem. The first four messages are the tutorial's own.
fn message(kind: ProblemKind) -> &'static str {
    use ProblemKind as Kind;
    match kind {
        Kind::SoldOut | Kind::TooFewLeft => "库存不足！",
        Kind::SecondOrder => "不能重复下单！",
        Kind::NotBegun => "秒杀尚未开始！",
        Kind::Over => "秒杀已经结束！",
        Kind::NoSuchSale | Kind::NoSuchPage => "优惠券不存在！",
        Kind::OverLimit => "已达到购买上限！",
        Kind::TooFast | Kind::TooManyAttempts => "操作太频繁，请稍后再试！",
        // The order may be admitted, and its row may follow.
        Kind::Unsure => "请稍后查看订单！",
        Kind::Paused | Kind::Busy | Kind::RedisAway => "服务器繁忙，请稍后再试！",
        _ => "服务器异常",
    }
}
