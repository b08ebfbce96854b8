//! What was found, how bad it is, and what to do about it.

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Works, but something may be lost or slow one day.
    Warning,
    /// Orders will be lost, or nothing works.
    Error,
    /// It was not read here, so nothing is said of it.
    NotRead,
}

/// What was found, and what to do about it.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// `redis` or `mysql`.
    pub store: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What was found.
    pub what: String,
    /// What to do; None where all is well.
    pub advice: Option<String>,
}

/// The findings about one store, in the order of the checks.
#[derive(Debug)]
pub(crate) struct Findings {
    store: &'static str,
    list: Vec<Finding>,
}

impl Findings {
    /// None yet about this store.
    pub(crate) fn of(store: &'static str) -> Self {
        Self { store, list: Vec::new() }
    }

    /// All of them.
    pub(crate) fn into_vec(self) -> Vec<Finding> {
        self.list
    }

    /// As it should be.
    pub(crate) fn ok(&mut self, what: impl Into<String>) {
        self.add(Level::Ok, what.into(), None);
    }

    /// Works, but something may be lost or slow one day.
    pub(crate) fn warning(&mut self, what: impl Into<String>, advice: impl Into<String>) {
        self.add(Level::Warning, what.into(), Some(advice.into()));
    }

    /// Orders will be lost, or nothing works.
    pub(crate) fn error(&mut self, what: impl Into<String>, advice: impl Into<String>) {
        self.add(Level::Error, what.into(), Some(advice.into()));
    }

    /// It was not read here, so nothing is said of it.
    pub(crate) fn not_read(&mut self, what: impl Into<String>, advice: impl Into<String>) {
        self.add(Level::NotRead, what.into(), Some(advice.into()));
    }

    /// What another check has found.
    pub(crate) fn take(&mut self, finding: Finding) {
        self.list.push(Finding { store: self.store, ..finding });
    }

    fn add(&mut self, level: Level, what: String, advice: Option<String>) {
        self.list.push(Finding { store: self.store, level, what, advice });
    }
}
