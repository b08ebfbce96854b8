//! The findings of checks: what was found, how serious it is, and what to do about it.

use serde::Serialize;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Everything is as it should be.
    Ok,
    /// The system works, but may lose something or become slow one day.
    Warning,
    /// Orders will be lost, or the system does not work.
    Error,
    /// The thing was not read here, so its state is unknown.
    NotRead,
}

/// A finding of a check, with advice.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The store that was checked: `redis` or `mysql`.
    pub store: &'static str,
    /// The severity of the finding.
    pub level: Level,
    /// The description of what was found.
    pub what: String,
    /// The advice what to do; None if nothing has to be done.
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
