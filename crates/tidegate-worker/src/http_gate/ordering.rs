//! A request for an order, from what a caller wants to what became of it.

use std::{sync::Arc, time::Duration};

use tidegate_orders::{
    Gate, OrderId, VoucherId,
    gate::{Admission, AdmitReply, GateError, IdempotencyKey, KeyReply, SoldOut},
    order_id::OrderIdError,
};

use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use super::{
    forgotten_orders::Suspicion,
    gates::{Gates, NoVoucher, PartitionGate},
    problem::{Admitted, Problem, ProblemKind, When, outcome},
    refusals::Refusals,
    request::{Item, Wanted},
};

/// Between two looks for an order that Redis did not tell of.
const LOOK_AGAIN: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(8)];

/// Beside what is wanted.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    /// The caller's own name of the request.
    pub key: Option<IdempotencyKey>,
    /// W3C trace context.
    pub traceparent: Option<String>,
}

/// Asks Redis for orders.
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
            None => self.next_id(gate).await?,
        };
        let admission = Admission { order, user, voucher, quantity, subjects, traceparent };
        match key {
            None => self.told(gate.gate.admit(&admission).await, &admission),
            Some(key) => self.order_by_key(gate, key, admission).await,
        }
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

    /// Callers wait for ids one behind the other: none for longer than a command may take.
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

    /// The key is known before the order is asked for: whoever asks again asks for the same order, at whichever gate.
    async fn order_by_key(
        &self,
        gate: &PartitionGate,
        key: IdempotencyKey,
        mut admission: Admission,
    ) -> Result<Admitted, Problem> {
        if gate.last_reconnect.is_recent()
            && let Some(admitted) = self.forgotten(gate, &admission).await
        {
            return Ok(admitted);
        }
        match gate.gate.remember_key(&key, &admission).await {
            Ok(KeyReply::New) => {}
            Ok(KeyReply::Known(order)) => admission.order = order,
            Ok(KeyReply::OtherRequest) => return Err(ProblemKind::OtherRequest.into()),
            Err(error) => return Err(self.refusals.not_asked(&error)),
        }
        let (decided, is_decided) = oneshot::channel();
        tokio::spawn(keep_key(Arc::clone(&gate.gate), key, admission.clone(), is_decided));
        let reply = gate.gate.admit(&admission).await;
        let _listens = decided.send(is_known(&reply));
        let is_suspect = match Suspicion::of(&reply) {
            Suspicion::Always => true,
            Suspicion::AfterFailover => gate.last_reconnect.is_recent(),
            Suspicion::Never => false,
        };
        if is_suspect && let Some(admitted) = self.forgotten(gate, &admission).await {
            return Ok(admitted);
        }
        if is_suspect && may_be_own(gate, &reply, &admission).await {
            return Err(Problem::from(ProblemKind::Unsure).with("orderId", admission.order.to_string()));
        }
        self.told(reply, &admission)
    }

    /// What a failover took along after it was written. Where a user may hold several orders, nothing tells whether this request
    /// is for another one: then only Redis decides.
    async fn forgotten(&self, gate: &PartitionGate, admission: &Admission) -> Option<Admitted> {
        let voucher = admission.voucher;
        if may_hold_several(gate, voucher).await {
            return None;
        }
        let order = self.gates.forgotten_orders_of(voucher)?.find(&gate.gate, admission).await?;
        Some(Admitted { order, voucher, when: When::Before })
    }

    fn told(&self, reply: Result<AdmitReply, GateError>, admission: &Admission) -> Result<Admitted, Problem> {
        if let Err(error) = &reply {
            self.refusals.order(admission, error);
        }
        outcome(reply, admission)
    }
}

/// Whether limits let a user hold several orders of a voucher, as far as Redis says.
async fn may_hold_several(gate: &PartitionGate, voucher: VoucherId) -> bool {
    gate.gate.gives_slots(voucher).await.unwrap_or(true)
}

/// Whether the order that the user has may be the one of this request, whose key is about to be remembered again. A sale that is sold
/// out refuses without a look at its buyers.
async fn may_be_own(
    gate: &PartitionGate,
    reply: &Result<AdmitReply, GateError>,
    admission: &Admission,
) -> bool {
    gate.last_reconnect.is_fresh()
        && !matches!(reply, Ok(AdmitReply::GivenBack))
        && !may_hold_several(gate, admission.voucher).await
        && gate.gate.is_buyer(admission.voucher, admission.user).await.unwrap_or(true)
}

/// Keeps a key when it is told whether its order is decided, or when its caller has gone. Whatever others decide under the same
/// key meanwhile: the last of them looks into the journal. An order that is not decided may be admitted later: the command may wait
/// for a new connection, to a server that knows nothing of the key.
async fn keep_key(
    gate: Arc<Gate>,
    key: IdempotencyKey,
    admission: Admission,
    is_decided: oneshot::Receiver<bool>,
) {
    let is_decided = is_decided.await.unwrap_or(false);
    let looks: &[Duration] = if is_decided { &[Duration::ZERO] } else { &LOOK_AGAIN };
    for pause in looks {
        sleep(*pause).await;
        if let Err(error) = gate.keep_key(&key, &admission, is_decided).await {
            // Then it is remembered for a day: a little memory, and nothing else.
            tracing::debug!(%error, "a key stays as it is");
        }
    }
}

/// Whether it is known what became of the order.
const fn is_known(reply: &Result<AdmitReply, GateError>) -> bool {
    match reply {
        Ok(_) => true,
        Err(error) => matches!(
            error,
            GateError::NoSubject { .. } | GateError::IdTaken { .. } | GateError::OtherQuantity { .. }
        ),
    }
}
