//! The processing of a request for an order, from the parsed body to the result.

use std::sync::Arc;

use tidegate_operations::admit::{AdmitRequest, would_admit};
use tidegate_orders::{
    OrderId, Quantity, VoucherId,
    order_id::OrderIdError,
    sale::read_stock,
    scripts::{Admission, AdmitReply, IdempotencyKey, ScriptError, SoldOut},
};
use tokio::time::timeout;

use super::{
    forgotten_orders::LostOrderCheck,
    gates::{Gates, NoVoucher, PartitionGate},
    problem::{AdmissionAttempt, Admitted, Problem, ProblemKind, outcome, sold_out},
    refusals::Refusals,
    request::{Item, Wanted},
};

/// The idempotency key and the trace context in the headers of a request.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    /// The idempotency key that the client sent. None: the request has no key.
    pub key: Option<IdempotencyKey>,
    /// The W3C trace context from the header `traceparent` of the request.
    pub traceparent: Option<String>,
}

/// The part of the gate that sends orders to Redis.
#[derive(Debug)]
pub struct Ordering {
    gates: Arc<Gates>,
    sold_out: Arc<SoldOut>,
    refusals: Refusals,
}

impl Ordering {
    pub fn new(gates: Arc<Gates>, sold_out: Arc<SoldOut>, refusals: Refusals) -> Self {
        Self { gates, sold_out, refusals }
    }

    /// Asks Redis to admit an order for a caller. A request with an order id or an idempotency key may repeat an
    /// earlier request, so the gate asks Redis even if the voucher is known to be sold out.
    pub async fn order(&self, wanted: Wanted, attributes: Attributes) -> Result<Admitted, Problem> {
        let Wanted { item, user, quantity, subjects, order } = wanted;
        let Attributes { key, traceparent } = attributes;
        if order.is_some() && key.is_some() {
            return Err(
                ProblemKind::BadInput.because("send either `orderId` or an Idempotency-Key, not both")
            );
        }
        let voucher = self.voucher(item).await?;
        if order.is_none()
            && key.is_none()
            && let Some(left) = self.sold_out.left(voucher, quantity)
        {
            return Err(sold_out(left));
        }
        let gate = self.gates.of_voucher(voucher).ok_or(ProblemKind::RedisAway)?;
        let order = match order {
            Some(order) => order,
            None => self.next_id(gate).await?,
        };
        let admission = Admission { order, user, voucher, quantity, subjects, traceparent };
        match key {
            None => self.told(gate, gate.redis.admissions().admit(&admission).await, &admission).await,
            Some(key) => self.order_by_key(gate, key, admission).await,
        }
    }

    /// Asks Redis what an order would get now, and changes nothing. A check has no order id and no key.
    pub async fn check(&self, wanted: Wanted) -> Result<(), Problem> {
        let Wanted { item, user, quantity, subjects, .. } = wanted;
        let voucher = self.voucher(item).await?;
        let gate = self.gates.of_voucher(voucher).ok_or(ProblemKind::RedisAway)?;
        let request = AdmitRequest { voucher, user, order: None, quantity, subjects, traceparent: None };
        let reply = would_admit(&gate.redis, &request).await.reply;
        if let Err(error @ ScriptError::Unreachable(_)) = &reply {
            // A check that got no answer has changed nothing.
            return Err(self.refusals.not_asked(error));
        }
        let AdmitRequest { subjects, traceparent, .. } = request;
        let order = OrderId::try_from(OrderId::MAX).map_err(|_| ProblemKind::RedisRefused)?;
        let admission = Admission { order, user, voucher, quantity, subjects, traceparent };
        self.told(gate, reply, &admission).await.map(drop)
    }

    async fn voucher(&self, item: Item) -> Result<VoucherId, Problem> {
        let (campaign, region) = match item {
            Item::Voucher(voucher) => return Ok(voucher),
            Item::Region { campaign, region } => (campaign, region),
        };
        self.gates.voucher_of(campaign, &region).await.map_err(|why| match why {
            NoVoucher::Away => ProblemKind::RedisAway.into(),
            NoVoucher::Failed(error) => self.refusals.not_asked(&error),
            NoVoucher::Unknown => Problem::from(ProblemKind::NoSuchRegion)
                .with("campaignId", campaign.to_string())
                .with("region", region),
        })
    }

    /// Takes the next order id. Requests wait for ids in turn, none of them longer than a command may take.
    async fn next_id(&self, gate: &PartitionGate) -> Result<OrderId, Problem> {
        match timeout(gate.command_within, gate.ids.next()).await {
            Ok(Ok(id)) => Ok(id),
            Ok(Err(OrderIdError::Redis(error))) => Err(self.refusals.not_asked(&error.into())),
            Ok(Err(error)) => {
                self.refusals.no_ids(&error);
                Err(ProblemKind::RedisRefused.into())
            }
            Err(_) => Err(ProblemKind::RedisAway.into()),
        }
    }

    /// Requests an order with a key. A repetition with the same key gets the same order, at every gate.
    async fn order_by_key(
        &self,
        gate: &PartitionGate,
        key: IdempotencyKey,
        admission: Admission,
    ) -> Result<Admitted, Problem> {
        if gate.last_reconnect.is_recent()
            && let Some(admitted) = self.forgotten(gate, &admission).await
        {
            return Ok(admitted);
        }
        let (admission, reply) = match gate.redis.admissions().admit_by_key(&key, &admission).await {
            Ok((order, reply)) => (Admission { order, ..admission }, Ok(reply)),
            // Redis may have decided, and the order that the key stands for is unknown.
            Err(ScriptError::Unreachable(_)) => return Err(ProblemKind::Unsure.into()),
            Err(error) => (admission, Err(error)),
        };
        let is_suspect = match LostOrderCheck::of(&reply) {
            LostOrderCheck::Always => true,
            LostOrderCheck::AfterFailover => gate.last_reconnect.is_recent(),
            LostOrderCheck::Never => false,
        };
        if is_suspect && let Some(admitted) = self.forgotten(gate, &admission).await {
            return Ok(admitted);
        }
        self.told(gate, reply, &admission).await
    }

    /// Finds the order that a failover lost in Redis after its row was written. If a user may hold several orders, the
    /// gate cannot know whether this request is for another one; then only Redis decides.
    async fn forgotten(&self, gate: &PartitionGate, admission: &Admission) -> Option<Admitted> {
        let voucher = admission.voucher;
        if gate.redis.limits().gives_slots(voucher).await.unwrap_or(true) {
            return None;
        }
        let order = self.gates.forgotten_orders_of(voucher)?.find(&gate.redis, admission).await?;
        Some(Admitted { order, voucher, when: AdmissionAttempt::Before })
    }

    async fn told(
        &self,
        gate: &PartitionGate,
        reply: Result<AdmitReply, ScriptError>,
        admission: &Admission,
    ) -> Result<Admitted, Problem> {
        match &reply {
            Err(error) => self.refusals.order(admission, error),
            // Of several units, some may be left. The script does not say how many, so that it stays cheap.
            Ok(AdmitReply::SoldOut) if admission.quantity != Quantity::ONE => {
                let left = self.units_left(gate, admission.voucher).await;
                return Err(left.map_or_else(|| ProblemKind::TooFewLeft.into(), sold_out));
            }
            Ok(_) => {}
        }
        outcome(reply, admission)
    }

    /// Reads how many units of a voucher are left. None: Redis did not answer.
    async fn units_left(&self, gate: &PartitionGate, voucher: VoucherId) -> Option<u64> {
        let stock = read_stock(&gate.redis, voucher).await.ok()?;
        let left = stock.and_then(|stock| u64::try_from(stock).ok()).unwrap_or_default();
        self.sold_out.note_left(voucher, left);
        Some(left)
    }
}
