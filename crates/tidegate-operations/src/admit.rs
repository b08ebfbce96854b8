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
    /// The id of the order; None: the command allocates a new id. The same id never makes a second order.
    pub order: Option<OrderId>,
    /// The number of units that the user wants.
    pub quantity: Quantity,
    /// The subjects of the order (a person, a device, an address) by which limits count orders.
    pub subjects: Subjects,
    /// The W3C trace context of the caller, which is stored in the entry; None: the caller gave no trace context.
    pub traceparent: Option<String>,
}

/// The reply of Redis to a request for an order, together with the order.
#[derive(Debug, Serialize)]
pub struct AdmitReport {
    /// The id of the order, with which the caller can repeat the request.
    pub order: OrderId,
    /// The user who wants the order.
    pub user: UserId,
    /// The voucher that the user wants.
    pub voucher: VoucherId,
    /// The number of units that the user wants.
    pub quantity: Quantity,
    /// The outcome of the request in one word, for programs.
    pub outcome: &'static str,
    /// The reply of the admission script, or the error of the call.
    #[serde(skip)]
    pub reply: Result<AdmitReply, ScriptError>,
}

/// Asks Redis to admit the order. The report holds the order id and the reply, even if the reply is an error.
///
/// # Errors
/// If Redis does not answer before the order has an id.
pub async fn admit(stores: &Stores, request: &AdmitRequest) -> anyhow::Result<AdmitReport> {
    let (settings, redis) = (stores.settings(), stores.redis().await?);
    let order = match request.order {
        Some(order) => order,
        None => {
            let ids = OrderIdAllocator::new(redis.clone(), NonZeroU32::MIN);
            ids.next().await.context("Failed to get a new order id from Redis")?
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

/// The reply that a request for an order would get now, without placing the order.
#[derive(Debug, Serialize)]
pub struct PredictedAdmission {
    /// The user who would place the order.
    pub user: UserId,
    /// The voucher that the user would order.
    pub voucher: VoucherId,
    /// The number of units that the user would order.
    pub quantity: Quantity,
    /// The predicted outcome of the request in one word, for programs.
    pub outcome: &'static str,
    /// The name of the limit or rate that would refuse the order; None: no limit would refuse the order.
    pub limit: Option<String>,
    /// The time when the limit admits orders again, in Unix milliseconds by the clock of Redis; None: this time is
    /// not known.
    pub opens_ms: Option<i64>,
    /// The number of milliseconds until the rate admits the next order; None: no rate refuses the order.
    pub retry_ms: Option<u64>,
    /// The predicted reply of the admission script, or the error of the call.
    #[serde(skip)]
    pub reply: Result<AdmitReply, ScriptError>,
}

/// The number of order ids with which a check is tried.
const IDS_TRIED: i64 = 16;

/// Whether the journal already holds an order with the id of this request.
fn is_about_known_order(reply: &Result<AdmitReply, ScriptError>) -> bool {
    matches!(
        reply,
        Ok(AdmitReply::AdmittedBefore | AdmitReply::Released)
            | Err(ScriptError::IdTaken { .. } | ScriptError::OtherQuantity { .. })
    )
}

/// Asks Redis for the reply that the order would get, and changes nothing. This function ignores
/// [`AdmitRequest::order`].
pub async fn would_admit(redis: &RedisStore, request: &AdmitRequest) -> PredictedAdmission {
    let AdmitRequest { voucher, user, quantity, .. } = *request;
    let subjects = request.subjects.clone();
    let order = OrderId::try_from(OrderId::MAX).expect("it is the last id");
    let mut asked = Admission { order, user, voucher, quantity, subjects, traceparent: None };
    let mut reply = redis.admissions().would_admit(&asked).await;
    // The allocator starts at the lowest ids, so the journal holds one of the last ids only if a caller chose it.
    while is_about_known_order(&reply)
        && let Ok(order) = OrderId::try_from(asked.order.get() - 1)
        && order.get() > OrderId::MAX - IDS_TRIED
    {
        asked.order = order;
        reply = redis.admissions().would_admit(&asked).await;
    }
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
