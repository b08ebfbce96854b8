//! What the doctor found.

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Works, but something may be lost or slow one day.
    Warning,
    /// Orders will be lost, or nothing works.
    Error,
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
pub(super) struct Findings {
    store: &'static str,
    list: Vec<Finding>,
}

impl Findings {
    /// None yet about this store.
    pub(super) fn of(store: &'static str) -> Self {
        Self { store, list: Vec::new() }
    }

    /// All of them.
    pub(super) fn into_vec(self) -> Vec<Finding> {
        self.list
    }

    /// As it should be.
    pub(super) fn ok(&mut self, what: impl Into<String>) {
        self.add(Level::Ok, what.into(), None);
    }

    /// Works, but something may be lost or slow one day.
    pub(super) fn warning(&mut self, what: impl Into<String>, advice: impl Into<String>) {
        self.add(Level::Warning, what.into(), Some(advice.into()));
    }

    /// Orders will be lost, or nothing works.
    pub(super) fn error(&mut self, what: impl Into<String>, advice: impl Into<String>) {
        self.add(Level::Error, what.into(), Some(advice.into()));
    }

    fn add(&mut self, level: Level, what: String, advice: Option<String>) {
        self.list.push(Finding { store: self.store, level, what, advice });
    }
}
