//! The findings of checks: what was found, how serious it is, and what to do about it.

use serde::Serialize;

/// The severity of a check's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Everything is as it should be.
    Ok,
    /// The system works, but may lose data or become slow later.
    Warning,
    /// Orders will be lost, or the system does not work.
    Error,
    /// The data was not read, so its state is unknown.
    NotRead,
}

/// A result of a check, with advice for the operator.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The part that was checked: `redis` or `mysql`; before a sale, also `sale` (in both stores) or `gate`.
    pub store: &'static str,
    /// The severity of the check's result.
    pub level: Level,
    /// The description of the problem, or the confirmation that there is no problem.
    pub what: String,
    /// The advice to the operator; None: the operator has nothing to do.
    pub advice: Option<String>,
}

/// The findings about one store, in the order of the checks.
#[derive(Debug)]
pub(crate) struct Findings {
    store: &'static str,
    list: Vec<Finding>,
}

impl Findings {
    /// Creates an empty list of findings about this store.
    pub(crate) fn of(store: &'static str) -> Self {
        Self { store, list: Vec::new() }
    }

    /// Returns all findings in their order.
    pub(crate) fn into_vec(self) -> Vec<Finding> {
        self.list
    }

    /// Adds a finding that everything is as it should be.
    pub(crate) fn ok(&mut self, what: impl Into<String>) {
        self.add(Level::Ok, what.into(), None);
    }

    /// Adds a finding that something may be lost or slow one day.
    pub(crate) fn warning(&mut self, what: impl Into<String>, advice: impl Into<String>) {
        self.add(Level::Warning, what.into(), Some(advice.into()));
    }

    /// Adds a finding that orders will be lost, or that nothing works.
    pub(crate) fn error(&mut self, what: impl Into<String>, advice: impl Into<String>) {
        self.add(Level::Error, what.into(), Some(advice.into()));
    }

    /// Adds a finding that something was not read here.
    pub(crate) fn not_read(&mut self, what: impl Into<String>, advice: impl Into<String>) {
        self.add(Level::NotRead, what.into(), Some(advice.into()));
    }

    /// Adds the finding of another check.
    pub(crate) fn take(&mut self, finding: Finding) {
        self.list.push(Finding { store: self.store, ..finding });
    }

    fn add(&mut self, level: Level, what: String, advice: Option<String>) {
        self.list.push(Finding { store: self.store, level, what, advice });
    }
}
