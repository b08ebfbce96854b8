//! The counts of the gate's requests, and their form on `/metrics`.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use serde_json::Value;
use tidegate_stream::Histogram;

use super::{
    problem::{AdmissionAttempt, Admitted, Problem, ProblemKind},
    tls::Tls,
};
use crate::metrics::{
    catalog,
    families::{Families, number},
};

/// The largest number of limits with a count of their own. Operators name the limits, so there are few; this bounds
/// the cost of mistakes.
const MOST_LIMITS: usize = 100;
const OTHER: &str = "other";

/// The counters of a gate: the numbers of order requests by outcome and by limit, the durations of these requests, and
/// the number of open connections. With the counters, `/metrics` shows the limit of connections and the end of the
/// certificate.
#[derive(Debug)]
pub struct GateCounters {
    admitted: [AtomicU64; AdmissionAttempt::ALL.len()],
    problems: [AtomicU64; ProblemKind::ALL.len()],
    /// The numbers of accepted events, and of refused ones by their problem.
    events: (AtomicU64, [AtomicU64; ProblemKind::ALL.len()]),
    by_limit: Mutex<BTreeMap<String, u64>>,
    connections: AtomicU64,
    most_connections: usize,
    tls: Option<Arc<Tls>>,
    times: Histogram,
}

impl GateCounters {
    /// Creates the counters of a gate that serves at most this many connections at the same time.
    pub fn new(most_connections: usize, tls: Option<Arc<Tls>>) -> Self {
        Self {
            admitted: [const { AtomicU64::new(0) }; _],
            problems: [const { AtomicU64::new(0) }; _],
            events: (AtomicU64::new(0), [const { AtomicU64::new(0) }; _]),
            by_limit: Mutex::default(),
            connections: AtomicU64::new(0),
            most_connections,
            tls,
            times: Histogram::of_times(),
        }
    }

    /// Counts a request for an order, with its answer and the time `took` until the answer.
    pub fn answered(&self, answer: &Result<Admitted, Problem>, took: Duration) {
        self.times.add_time(took);
        match answer {
            Ok(admitted) => _ = self.admitted[admitted.when as usize].fetch_add(1, Relaxed),
            Err(problem) => self.refused(problem),
        }
    }

    /// Counts a request that the gate refused at once, without measuring its duration.
    pub fn refused(&self, problem: &Problem) {
        count(&self.problems, problem);
        let Some(limit) = problem.members.get("limit").and_then(Value::as_str) else { return };
        let mut by_limit = self.by_limit.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !by_limit.contains_key(limit);
        let name = if is_new && by_limit.len() >= MOST_LIMITS { OTHER } else { limit };
        *by_limit.entry(name.to_owned()).or_default() += 1;
    }

    /// Counts an event that was reported, with the problem in its answer. None: the event is accepted.
    pub fn event(&self, problem: Option<&Problem>) {
        match problem {
            None => _ = self.events.0.fetch_add(1, Relaxed),
            Some(problem) => count(&self.events.1, problem),
        }
    }

    /// Counts a client connection that was opened.
    pub fn connected(&self) {
        self.connections.fetch_add(1, Relaxed);
    }

    /// Counts a client connection that was closed.
    pub fn disconnected(&self) {
        self.connections.fetch_sub(1, Relaxed);
    }

    pub(super) fn add_to(&self, families: &mut Families) {
        let counts = |counts: &[AtomicU64]| counts.iter().map(|it| it.load(Relaxed)).collect::<Vec<_>>();
        let (admitted, problems) = (counts(&self.admitted), counts(&self.problems));
        let words = AdmissionAttempt::ALL
            .map(AdmissionAttempt::word)
            .into_iter()
            .chain(ProblemKind::ALL.iter().map(|kind| kind.slug()));
        let outcomes = words.zip(admitted.into_iter().chain(problems));
        families.each(&catalog::GATE_REQUESTS, outcomes.map(|(word, count)| ([word], number(count))));
        let refused = ProblemKind::ALL.iter().zip(counts(&self.events.1));
        let accepted = ("accepted", self.events.0.load(Relaxed));
        let events = [accepted].into_iter().chain(refused.map(|(kind, count)| (kind.slug(), count)));
        families.each(&catalog::GATE_EVENTS, events.map(|(word, count)| ([word], number(count))));
        let by_limit = self.by_limit.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let by_limit = by_limit.iter().map(|(limit, count)| ([limit.as_str()], number(*count)));
        families.each(&catalog::GATE_LIMIT_REFUSALS, by_limit);
        families.one(&catalog::GATE_CONNECTIONS, number(self.connections.load(Relaxed)));
        families.one(&catalog::GATE_CONNECTIONS_LIMIT, number(self.most_connections as u64));
        let not_after = self.tls.as_ref().and_then(|tls| tls.not_after());
        families.each(&catalog::GATE_CERTIFICATE, not_after.map(|seconds| ([], number(seconds))));
        families.histograms(&catalog::GATE_DURATION, 1e6, [([], self.times.spread())]);
    }
}

fn count(problems: &[AtomicU64; ProblemKind::ALL.len()], problem: &Problem) {
    if let Some(at) = ProblemKind::ALL.iter().position(|kind| *kind == problem.kind) {
        problems[at].fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_told_apart_up_to_a_hundred() {
        let counters = GateCounters::new(1, None);
        for nth in 0..150 {
            let problem = Problem::from(ProblemKind::OverLimit).with("limit", format!("l{nth}"));
            counters.answered(&Err(problem), Duration::from_millis(1));
        }
        let by_limit = counters.by_limit.lock().unwrap().clone();
        assert_eq!((by_limit.len(), by_limit[OTHER], by_limit["l0"]), (MOST_LIMITS + 1, 50, 1));
        let over = ProblemKind::ALL.iter().position(|kind| *kind == ProblemKind::OverLimit).unwrap();
        assert_eq!(counters.problems[over].load(Relaxed), 150);
    }
}
