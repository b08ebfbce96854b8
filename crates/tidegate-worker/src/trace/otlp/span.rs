//! The spans of an order. Their names come from OpenTelemetry's conventions for messaging; Tidegate's own names begin
//! with `tidegate.`.
//!
//! Each order has one span, whose parent is the producer's span. The stages of a whole batch (locking, writing,
//! settling) are child spans in the trace of each order, with the batch's times. The conventions also allow one span
//! for the batch, with a link to each order. With that, no producer's trace would end with the commit, and no producer
//! would decide about sampling. It would also lose links: a span has at most 128, and a batch has up to 1000 orders.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use opentelemetry::{
    Context, KeyValue,
    trace::{Span, SpanContext, SpanKind, Status, TraceContextExt, TraceFlags, TraceState, Tracer},
};
use opentelemetry_sdk::trace::SdkTracer;
use tidegate_orders::{BatchTrace, Order, OrderStatus, Verdict, wire::FieldNames};
use tidegate_stream::{Entry, Outcome, ProcessedBatch, Stage, StreamNames};

/// The creator of the trace spans for orders.
#[derive(Clone, Debug)]
pub struct OrderSpans {
    tracer: SdkTracer,
    names: StreamNames,
    /// The field names that stream entries use for the data of an order.
    pub fields: FieldNames,
}

/// A batch of entries that a lane (a consumer within the worker) has processed, with the times and results for traces.
pub struct Batch<'a> {
    worked: &'a ProcessedBatch<'a>,
    batch_trace: &'a BatchTrace,
    nothing_is_written: bool,
    id: String,
    /// The same instant on both clocks.
    now: (Instant, SystemTime),
}

/// One order of a batch, with its outcome and the times of its processing, for a trace.
pub struct Traced<'a> {
    entry: &'a Entry,
    /// The decoded order. None: the entry is no order.
    order: Option<Order>,
    outcome: OrderOutcome<'a>,
    stages: Vec<Step<'a>>,
}

/// A stage of the batch that this order was part of.
struct Step<'a> {
    what: What,
    stage: Stage,
    error: Option<&'a str>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Lock,
    Write,
    Settle,
}

/// The outcome of an order in this batch.
struct OrderOutcome<'a> {
    word: &'static str,
    /// The present state of the order. None: its row was there before, and may be cancelled; no store is queried for a
    /// trace.
    status: Option<OrderStatus>,
    /// The reason for the outcome, if the outcome alone does not explain it.
    reason: Option<&'static str>,
    /// The error in a sentence, if there was one.
    error: Option<&'a str>,
}

impl<'a> Batch<'a> {
    /// Creates the batch for traces from the report of the lane (the consumer) and the report of the code that wrote
    /// the orders.
    pub fn new(worked: &'a ProcessedBatch<'a>, batch_trace: &'a BatchTrace) -> Self {
        let first = worked.entries.first().map(|entry| entry.id).unwrap_or_default();
        let id = format!("{}/{first}", worked.consumer);
        let nothing_is_written = batch_trace.verdicts.iter().all(Option::is_none);
        Self { worked, batch_trace, nothing_is_written, id, now: (Instant::now(), SystemTime::now()) }
    }

    /// The order at the index `at` of the batch.
    pub fn order(&self, fields: &FieldNames, at: usize) -> Traced<'a> {
        let entry = &self.worked.entries[at];
        let order = fields.decode(entry).ok();
        let stages = self.steps(at, order.is_some());
        Traced { entry, order, outcome: self.outcome(at), stages }
    }

    fn outage(&self) -> Option<&'a str> {
        let settling = self.worked.settling.and_then(|settling| settling.outage.as_ref());
        self.worked.outcomes.err().or(settling).map(|outage| outage.error.as_str())
    }

    fn steps(&self, at: usize, is_order: bool) -> Vec<Step<'a>> {
        let BatchTrace { locking, writing, ref verdicts } = *self.batch_trace;
        let (locking, writing) = (locking.filter(|_| is_order), writing.filter(|_| is_order));
        let handling_failed = self.worked.outcomes.err().map(|outage| outage.error.as_str());
        let writing_failed = handling_failed.filter(|_| self.nothing_is_written);
        let mut steps = Vec::with_capacity(3);
        steps.extend(locking.map(|stage| Step {
            what: What::Lock,
            stage,
            error: handling_failed.filter(|_| writing.is_none()),
        }));
        let writing = writing.filter(|_| verdicts[at].is_some() || writing_failed.is_some());
        steps.extend(writing.map(|stage| Step { what: What::Write, stage, error: writing_failed }));
        let is_settled =
            self.worked.outcomes.is_ok_and(|outcomes| !matches!(outcomes[at], Outcome::SetAside(_)));
        steps.extend(self.worked.settling.filter(|_| is_settled).map(|settling| Step {
            what: What::Settle,
            stage: settling.stage,
            error: settling.outage.as_ref().map(|outage| outage.error.as_str()),
        }));
        steps
    }

    fn outcome(&self, at: usize) -> OrderOutcome<'a> {
        let again = |reason, status, error| OrderOutcome {
            word: "retried",
            status: Some(status),
            reason: Some(reason),
            error,
        };
        // A store may have executed a command that it did not answer.
        let outage = || again("outage", OrderStatus::Unsure, self.outage());
        let done = |word, status, reason| OrderOutcome { word, status, reason, error: None };
        let Ok(outcomes) = self.worked.outcomes else { return outage() };
        let is_unburied = || {
            let settling = self.worked.settling;
            settling.is_some_and(|settling| settling.unburied.contains(&self.worked.entries[at].id))
        };
        match (&outcomes[at], &self.batch_trace.verdicts[at]) {
            (Outcome::Dead(why), _) if is_unburied() => {
                again("cannot_bury", OrderStatus::Pending, Some(&why.error))
            }
            (Outcome::Dead(_), _) if self.outage().is_some() => outage(),
            (Outcome::Dead(why), _) => OrderOutcome {
                word: "buried",
                status: Some(OrderStatus::Dead),
                reason: Some(why.reason),
                error: Some(&why.error),
            },
            (Outcome::SetAside(_), None) => again("user_locked", OrderStatus::Pending, None),
            (Outcome::SetAside(_), Some(Verdict::Refused(_))) => {
                again("cannot_release", OrderStatus::Refused, None)
            }
            (Outcome::SetAside(_), Some(_)) => again("contended", OrderStatus::Pending, None),
            (Outcome::Done, Some(Verdict::AlreadyThere | Verdict::Cancelled)) => {
                done("already_there", None, None)
            }
            (Outcome::Done, Some(Verdict::Refused(refusal))) => {
                done("refused", Some(OrderStatus::Refused), Some(refusal.word()))
            }
            // The entry is an event of an order.
            (Outcome::Done, None) => done("recorded", None, None),
            (Outcome::Done, _) => done("created", Some(OrderStatus::Written), None),
        }
    }

    fn time(&self, instant: Instant) -> SystemTime {
        self.now.1 - self.now.0.saturating_duration_since(instant)
    }
}

impl Traced<'_> {
    /// The number of trace spans that this order needs in the send queue.
    pub fn spans(&self) -> usize {
        1 + self.stages.len()
    }
}

impl OrderSpans {
    /// Creates the value that creates trace spans for the orders of one stream.
    pub fn new(tracer: SdkTracer, names: StreamNames, fields: FieldNames) -> Self {
        Self { tracer, names, fields }
    }

    /// Creates the trace spans of an order and puts them into the send queue. Returns false if the caller's trace is
    /// not sampled.
    pub fn emit(&self, batch: &Batch<'_>, order: &Traced<'_>) -> bool {
        let parent = match self.fields.traceparent(order.entry) {
            Some(parent) => Context::new().with_remote_span_context(SpanContext::new(
                parent.trace.into(),
                parent.parent.into(),
                TraceFlags::new(parent.flags),
                true,
                TraceState::default(),
            )),
            None => Context::new(),
        };
        let mut span = self
            .tracer
            .span_builder(format!("process {}", self.names.stream))
            .with_kind(SpanKind::Consumer)
            .with_start_time(batch.time(batch.worked.came))
            .with_attributes(self.attributes(batch, order))
            .start_with_context(&self.tracer, &parent);
        if !span.is_recording() {
            return false;
        }
        if let Some(error) = order.outcome.error {
            span.set_status(Status::error(error.to_owned()));
        }
        let context = parent.with_span(span);
        for step in &order.stages {
            self.emit_step(batch, step, &context);
        }
        let ended = order.stages.last().map_or(batch.now.0, |step| step.stage.ended);
        context.span().end_with_timestamp(batch.time(ended));
        true
    }

    fn emit_step(&self, batch: &Batch<'_>, step: &Step<'_>, parent: &Context) {
        let (name, kind) = match step.what {
            What::Lock => ("lock users".to_owned(), SpanKind::Internal),
            What::Write => ("write orders".to_owned(), SpanKind::Internal),
            What::Settle => (format!("settle {}", self.names.stream), SpanKind::Client),
        };
        let orders = i64::try_from(batch.worked.entries.len()).unwrap_or(i64::MAX);
        let mut attributes = vec![KeyValue::new("messaging.batch.message_count", orders)];
        if step.what == What::Settle {
            attributes.extend(self.messaging("settle"));
        }
        let mut span = self
            .tracer
            .span_builder(name)
            .with_kind(kind)
            .with_start_time(batch.time(step.stage.began))
            .with_attributes(attributes)
            .start_with_context(&self.tracer, parent);
        if let Some(error) = step.error {
            span.set_status(Status::error(error.to_owned()));
        }
        span.end_with_timestamp(batch.time(step.stage.ended));
    }

    fn messaging(&self, operation: &'static str) -> [KeyValue; 5] {
        [
            KeyValue::new("messaging.system", "redis"),
            KeyValue::new("messaging.operation.type", operation),
            KeyValue::new("messaging.operation.name", operation),
            KeyValue::new("messaging.destination.name", self.names.stream.clone()),
            KeyValue::new("messaging.consumer.group.name", self.names.group.clone()),
        ]
    }

    /// The attributes of an order's span. They have no user id: people and systems that see traces need not know the
    /// buyer.
    fn attributes(&self, batch: &Batch<'_>, order: &Traced<'_>) -> Vec<KeyValue> {
        let mut attributes = Vec::with_capacity(17);
        attributes.extend(self.messaging("process"));
        attributes.extend([
            KeyValue::new("messaging.client.id", batch.worked.consumer.to_owned()),
            KeyValue::new("messaging.message.id", order.entry.id.to_string()),
            KeyValue::new("tidegate.batch.id", batch.id.clone()),
            KeyValue::new("tidegate.delivery", batch.worked.origin.word()),
            KeyValue::new("tidegate.stream.wait_ms", wait_ms(order.entry, batch.time(batch.worked.came))),
            KeyValue::new("tidegate.outcome", order.outcome.word),
        ]);
        let status = order.outcome.status.map(OrderStatus::word);
        attributes.extend(status.map(|status| KeyValue::new("tidegate.order.status", status)));
        if let Some(order) = &order.order {
            attributes.extend([
                KeyValue::new("tidegate.order.id", order.id.to_string()),
                KeyValue::new("tidegate.voucher.id", order.voucher.to_string()),
                KeyValue::new("tidegate.quantity", order.quantity.get()),
            ]);
        }
        attributes.extend(order.outcome.reason.map(|reason| KeyValue::new("tidegate.reason", reason)));
        // The conventions use this name for the reason of an error.
        let wrong = order.outcome.error.and(order.outcome.reason);
        attributes.extend(wrong.map(|reason| KeyValue::new("error.type", reason)));
        attributes
    }
}

/// The time in milliseconds that the entry waited in the stream until the lane received it. Its id is from Redis'
/// clock, the end from this host's clock.
fn wait_ms(entry: &Entry, came: SystemTime) -> i64 {
    let came_ms = came.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    i64::try_from(came_ms.saturating_sub(entry.id.ms.into())).unwrap_or(i64::MAX)
}
