//! The changes of one order as server-sent events: first the present state, then one event for each change.

use std::sync::Arc;

use futures_util::{Stream, stream::unfold};
use tidegate_operations::order_progress::OrderProgress;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::order_watch::LastProgress;
use crate::server_sent::{HEARTBEAT, IdleEnd, RETRY_MS, StreamEnd};

/// A stream of server-sent events with the changes of one order.
#[derive(Debug)]
pub struct EventStream {
    told: watch::Receiver<LastProgress>,
    last: Option<Arc<OrderProgress>>,
    end: StreamEnd,
    is_over: bool,
    _room: OwnedSemaphorePermit,
}

impl EventStream {
    /// Creates an event stream of the changes that `told` reports. The stream ends at `end`, or after the final state.
    /// The permit `room` is released when the stream is dropped.
    pub fn new(told: watch::Receiver<LastProgress>, end: StreamEnd, room: OwnedSemaphorePermit) -> Self {
        Self { told, last: None, end, is_over: false, _room: room }
    }

    /// Converts the event stream to the texts of its events.
    pub fn texts(self) -> impl Stream<Item = String> + Send + 'static {
        unfold(self, async |mut stream| {
            let text = stream.next().await?;
            Some((text, stream))
        })
    }

    /// Waits for the next text to send. None: the stream is over.
    async fn next(&mut self) -> Option<String> {
        let heartbeat_at = StreamEnd::next_heartbeat();
        while !self.is_over {
            if let Some(event) = self.change() {
                return Some(event);
            }
            tokio::select! {
                changed = self.told.changed() => self.is_over = changed.is_err(),
                quiet = self.end.quiet(heartbeat_at) => return Some(self.after(quiet)),
            }
        }
        None
    }

    fn after(&mut self, quiet: IdleEnd) -> String {
        match quiet {
            IdleEnd::Heartbeat => format!("{HEARTBEAT}\n"),
            IdleEnd::Over(why) => {
                self.is_over = true;
                format!(": {why}\n\n")
            }
        }
    }

    /// The event for a change of the order, if it has changed. A failed query changes nothing.
    fn change(&mut self) -> Option<String> {
        let LastProgress::Is(progress) = self.told.borrow_and_update().clone() else { return None };
        if self.last.as_ref().is_some_and(|last| progress.is_same_as(last)) {
            return None;
        }
        let retry = if self.last.is_none() { format!("retry: {RETRY_MS}\n") } else { String::new() };
        let event = format!("{retry}id: {}\ndata: {}\n\n", event_id(&progress), json(&progress));
        self.is_over = progress.is_final();
        self.last = Some(progress);
        Some(event)
    }
}

/// The id of a server-sent event: the number of the order's last event, and the state of the order. The state is
/// necessary, because the state can change without a new event.
pub fn event_id(progress: &OrderProgress) -> String {
    format!("{}-{}", progress.step, progress.state.word())
}

/// The progress of an order as JSON, in one line.
pub fn json(progress: &OrderProgress) -> String {
    serde_json::to_string(progress).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
}

#[cfg(test)]
mod tests {
    use tidegate_operations::order_progress::OrderProgress;
    use tidegate_orders::OrderState;
    use tokio::{sync::Semaphore, time::Instant};

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::server_sent::ClientEnd;

    fn told(state: OrderState, step: u32) -> LastProgress {
        LastProgress::Is(Arc::new(OrderProgress {
            order: 7.try_into().unwrap(),
            state,
            step,
            was_cancelled: false,
            user: None,
            voucher: None,
            quantity: None,
            reason: None,
            events: Vec::new(),
            refunds_due: Vec::new(),
            estimate: None,
            cut_off: false,
        }))
    }

    fn stream(first: LastProgress) -> (watch::Sender<LastProgress>, EventStream, Arc<Semaphore>) {
        let (sender, receiver) = watch::channel(first);
        let room = Arc::new(Semaphore::new(1));
        let permit = Arc::clone(&room).try_acquire_owned().unwrap();
        let end = StreamEnd::new(CancellationToken::new(), ClientEnd::default());
        (sender, EventStream::new(receiver, end, permit), room)
    }

    #[tokio::test]
    async fn what_is_told_twice_is_sent_once_and_the_last_state_ends_it() {
        let (sender, mut stream, room) = stream(told(OrderState::Waiting, 0));
        let first = stream.next().await.unwrap();
        assert!(first.starts_with("retry: 2000\nid: 0-waiting\ndata: {\"orderId\":\"7\""), "{first}");
        sender.send_replace(told(OrderState::Waiting, 0));
        assert_eq!(stream.change(), None);
        sender.send_replace(LastProgress::Failed("MySQL is away".into()));
        assert_eq!(stream.change(), None, "a failed look changes nothing");
        sender.send_replace(told(OrderState::Used, 2));
        assert!(stream.next().await.unwrap().starts_with("id: 2-used\n"));
        assert_eq!(stream.next().await, None);
        drop(stream);
        assert_eq!(room.available_permits(), 1, "there is room for another");
    }

    #[tokio::test]
    async fn it_ends_in_time_and_with_its_server() {
        let (_sender, mut late, _room) = stream(told(OrderState::Confirmed, 0));
        late.end.at = Instant::now();
        assert!(late.next().await.unwrap().contains("0-confirmed"));
        assert_eq!(late.next().await.as_deref(), Some(": come again\n\n"));
        assert_eq!(late.next().await, None);

        let (_sender, mut stopped, _room) = stream(LastProgress::NotYet);
        stopped.end.stop.cancel();
        assert_eq!(stopped.next().await.as_deref(), Some(": the server stops\n\n"));
        assert_eq!(stopped.next().await, None);

        let (_sender, mut changed, _room) = stream(LastProgress::NotYet);
        changed.end.client.access.cancel();
        assert_eq!(changed.next().await.as_deref(), Some(": come again\n\n"), "its token may be gone");

        let (_sender, mut left, _room) = stream(LastProgress::NotYet);
        left.end.client.closed.cancel();
        assert_eq!(left.next().await.as_deref(), Some(": come again\n\n"), "its client may be gone");
    }
}
