//! `POST /voucher-order/seckill/{id}`, as the tutorial's own service answers it, so that its front end works against the gate: `success`,
//! `errorMsg`, `data`, always with the status 200, and 401 for whoever is not logged in.

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

/// The path, before the id of the voucher.
pub const PATH: &str = "/voucher-order/seckill/";
const TOKEN: &str = "<token>";
/// The field of a login that has the user's id.
const ID: &str = "id";
const MOST_TOKEN_BYTES: usize = 128;

/// Who is logged in, as the tutorial's login service has written it to Redis: a hash with the user's `id`, under a key that holds the
/// token of the header `authorization`.
#[derive(Clone, Debug)]
pub struct Logins {
    before: String,
    after: String,
}

impl Logins {
    /// By the template of the key, which holds `<token>`.
    pub fn new(template: &str) -> Self {
        let (before, after) = template.split_once(TOKEN).unwrap_or((template, ""));
        Self { before: before.to_owned(), after: after.to_owned() }
    }

    /// The user who sent these headers. None: nobody who is logged in.
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
        let redis = gates.redis_of_logins().ok_or(ProblemKind::RedisAway)?;
        let key = format!("{}{token}{}", self.before, self.after);
        let id: Result<Option<String>, Error> = redis.pool().hget(key, ID).await;
        let id = id.map_err(|error| refusals.not_asked(&error.into()))?;
        Ok(id.and_then(|id| id.parse().ok()))
    }
}

/// What the path asks for.
pub fn voucher(path: &str) -> Option<VoucherId> {
    path.strip_prefix(PATH)?.parse().ok()
}

/// As the tutorial's interceptor answers.
pub fn not_logged_in() -> Answer {
    answer(StatusCode::UNAUTHORIZED, JSON, "")
}

/// As the tutorial's controller answers.
pub fn told(outcome: &Result<Admitted, Problem>) -> Answer {
    let body: Value = match outcome {
        Ok(admitted) => json!({ "success": true, "data": admitted.order.to_string() }),
        Err(problem) => json!({ "success": false, "errorMsg": message(problem.kind) }),
    };
    answer(StatusCode::OK, JSON, body.to_string())
}

/// The first four are the tutorial's own words.
fn message(kind: ProblemKind) -> &'static str {
    use ProblemKind as Kind;
    match kind {
        Kind::SoldOut => "库存不足！",
        Kind::SecondOrder => "不能重复下单！",
        Kind::NotBegun => "秒杀尚未开始！",
        Kind::Over => "秒杀已经结束！",
        Kind::NoSuchSale | Kind::NoSuchPage => "优惠券不存在！",
        Kind::OverLimit => "已达到购买上限！",
        Kind::TooFast | Kind::TooManyAttempts => "操作太频繁，请稍后再试！",
        // The order may be on its way.
        Kind::Unsure => "请稍后查看订单！",
        Kind::Paused | Kind::Busy | Kind::RedisAway => "服务器繁忙，请稍后再试！",
        _ => "服务器异常",
    }
}
