//! A request for an order, from what a caller wants to what became of it.

use std::sync::Arc;

use tidegate_operations::text::error_chain;
use tidegate_orders::{
    OrderId, VoucherId,
    gate::{Admission, AdmitReply, GateError, IdempotencyKey, KeyReply, SoldOut},
};

use super::{
    gates::{Gates, NoVoucher, PartitionGate},
    problem::{Outcome, Problem, ProblemKind, outcome},
    request::{Item, Wanted},
};

/// Beside what is wanted.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    /// The caller's own name of the request.
    pub key: Option<IdempotencyKey>,
    /// W3C trace context.
    pub traceparent: Option<String>,
}

/// An order that is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    pub order: OrderId,
    /// `admitted`, or `admitted_before`.
    pub word: &'static str,
}

/// Asks Redis for orders.
#[derive(Debug)]
pub struct Ordering {
    gates: Arc<Gates>,
    sold_out: Arc<SoldOut>,
}

impl Ordering {
    pub fn new(gates: Arc<Gates>, sold_out: Arc<SoldOut>) -> Self {
        Self { gates, sold_out }
    }

    /// Asks for an order. Who names an order or a key asks again, perhaps: only Redis knows what was decided then.
    pub async fn order(&self, wanted: Wanted, attributes: Attributes) -> Result<Admitted, Problem> {
        let Wanted { item, user, quantity, subjects, order } = wanted;
        let Attributes { key, traceparent } = attributes;
        if order.is_some() && key.is_some() {
            return Err(ProblemKind::BadInput.because("say orderId or Idempotency-Key, not both"));
        }
        let voucher = self.voucher(item).await?;
        if order.is_none() && key.is_none() && self.sold_out.knows(voucher, quantity) {
            return Err(ProblemKind::SoldOut.into());
        }
        let gate = self.gates.of_voucher(voucher).ok_or(ProblemKind::RedisAway)?;
        let order = match order {
            Some(order) => order,
            None => next_id(gate).await?,
        };
        let admission = Admission { order, user, voucher, quantity, subjects, traceparent };
        match key {
            None => told(gate.gate.admit(&admission).await, &admission),
            Some(key) => order_by_key(gate, &key, admission).await,
        }
    }

    async fn voucher(&self, item: Item) -> Result<VoucherId, Problem> {
        let (campaign, region) = match item {
            Item::Voucher(voucher) => return Ok(voucher),
            Item::Region { campaign, region } => (campaign, region),
        };
        self.gates.voucher_of(campaign, &region).await.map_err(|why| match why {
            NoVoucher::RedisAway => ProblemKind::RedisAway.into(),
            NoVoucher::Unknown => Problem::from(ProblemKind::NoSuchRegion)
                .with("campaignId", campaign.to_string())
                .with("region", region),
        })
    }
}

async fn next_id(gate: &PartitionGate) -> Result<OrderId, Problem> {
    gate.ids.next().await.map_err(|error| {
        tracing::debug!(%error, "no order id");
        ProblemKind::RedisAway.into()
    })
}

/// The key is known before the order is asked for: whoever asks again asks for the same order, at whichever gate.
async fn order_by_key(
    gate: &PartitionGate,
    key: &IdempotencyKey,
    mut admission: Admission,
) -> Result<Admitted, Problem> {
    let was_known = match gate.gate.remember_key(key, &admission).await {
        Ok(KeyReply::New) => false,
        Ok(KeyReply::Known(order)) => {
            admission.order = order;
            true
        }
        Ok(KeyReply::OtherRequest) => return Err(ProblemKind::OtherRequest.into()),
        Err(error) => {
            tracing::debug!(%error, "a key was not remembered");
            // No order was asked for.
            return Err(match error {
                GateError::Unreachable(_) => ProblemKind::RedisAway.into(),
                _ => ProblemKind::RedisRefused.into(),
            });
        }
    };
    let reply = gate.gate.admit(&admission).await;
    if is_time_to_settle(&reply, was_known)
        && let Err(error) = gate.gate.keep_key(key, &admission).await
    {
        // Then it is remembered for a day: a little memory, and nothing else.
        tracing::debug!(%error, "a key of a refused order stays");
    }
    told(reply, &admission)
}

/// A refused order's key is forgotten soon; one that was refused first and admitted later is remembered again.
fn is_time_to_settle(reply: &Result<AdmitReply, GateError>, was_known: bool) -> bool {
    match reply {
        Ok(reply) => was_known || !reply.is_admitted(),
        Err(GateError::NoSubject { .. } | GateError::IdTaken { .. } | GateError::OtherQuantity { .. }) => {
            true
        }
        // Nobody knows, or Redis has other worries.
        Err(_) => false,
    }
}

fn told(reply: Result<AdmitReply, GateError>, admission: &Admission) -> Result<Admitted, Problem> {
    let Admission { order, voucher, .. } = *admission;
    if let Err(error @ (GateError::Refused(_) | GateError::Unexpected { .. })) = &reply {
        let error = anyhow::anyhow!("{error}");
        tracing::error!(%order, %voucher, error = error_chain(&error), "Redis refused an order");
    }
    match outcome(reply, order) {
        Outcome::Admitted(word) => Ok(Admitted { order, word }),
        Outcome::Problem(problem) => Err(problem),
    }
}
