//! The pages `/orders/{id}` and `/orders/{id}/events`: the state of an order, for the application next to a worker or
//! a gate.

mod event_stream;
mod order_watch;

use std::{sync::Arc, time::Duration};

use hyper::{HeaderMap, StatusCode, Uri, header::HeaderValue};
use tidegate_operations::order_progress::OrderProgress;
use tidegate_orders::{OrderId, OrderState, UserId, VoucherId};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

pub use self::order_watch::{OrderStores, OrderWatch};
use self::{
    event_stream::{EventStream, event_id},
    order_watch::{Asked, LastProgress},
};
use crate::{
    answer::{Answer, JSON, answer},
    server::parameter,
    server_sent::{ClientEnd, EVENTS, StreamEnd, event_answer},
};

/// The time to wait for the first query. It is longer than a query may take, together with the query before it.
const FIRST_LOOK_WITHIN: Duration = Duration::from_secs(7);

/// The reason why the server cannot show the state of an order, as a message for the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoOrderPage {
    /// The request is invalid, with the reason.
    #[error("{0}")]
    BadQuestion(String),
    /// Too many clients ask at the same time.
    #[error("too many requests at the same time")]
    TooMany,
    /// A store does not answer, with the reason.
    #[error("{0}")]
    StoresAway(Arc<str>),
}

/// The limits on simultaneous requests for the state of orders.
#[derive(Clone, Copy, Debug)]
pub struct Permits {
    /// The largest number of requests that may wait for a query of the stores at the same time.
    pub looks: usize,
    /// The largest number of event streams that may be open at the same time.
    pub streams: usize,
}

/// The client that asks for an order.
#[derive(Clone, Debug, Default)]
pub struct Viewer {
    /// The user whose orders the client may see; the orders of all others are unknown to it. None: the client may see
    /// all orders.
    pub only: Option<UserId>,
    /// The signals that the answer has to end because of its client.
    pub end: ClientEnd,
}

/// The HTTP pages with the state of orders, for one server.
#[derive(Debug)]
pub struct OrderPages {
    stop: CancellationToken,
    watch: Arc<OrderWatch>,
    looks: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

impl OrderPages {
    /// Creates the pages for the orders that `watch` follows. Event streams end when `stop` is cancelled.
    pub fn new(watch: Arc<OrderWatch>, permits: Permits, stop: CancellationToken) -> Self {
        let [looks, streams] =
            [permits.looks, permits.streams].map(|permits| Arc::new(Semaphore::new(permits)));
        Self { stop, watch, looks, streams }
    }

    /// Answers a request for the state of an order. `path` is the rest of the URL path after `/orders/`.
    ///
    /// # Errors
    /// Fails for the reasons in [`NoOrderPage`].
    pub async fn answer(
        &self,
        path: &str,
        uri: &Uri,
        headers: &HeaderMap,
        viewer: Viewer,
    ) -> Result<Answer, NoOrderPage> {
        let (id, wants_events) = match path.strip_suffix("/events") {
            Some(id) => (id, true),
            None => (path, false),
        };
        let asked = asked(id, uri.query().unwrap_or_default()).map_err(NoOrderPage::BadQuestion)?;
        let room = if wants_events { &self.streams } else { &self.looks };
        let room = Arc::clone(room).try_acquire_owned().map_err(|_| NoOrderPage::TooMany)?;
        let mut told = self.watch.ask(asked);
        let progress = first_look(&mut told).await.map_err(NoOrderPage::StoresAway)?;
        if self.watch.is_sharded() && asked.1.is_none() && progress.state == OrderState::Unknown {
            // The query read only one shard, and the row may be in another.
            let why = "no such order in the shard of this order id: also send `voucherId`, which finds the right shard";
            return Err(NoOrderPage::BadQuestion(why.to_owned()));
        }
        if viewer.only.is_some() && progress.user != viewer.only {
            let unknown = OrderProgress::unknown(asked.0);
            return Ok(answer(StatusCode::NOT_FOUND, JSON, event_stream::json(&unknown)));
        }
        if wants_events {
            let end = StreamEnd::new(self.stop.clone(), viewer.end);
            return Ok(Self::events(told, &progress, (end, room), headers));
        }
        let status =
            if progress.state == OrderState::Unknown { StatusCode::NOT_FOUND } else { StatusCode::OK };
        Ok(answer(status, JSON, event_stream::json(&progress)))
    }

    /// Waits until `found` finds something in the progress of an order, at most for the time `within`. While a store does
    /// not answer, the wait goes on.
    pub async fn wait_until<T>(
        &self,
        asked: Asked,
        within: Duration,
        mut found: impl FnMut(&OrderProgress) -> Option<T>,
    ) -> Option<T> {
        let mut told = self.watch.ask(asked);
        let looking = async {
            loop {
                if let LastProgress::Is(progress) = &*told.borrow_and_update()
                    && let Some(what) = found(progress)
                {
                    return Some(what);
                }
                told.changed().await.ok()?;
            }
        };
        timeout(within, looking).await.ok().flatten()
    }

    /// Answers with the events of an order. If a client connects again after it has received the final state, it gets
    /// the status 204, which tells an `EventSource` to stop reconnecting.
    fn events(
        told: watch::Receiver<LastProgress>,
        progress: &OrderProgress,
        (end, room): (StreamEnd, OwnedSemaphorePermit),
        headers: &HeaderMap,
    ) -> Answer {
        let last = headers.get("last-event-id").map_or(&b""[..], HeaderValue::as_bytes);
        if progress.is_final() && last == event_id(progress).as_bytes() {
            return answer(StatusCode::NO_CONTENT, EVENTS, "");
        }
        event_answer(EventStream::new(told, end, room).texts())
    }
}

async fn first_look(told: &mut watch::Receiver<LastProgress>) -> Result<Arc<OrderProgress>, Arc<str>> {
    let looked =
        timeout(FIRST_LOOK_WITHIN, told.wait_for(|told| !matches!(told, LastProgress::NotYet))).await;
    match looked {
        Ok(Ok(told)) => match &*told {
            LastProgress::Is(progress) => Ok(Arc::clone(progress)),
            LastProgress::Failed(why) => Err(Arc::clone(why)),
            LastProgress::NotYet => Err("Redis and MySQL were not queried".into()),
        },
        _ => Err("Redis or MySQL does not answer".into()),
    }
}

fn asked(id: &str, query: &str) -> Result<Asked, String> {
    let order: OrderId = id.parse().map_err(|_| "an order id is a number from 1 to 9223372036854775807")?;
    // Earlier versions named the parameter `voucher`.
    let voucher = parameter(query, &["voucherId", "voucher"])?.map(|id| id.parse::<VoucherId>()).transpose();
    Ok((order, voucher.map_err(|_| "`voucherId` is not a valid voucher id")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_vouchers_are_read_and_others_are_refused() {
        let id = |number: i64| OrderId::try_from(number).unwrap();
        let voucher = |number: i64| VoucherId::try_from(number).unwrap();
        assert_eq!(asked("7", ""), Ok((id(7), None)));
        assert_eq!(asked("7", "voucherId=3&x=1"), Ok((id(7), Some(voucher(3)))));
        assert_eq!(asked("7", "voucherId=%33"), Ok((id(7), Some(voucher(3)))));
        assert_eq!(asked("7", "voucher=3"), Ok((id(7), Some(voucher(3)))), "as earlier versions");
        for (path, query) in [
            ("", ""),
            ("0", ""),
            ("-1", ""),
            ("7x", ""),
            ("9223372036854775808", ""),
            ("7/x", ""),
            ("7", "voucherId="),
            ("7", "voucherId=0"),
            ("7", "voucherId=1&voucherId=2"),
        ] {
            assert!(asked(path, query).is_err(), "{path} {query}");
        }
    }
}
