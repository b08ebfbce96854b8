//! The appending of events to the stream of orders.

use std::sync::Arc;

use tidegate_stream::{EntryId, Stream, StreamError, StreamNames};

use super::{ScriptError, access::RedisAccess, confirmed::ConfirmedCalls};
use crate::{event::NewEvent, wire::new_event_fields};

/// Access to the appending of events, such as payments, to the stream of orders.
#[derive(Clone, Debug)]
pub struct EventAppends {
    access: RedisAccess,
    names: StreamNames,
    confirmed: Option<Arc<ConfirmedCalls>>,
}

impl EventAppends {
    pub(super) fn new(access: &RedisAccess, names: StreamNames) -> Self {
        Self { access: access.clone(), names, confirmed: None }
    }

    /// Returns a copy as [`super::RedisStore::confirmed`] does.
    pub(super) fn confirmed(self, calls: Arc<ConfirmedCalls>) -> Self {
        Self { confirmed: Some(calls), ..self }
    }

    /// Appends events in their order, over one connection. Returns the id of the entry of each event. The events of one
    /// order must be in the stream in the sequence in which they happened, so a caller that gets an error for an event
    /// repeats this event before it sends later events of the order.
    ///
    /// # Errors
    /// [`ScriptError::Refused`] if the event is not in the stream. [`ScriptError::Unreachable`] if this is unknown, and
    /// [`ScriptError::Unconfirmed`] if a failover may lose the event. The caller then repeats the event: the same
    /// event again changes nothing.
    pub async fn append(&self, events: &[NewEvent]) -> Vec<Result<EntryId, ScriptError>> {
        let fields: Vec<_> = events.iter().map(new_event_fields).collect();
        let append = async |pool| Stream::new(pool, self.names.clone()).append_all(&fields).await;
        let Some(calls) = &self.confirmed else {
            return answers(append(self.access.pool.clone()).await);
        };
        let mut call = calls.begin().await;
        let mut appended = answers(append(call.pool()).await);
        if appended.iter().any(Result::is_ok)
            && let Err(why) = call.wait().await
        {
            for (answer, new) in appended.iter_mut().zip(events).filter(|(answer, _)| answer.is_ok()) {
                *answer = Err(ScriptError::Unconfirmed { order: new.event.order, why: why.clone() });
            }
        }
        appended
    }
}

fn answers(appended: Vec<Result<EntryId, StreamError>>) -> Vec<Result<EntryId, ScriptError>> {
    let answer = |appended: Result<EntryId, StreamError>| {
        appended.map_err(|error| match error {
            StreamError::Redis(error) => fred::error::Error::from(error).into(),
            other => ScriptError::Unexpected { place: "XADD".to_owned(), got: other.to_string() },
        })
    };
    appended.into_iter().map(answer).collect()
}
