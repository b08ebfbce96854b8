//! `/orders/{id}` and `/orders/{id}/events`: what became of an order, for the application beside the worker.

use std::{sync::Arc, time::Duration};

use http_body_util::{Either, StreamBody};
use hyper::{
    HeaderMap, Response, StatusCode, Uri,
    header::{HeaderValue, RETRY_AFTER},
};
use serde_json::json;
use tidegate_operations::order_progress::OrderProgress;
use tidegate_orders::{OrderId, OrderState, VoucherId};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::timeout,
};

use super::{
    answer::{Answer, JSON, answer},
    event_stream::{self, EventStream, event_id},
    order_watch::{Asked, OrderWatch, Told},
};
use crate::view::View;

/// Questions that are answered at once. Fewer than there are places: probes have room beside them.
const LOOKS: usize = 24;
/// Streams that are open at once.
const STREAMS: usize = 128;
/// Longer than a look may take, and the one before it.
const FIRST_LOOK_WITHIN: Duration = Duration::from_secs(7);

const EVENTS: &str = "text/event-stream";

/// Answers questions for orders.
#[derive(Debug)]
pub struct OrderPages {
    view: Arc<View>,
    watch: Arc<OrderWatch>,
    looks: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

impl OrderPages {
    /// Of what `watch` sees.
    pub fn new(view: Arc<View>, watch: Arc<OrderWatch>) -> Self {
        let [looks, streams] = [LOOKS, STREAMS].map(|room| Arc::new(Semaphore::new(room)));
        Self { view, watch, looks, streams }
    }

    /// Answers `path`, which is what stands behind `/orders/`.
    pub async fn answer(&self, path: &str, uri: &Uri, headers: &HeaderMap) -> Answer {
        let (id, wants_events) = match path.strip_suffix("/events") {
            Some(id) => (id, true),
            None => (path, false),
        };
        let asked = match asked(id, uri.query().unwrap_or_default()) {
            Ok(asked) => asked,
            Err(why) => return failed(StatusCode::BAD_REQUEST, why),
        };
        let room = if wants_events { &self.streams } else { &self.looks };
        let Ok(room) = Arc::clone(room).try_acquire_owned() else {
            return failed(StatusCode::SERVICE_UNAVAILABLE, "too many ask at once");
        };
        let mut told = self.watch.ask(asked);
        let progress = match first_look(&mut told).await {
            Ok(progress) => progress,
            Err(why) => return failed(StatusCode::SERVICE_UNAVAILABLE, &why),
        };
        let is_sharded = !self.view.settings().system.mysql.shard_tags.is_empty();
        if is_sharded && asked.1.is_none() && progress.state == OrderState::Unknown {
            // Only one shard was asked: its row may be in another.
            return failed(
                StatusCode::BAD_REQUEST,
                "unknown where its id leads: say `voucher`, which tells the shard",
            );
        }
        if wants_events {
            return self.events(told, &progress, room, headers);
        }
        let status =
            if progress.state == OrderState::Unknown { StatusCode::NOT_FOUND } else { StatusCode::OK };
        answer(status, JSON, event_stream::json(&progress))
    }

    /// A client that comes again for an order of which it was told the end is told to stay away: by this status, and by no
    /// other, an `EventSource` does.
    fn events(
        &self,
        told: watch::Receiver<Told>,
        progress: &OrderProgress,
        room: OwnedSemaphorePermit,
        headers: &HeaderMap,
    ) -> Answer {
        let last = headers.get("last-event-id").map_or(&b""[..], HeaderValue::as_bytes);
        if progress.is_final() && last == event_id(progress).as_bytes() {
            return answer(StatusCode::NO_CONTENT, EVENTS, "");
        }
        let stream = EventStream::new(told, self.view.stop_token(), room).frames();
        let (head, _) = answer(StatusCode::OK, EVENTS, "").into_parts();
        Response::from_parts(head, Either::Right(StreamBody::new(Box::pin(stream))))
    }
}

async fn first_look(told: &mut watch::Receiver<Told>) -> Result<Arc<OrderProgress>, Arc<str>> {
    let looked = timeout(FIRST_LOOK_WITHIN, told.wait_for(|told| !matches!(told, Told::NotYet))).await;
    match looked {
        Ok(Ok(told)) => match &*told {
            Told::Is(progress) => Ok(Arc::clone(progress)),
            Told::Failed(why) => Err(Arc::clone(why)),
            Told::NotYet => Err("nobody looked".into()),
        },
        _ => Err("the stores do not answer".into()),
    }
}

fn asked(id: &str, query: &str) -> Result<Asked, &'static str> {
    let order: OrderId = id.parse().map_err(|_| "an order id is a number from 1 to 9223372036854775807")?;
    let vouchers: Vec<&str> = query.split('&').filter_map(|part| part.strip_prefix("voucher=")).collect();
    let voucher = match vouchers.as_slice() {
        [] => None,
        [one] => Some(one.parse::<VoucherId>().map_err(|_| "`voucher` is no id of a voucher")?),
        _ => return Err("say `voucher` once"),
    };
    Ok((order, voucher))
}

fn failed(status: StatusCode, why: &str) -> Answer {
    let mut answer = answer(status, JSON, json!({ "error": why }).to_string());
    if status == StatusCode::SERVICE_UNAVAILABLE {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_vouchers_are_read_and_others_are_refused() {
        let id = |number: i64| OrderId::try_from(number).unwrap();
        let voucher = |number: i64| VoucherId::try_from(number).unwrap();
        assert_eq!(asked("7", ""), Ok((id(7), None)));
        assert_eq!(asked("7", "voucher=3&x=1"), Ok((id(7), Some(voucher(3)))));
        for (path, query) in [
            ("", ""),
            ("0", ""),
            ("-1", ""),
            ("7x", ""),
            ("9223372036854775808", ""),
            ("7/x", ""),
            ("7", "voucher="),
            ("7", "voucher=0"),
            ("7", "voucher=1&voucher=2"),
        ] {
            assert!(asked(path, query).is_err(), "{path} {query}");
        }
    }
}
