//! Places one order in the same way as a producer.

use std::num::NonZeroU32;

use anyhow::Context;
use serde::Serialize;
use tidegate_orders::{
    OrderId, OrderIdAllocator, Quantity, RedisStore, Subjects, UserId, VoucherId,
    scripts::{Admission, AdmitReply, ScriptError},
};

use crate::{Stores, connect};

/// The order that a caller wants to place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmitRequest {
    /// The voucher that the user wants.
    pub voucher: VoucherId,
    /// The user who wants the order.
    pub user: UserId,
    /// The id of the order; None: a new one. The same id never makes a second order.
    pub order: Option<OrderId>,
    /// The units that the user wants.
    pub quantity: Quantity,
    /// The facts that the caller states about the order, for limits that count by them.
    pub subjects: Subjects,
    /// The W3C trace context of the caller.
    pub traceparent: Option<String>,
}

/// The answer of the admission, with the order that it is about.
#[derive(Debug, Serialize)]
pub struct AdmitReport {
    /// The id of the order, with which the caller can repeat the request.
    pub order: OrderId,
    /// The user who wants the order.
    pub user: UserId,
    /// The voucher that the user wants.
    pub voucher: VoucherId,
    /// The units that the user wants.
    pub quantity: Quantity,
    /// The outcome of the order as one word for programs.
    pub outcome: &'static str,
    /// The reply of the admission, or its error.
    #[serde(skip)]
    pub reply: Result<AdmitReply, ScriptError>,
}

/// Asks Redis to admit the order. The report holds the order's id and the reply, even if the reply is an error.
///
/// # Errors
/// If Redis does not answer before the order has an id.
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

/// The answer that a caller would get now.
#[derive(Debug, Serialize)]
pub struct PredictedAdmission {
    /// The user who would ask.
    pub user: UserId,
    /// The voucher that the user would ask for.
    pub voucher: VoucherId,
    /// The units that the user would ask for.
    pub quantity: Quantity,
    /// The outcome that the order would have, as one word for programs.
    pub outcome: &'static str,
    /// The limit or rate that would refuse the order.
    pub limit: Option<String>,
    /// The time at which the limit opens again, in Unix milliseconds by the clock of Redis.
    pub opens_ms: Option<i64>,
    /// The milliseconds until the rate admits the next order.
    pub retry_ms: Option<u64>,
    /// The reply that the admission would give, or its error.
    #[serde(skip)]
    pub reply: Result<AdmitReply, ScriptError>,
}

/// Asks Redis for the answer that the order would get, and changes nothing. It does not use [`AdmitRequest::order`].
pub async fn would_admit(redis: &RedisStore, request: &AdmitRequest) -> PredictedAdmission {
    let AdmitRequest { voucher, user, quantity, .. } = *request;
    // The allocator starts at the lowest ids, so no journal holds the last one.
    let order = OrderId::try_from(OrderId::MAX).expect("it is the last id");
    let subjects = request.subjects.clone();
    let asked = Admission { order, user, voucher, quantity, subjects, traceparent: None };
    let reply = redis.admissions().would_admit(&asked).await;
    let (limit, opens_ms, retry_ms) = match &reply {
        Ok(AdmitReply::OverLimit(reached)) => (Some(reached.name.clone()), reached.opens_ms, None),
        Ok(AdmitReply::TooFast(reached)) => (Some(reached.name.clone()), None, Some(reached.retry_ms)),
        _ => (None, None, None),
    };
    PredictedAdmission { user, voucher, quantity, outcome: word(&reply), limit, opens_ms, retry_ms, reply }
}

/// The outcome as one word for programs.
fn word(reply: &Result<AdmitReply, ScriptError>) -> &'static str {
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
        Err(ScriptError::IdTaken { .. }) => "id_taken",
        Err(ScriptError::OtherQuantity { .. }) => "other_quantity",
        Err(ScriptError::Unreachable(_)) => "unknown",
        Err(ScriptError::Unconfirmed { .. }) => "unconfirmed",
        Err(_) => "error",
    }
}
