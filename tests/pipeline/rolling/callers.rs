//! Callers of several versions at once: producers with the script of this or of the old version, clients of gates, and
//! services that append events.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use fred::interfaces::LuaInterface;
use serde_json::{Value, json};
use tidegate_orders::{Event, EventKind, scripts::AdmitReply};
use tokio::time::sleep;

use crate::{browser::post_json, fixture::DEADLINE, life_model::fleet::Fleet};

/// The data that callers were told, and the gates that they know.
#[derive(Default)]
pub struct Told {
    /// The orders that are admitted.
    pub orders: BTreeSet<i64>,
    /// The entries of accepted events.
    pub events: BTreeSet<String>,
    pub gates: Vec<SocketAddr>,
}

/// The callers of a fleet. Each request takes the next way in turn.
pub struct Callers {
    /// The hash of the old version's script.
    script: String,
    turn: AtomicUsize,
    told: Mutex<Told>,
}

/// The way of a request into the stream.
enum Way {
    OwnScript,
    OldScript,
    Gate(SocketAddr),
}

impl Callers {
    pub fn new(script: String, gates: Vec<SocketAddr>) -> Self {
        Self { script, turn: AtomicUsize::new(0), told: Mutex::new(Told { gates, ..Told::default() }) }
    }

    pub fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn way(&self) -> Way {
        let (turn, told) = (self.turn.fetch_add(1, Relaxed), self.told());
        match turn % (told.gates.len() + 2) {
            0 => Way::OwnScript,
            1 => Way::OldScript,
            gate => Way::Gate(told.gates[gate - 2]),
        }
    }

    /// Requests an order, `(order, user, voucher)`, until the answer is certain.
    pub async fn admit(&self, fleet: &Fleet<'_>, ids: (i64, i64, i64), quantity: i64) -> AdmitReply {
        let (began, mut is_repeated) = (Instant::now(), false);
        loop {
            let reply = match self.way() {
                Way::OwnScript => Some(fleet.admit_here(ids, quantity).await),
                Way::OldScript => Some(self.admit_by_script(fleet, ids, quantity).await),
                Way::Gate(gate) => admit_by_gate(gate, ids, quantity).await,
            };
            match reply {
                None | Some(AdmitReply::Busy) => {}
                // An earlier try without an answer was admitted. The order has expired since.
                Some(reply) if reply.is_admitted() || is_repeated && reply == AdmitReply::Released => {
                    self.told().orders.insert(ids.0);
                    return AdmitReply::Admitted;
                }
                Some(reply) => return reply,
            }
            is_repeated = true;
            assert!(began.elapsed() < DEADLINE, "order {} is requested in vain: {reply:?}", ids.0);
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn admit_by_script(
        &self,
        fleet: &Fleet<'_>,
        (order, user, voucher): (i64, i64, i64),
        quantity: i64,
    ) -> AdmitReply {
        let keys = ["stock", "order", "voucher", "journal"].map(|name| format!("seckill:{name}:{voucher}"));
        let keys = [&keys[..], &["stream.orders".to_owned()]].concat();
        let arguments = [order, user, voucher, quantity].map(|number| number.to_string());
        let arguments = [&arguments[..], &[String::new()]].concat();
        let reply = fleet.fixture.client.evalsha(&self.script, keys, arguments);
        match reply.await.expect("the script replies") {
            0 | 6 => AdmitReply::Admitted,
            1 => AdmitReply::SoldOut,
            2 => AdmitReply::UserHasOrder,
            8 => AdmitReply::Released,
            11 => AdmitReply::Busy,
            code => panic!("order {order}: the old script replies {code}"),
        }
    }

    /// Reports an event until it is accepted.
    pub async fn report(&self, fleet: &Fleet<'_>, event: &Event) {
        let began = Instant::now();
        // A gate takes no expiration, and no payment or refund without a reference.
        let is_for_gates =
            event.kind != EventKind::Expired && (event.reference.is_some() || !event.kind.is_about_money());
        loop {
            let Way::Gate(gate) = self.way() else { return fleet.add_event(event).await };
            if !is_for_gates {
                return fleet.add_event(event).await;
            }
            if let Some(entry) = report_to_gate(gate, event).await {
                self.told().events.insert(entry);
                return;
            }
            assert!(began.elapsed() < DEADLINE, "reported in vain: {event:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// The answer of a gate. None: there is no answer, or it says that the request may be repeated.
async fn ask(gate: SocketAddr, path: &str, body: &Value) -> Option<(u16, Value)> {
    let (status, answer) = post_json(gate, path, &[], body).await.ok()?;
    (!matches!(status, 503 | 504)).then_some((status, answer))
}

async fn admit_by_gate(
    gate: SocketAddr,
    (order, user, voucher): (i64, i64, i64),
    quantity: i64,
) -> Option<AdmitReply> {
    let [id, user, voucher] = [order, user, voucher].map(|id| id.to_string());
    let request = json!({ "orderId": id, "userId": user, "voucherId": voucher, "quantity": quantity });
    let (status, answer) = ask(gate, "/orders", &request).await?;
    let problem = answer["type"].as_str().map(|kind| kind.trim_start_matches("/problems/"));
    Some(match (status, problem) {
        (202, None) => AdmitReply::Admitted,
        (409, Some("sold-out" | "too-few-left")) => AdmitReply::SoldOut,
        (409, Some("second-order")) => AdmitReply::UserHasOrder,
        (409, Some("given-back")) => AdmitReply::Released,
        _ => panic!("order {order}: {status} {answer:#}"),
    })
}

/// Reports an event to a gate. Returns its entry.
async fn report_to_gate(gate: SocketAddr, event: &Event) -> Option<String> {
    let mut body = json!({
        "event": event.kind.word(),
        "userId": event.user.to_string(),
        "voucherId": event.voucher.to_string(),
    });
    for (name, text) in [("ref", &event.reference), ("payment", &event.payment)] {
        if let Some(text) = text {
            body[name] = text.as_str().into();
        }
    }
    let (status, answer) = ask(gate, &format!("/orders/{}/events", event.order), &body).await?;
    assert_eq!(status, 202, "{event:?}: {answer:#}");
    Some(answer["entry"].as_str().expect("the entry of the event").to_owned())
}
