//! Places one order, as a producer does.

use std::num::NonZeroU32;

use anyhow::Context;
use serde::Serialize;
use tidegate_orders::{
    OrderId, OrderIdAllocator, Quantity, RedisStore, Subjects, UserId, VoucherId,
    gate::{Admission, AdmitReply, GateError},
};

use crate::{Stores, connect};

/// The order to place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmitRequest {
    /// What is wanted.
    pub voucher: VoucherId,
    /// Who wants it.
    pub user: UserId,
    /// Its id; None: a new one. The same id again never makes a second order.
    pub order: Option<OrderId>,
    /// How many units.
    pub quantity: Quantity,
    /// What the caller says of itself, for limits that count by it.
    pub subjects: Subjects,
    /// W3C trace context of whoever asks.
    pub traceparent: Option<String>,
}

/// What became of the order.
#[derive(Debug, Serialize)]
pub struct AdmitReport {
    /// Its id, with which the same can be asked again.
    pub order: OrderId,
    /// Who wants it.
    pub user: UserId,
    /// What is wanted.
    pub voucher: VoucherId,
    /// How many units.
    pub quantity: Quantity,
    /// What became of it, in a word.
    pub outcome: &'static str,
    /// What the gate replied.
    #[serde(skip)]
    pub reply: Result<AdmitReply, GateError>,
}

/// Asks the gate. What the gate answers, even with an error, is in the report, with the order's id.
///
/// # Errors
/// When Redis does not answer before the order has an id.
pub async fn admit(stores: &Stores, request: &AdmitRequest) -> anyhow::Result<AdmitReport> {
    let (settings, redis) = (stores.settings(), stores.redis().await?);
    let order = match request.order {
        Some(order) => order,
        None => {
            let ids = OrderIdAllocator::new(redis.clone(), NonZeroU32::MIN);
            ids.next().await.context("Failed to get an order id")?
        }
    };
    let redis = match settings.confirmation {
        Some(confirmation) => {
            let connection = connect::redis_in_order(settings).await?.pool().clone();
            &redis.clone().confirmed(confirmation, vec![connection])
        }
        None => redis,
    };
    let AdmitRequest { voucher, user, quantity, .. } = *request;
    let (subjects, traceparent) = (request.subjects.clone(), request.traceparent.clone());
    let reply =
        redis.admissions().admit(&Admission { order, user, voucher, quantity, subjects, traceparent }).await;
    Ok(AdmitReport { order, user, voucher, quantity, outcome: word(&reply), reply })
}

/// What a caller would be told now.
#[derive(Debug, Serialize)]
pub struct WouldAdmit {
    /// Who would ask.
    pub user: UserId,
    /// For what.
    pub voucher: VoucherId,
    /// For how many units.
    pub quantity: Quantity,
    /// What would become of the order, in a word.
    pub outcome: &'static str,
    /// The limit or rate that refuses.
    pub limit: Option<String>,
    /// When it is open again, in Unix milliseconds by the clock of Redis.
    pub opens_ms: Option<i64>,
    /// After so many milliseconds a rate lets the next in.
    pub retry_ms: Option<u64>,
    /// What the gate would reply.
    #[serde(skip)]
    pub reply: Result<AdmitReply, GateError>,
}

/// Asks what the gate would answer, and changes nothing. [`AdmitRequest::order`] is not used.
pub async fn would_admit(redis: &RedisStore, request: &AdmitRequest) -> WouldAdmit {
    let AdmitRequest { voucher, user, quantity, .. } = *request;
    // Ids are handed out from below: no journal holds the last one.
    let order = OrderId::try_from(OrderId::MAX).expect("it is the last id");
    let subjects = request.subjects.clone();
    let asked = Admission { order, user, voucher, quantity, subjects, traceparent: None };
    let reply = redis.admissions().would_admit(&asked).await;
    let (limit, opens_ms, retry_ms) = match &reply {
        Ok(AdmitReply::OverLimit(reached)) => (Some(reached.name.clone()), reached.opens_ms, None),
        Ok(AdmitReply::TooFast(reached)) => (Some(reached.name.clone()), None, Some(reached.retry_ms)),
        _ => (None, None, None),
    };
    WouldAdmit { user, voucher, quantity, outcome: word(&reply), limit, opens_ms, retry_ms, reply }
}

/// A word for programs.
fn word(reply: &Result<AdmitReply, GateError>) -> &'static str {
    match reply {
        Ok(AdmitReply::Admitted) => "admitted",
        Ok(AdmitReply::AdmittedBefore) => "admitted_before",
        Ok(AdmitReply::SoldOut) => "sold_out",
        Ok(AdmitReply::UserHasOrder) => "user_has_order",
        Ok(AdmitReply::NoStock) => "no_stock",
        Ok(AdmitReply::NotBegun) => "not_begun",
        Ok(AdmitReply::Over) => "over",
        Ok(AdmitReply::Paused) => "paused",
        Ok(AdmitReply::Busy) => "busy",
        Ok(AdmitReply::Released) => "released",
        Ok(AdmitReply::OverLimit(_)) => "over_limit",
        Ok(AdmitReply::TooFast(_)) => "too_fast",
        Err(GateError::IdTaken { .. }) => "id_taken",
        Err(GateError::OtherQuantity { .. }) => "other_quantity",
        Err(GateError::Unreachable(_)) => "unknown",
        Err(GateError::Unconfirmed { .. }) => "unconfirmed",
        Err(_) => "error",
    }
}
