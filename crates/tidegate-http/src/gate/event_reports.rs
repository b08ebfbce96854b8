//! The reports of events, such as payments: one event in a request, or up to a thousand events.
//!
//! An event is accepted when Redis has its entry. A worker decides later what the event changes. So an event for an
//! unknown order is accepted, too: a worker then records that a payment must be refunded.

use std::{
    collections::{BTreeMap, HashSet},
    iter::Peekable,
    time::Duration,
    vec::IntoIter,
};

use futures_util::future::join_all;
use hyper::HeaderMap;
use serde_json::{Map, Value, json};
use tidegate_operations::order_progress::OrderProgress;
use tidegate_orders::{
    Event, OrderState,
    event::{EventOutcome, NewEvent},
    scripts::ScriptError,
};
use tidegate_stream::EntryId;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{
    body,
    counters::GateCounters,
    event_request::{self, BadEvent},
    event_sequences::EventSequences,
    following::Generation,
    gates::{Gates, PartitionGate},
    problem::{Problem, ProblemKind},
    refusals::Refusals,
};
use crate::answer::JSON;

/// The largest number of events in one request.
pub const MOST_EVENTS: usize = 1000;
/// The largest number of events that are appended at once.
const PAGE: usize = 100;
/// The largest number of requests that may wait for the outcomes of their events at the same time. Further requests are
/// answered without waiting.
const WAITING: usize = 1024;
/// The largest number of requests with many events that are read and answered at the same time, so that they take a
/// bounded memory.
const BATCHES: usize = 16;

/// An accepted event, with its outcome if the request has waited for it.
#[derive(Debug)]
pub struct Reported {
    pub event: Event,
    pub entry: EntryId,
    /// The outcome of the event. None: no worker has recorded the event yet.
    pub outcome: Option<EventOutcome>,
    /// The state of the order after its last event, if the outcome is known.
    pub state: Option<OrderState>,
    /// Whether the request has waited for the outcome.
    pub has_waited: bool,
}

impl Reported {
    /// An event that Redis has accepted, without its outcome.
    fn accepted(event: Event, entry: EntryId) -> Self {
        Self { event, entry, outcome: None, state: None, has_waited: false }
    }

    /// The path of the page about the order.
    pub fn location(&self) -> String {
        format!("/orders/{}?voucherId={}", self.event.order, self.event.voucher)
    }

    /// The accepted event as the members of a JSON object.
    pub fn document(&self) -> Map<String, Value> {
        let outcome = match self.outcome {
            None => "accepted",
            Some(EventOutcome::Rejected(_)) => "rejected",
            Some(outcome) => outcome.word(),
        };
        let reason = match self.outcome {
            Some(EventOutcome::Rejected(rejection)) => Some(rejection.word()),
            _ => None,
        };
        let mut document = Map::new();
        let mut add =
            |name: &str, value: Option<Value>| document.extend(value.map(|it| (name.to_owned(), it)));
        add("orderId", Some(self.event.order.to_string().into()));
        add("event", Some(self.event.kind.word().into()));
        add("ref", self.event.reference.as_ref().map(|reference| reference.as_str().into()));
        add("entry", Some(self.entry.to_string().into()));
        add("outcome", Some(outcome.into()));
        add("reason", reason.map(Value::from));
        add("state", self.state.map(|state| state.word().into()));
        document
    }
}

/// The part of the gate that appends events, and waits for their outcomes.
#[derive(Debug)]
pub struct EventReports {
    refusals: Refusals,
    waiting: Semaphore,
    batches: Semaphore,
}

impl EventReports {
    pub fn new(refusals: Refusals) -> Self {
        Self { refusals, waiting: Semaphore::new(WAITING), batches: Semaphore::new(BATCHES) }
    }

    /// Takes a permit for a request with many events, before its body is read.
    ///
    /// # Errors
    /// Fails if too many such requests are in progress.
    pub fn begin_batch(&self) -> Result<SemaphorePermit<'_>, Problem> {
        self.batches.try_acquire().map_err(|_| ProblemKind::TooManyQuestions.into())
    }

    /// Appends one event to the stream. If `wait` is above zero, waits that long for the outcome.
    pub async fn report(
        &self,
        generation: &Generation,
        new: NewEvent,
        wait: Duration,
    ) -> Result<Reported, Problem> {
        let event = new.event.clone();
        let gate = generation.gates.of_voucher(event.voucher).ok_or(ProblemKind::RedisAway)?;
        let appended = gate.redis.events().append(&[new]).await.pop().ok_or(ProblemKind::Unsure)?;
        let entry = appended.map_err(|error| self.problem(&event, &error))?;
        let asked = (event.order, Some(event.voucher));
        let permit = self.waiting.try_acquire().ok().filter(|_| !wait.is_zero());
        let found = match permit {
            Some(_) => {
                let outcome = |progress: &OrderProgress| Some((progress.outcome_of(entry)?, progress.state));
                generation.orders.wait_until(asked, wait, outcome).await
            }
            None => None,
        };
        let (outcome, state) = found.unzip();
        Ok(Reported { outcome, state, has_waited: permit.is_some(), ..Reported::accepted(event, entry) })
    }

    /// Appends many events, and answers each event. Events of one order keep their sequence: after an event that was not
    /// appended, no later event of this order is appended. After an event that names no order, no later event is
    /// appended. All events of an order must name the same voucher: the gate appends to all partitions at the same time.
    pub async fn report_many(
        &self,
        generation: &Generation,
        events: EventBatch,
        (traceparent, counters): (Option<String>, &GateCounters),
    ) -> String {
        let (mut answers, of_partitions) = assign(&generation.gates, events.events, traceparent.as_ref());
        let appending = of_partitions.into_values().map(|(gate, lines)| self.append_lines(gate, lines));
        answers.extend(join_all(appending).await.into_iter().flatten());
        answers.values().for_each(|answer| counters.event(answer.as_ref().err()));
        let answers = answers.iter().map(|(number, answer)| answer_of(number + 1, answer));
        events.form.join(answers.collect())
    }

    /// Appends the events of one partition, in pages that have each order at most once.
    async fn append_lines(&self, gate: &PartitionGate, lines: Vec<Line>) -> Vec<Answered> {
        let (mut answers, mut sequences) = (Vec::new(), EventSequences::default());
        let mut lines = lines.into_iter().peekable();
        while lines.peek().is_some() {
            let page = next_page(&mut lines, &sequences, &mut answers);
            let (numbers, events): (Vec<usize>, Vec<NewEvent>) = page.into_iter().unzip();
            let appended = gate.redis.events().append(&events).await;
            if appended.iter().any(|it| matches!(it, Err(ScriptError::Unreachable(_)))) {
                sequences.note_redis_away();
            }
            for ((number, NewEvent { event, .. }), appended) in numbers.into_iter().zip(events).zip(appended)
            {
                let answer = appended.map_err(|error| self.problem(&event, &error));
                if let Err(problem) = &answer {
                    sequences.note_failed(Some(event.order), number, problem);
                }
                answers.push((number, answer.map(|entry| Reported::accepted(event, entry))));
            }
        }
        answers
    }

    fn problem(&self, event: &Event, error: &ScriptError) -> Problem {
        match error {
            ScriptError::Unreachable(_) | ScriptError::Unconfirmed { .. } => {
                let why = "it is unknown whether Redis has the event: send the same event again";
                ProblemKind::Unsure.because(why).with("orderId", event.order.to_string())
            }
            error => self.refusals.not_asked(error),
        }
    }
}

/// The form of a request with many events, and of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchFormat {
    /// A JSON array of objects.
    Array,
    /// A JSON object in each line.
    Lines,
}

impl BatchFormat {
    /// The format of a request with these headers.
    pub fn of(headers: &HeaderMap) -> Self {
        if body::has_type(headers, &[JSON]) { Self::Array } else { Self::Lines }
    }

    /// The content type of answers in this form.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Array => JSON,
            Self::Lines => "application/jsonl",
        }
    }

    fn join(self, answers: Vec<Value>) -> String {
        match self {
            Self::Array => Value::Array(answers).to_string(),
            Self::Lines => answers.iter().map(|answer| format!("{answer}\n")).collect(),
        }
    }
}

/// The events of a request, each with its place in the request, counted from 0.
#[derive(Debug)]
pub struct EventBatch {
    form: BatchFormat,
    events: Vec<(usize, Result<Event, BadEvent>)>,
}

impl EventBatch {
    /// Parses the events of a body. An event may be wrong by itself.
    ///
    /// # Errors
    /// Fails if the body is no JSON array, but should be, or if there are too many events.
    pub fn read(body: &[u8], form: BatchFormat) -> Result<Self, Problem> {
        let events: Vec<_> = match form {
            BatchFormat::Array => event_request::read_all(body)?.into_iter().enumerate().collect(),
            BatchFormat::Lines => {
                let lines = body.split(|byte| *byte == b'\n').enumerate();
                let lines = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
                lines.map(|(number, line)| (number, event_request::read(line, None))).collect()
            }
        };
        if events.len() > MOST_EVENTS {
            let why = format!("a request may have at most {MOST_EVENTS} events");
            return Err(ProblemKind::TooLarge.because(why));
        }
        Ok(Self { form, events })
    }
}

/// The number of a line, counted from 0, and its event.
type Line = (usize, NewEvent);
/// The number of a line, and the answer to it.
type Answered = (usize, Result<Reported, Problem>);
/// For each partition by its number, the lines to append to it.
type OfPartitions<'a> = BTreeMap<usize, (&'a PartitionGate, Vec<Line>)>;

/// Assigns the events of a request to the partitions of their vouchers, and answers the events that are not to be
/// appended.
fn assign<'a>(
    gates: &'a Gates,
    events: Vec<(usize, Result<Event, BadEvent>)>,
    traceparent: Option<&String>,
) -> (BTreeMap<usize, Result<Reported, Problem>>, OfPartitions<'a>) {
    let (mut answers, mut of_partitions) = (BTreeMap::new(), OfPartitions::new());
    let mut sequences = EventSequences::default();
    for (number, read) in events {
        if let Ok(event) = &read
            && let Err(held) = sequences.check_not_held(event.order)
        {
            answers.insert(number, Err(held));
            continue;
        }
        let order = read.as_ref().map_or_else(|bad| bad.order, |event| Some(event.order));
        let assigned = read.map_err(|bad| Problem::from(bad.why)).and_then(|event| {
            sequences.check_and_note(number, &event)?;
            let gate = gates.of_voucher(event.voucher).ok_or(ProblemKind::RedisAway)?;
            Ok((event, gate))
        });
        match assigned {
            Err(problem) => {
                sequences.note_failed(order, number, &problem);
                answers.insert(number, Err(problem));
            }
            Ok((event, gate)) => {
                let partition = gate.redis.keys().partition().index();
                let (_, lines) = of_partitions.entry(partition).or_insert((gate, Vec::new()));
                lines.push((number, NewEvent { event, traceparent: traceparent.cloned() }));
            }
        }
    }
    (answers, of_partitions)
}

/// Takes the next lines to append together, and answers the lines that earlier events hold back.
fn next_page(
    lines: &mut Peekable<IntoIter<Line>>,
    sequences: &EventSequences,
    answers: &mut Vec<Answered>,
) -> Vec<Line> {
    let (mut page, mut orders) = (Vec::new(), HashSet::new());
    while page.len() < PAGE
        && let Some(line) = lines.next_if(|(_, new)| !orders.contains(&new.event.order))
    {
        let order = line.1.event.order;
        match sequences.check_not_held(order) {
            Err(held) => answers.push((line.0, Err(held))),
            Ok(()) => {
                orders.insert(order);
                page.push(line);
            }
        }
    }
    page
}

fn answer_of(number: usize, answer: &Result<Reported, Problem>) -> Value {
    let (status, members) = match answer {
        Ok(reported) => (202, reported.document()),
        Err(problem) => (problem.kind.status(), problem.members_of_document()),
    };
    let mut line = Map::new();
    line.insert("line".to_owned(), json!(number));
    line.insert("status".to_owned(), json!(status));
    line.extend(members);
    Value::Object(line)
}
