//! Tokens of locks whose worker has stopped using them, although the locks may still exist.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The most tokens that are remembered. Every lock call sends all of them.
const MOST: usize = 32;

/// The newest abandoned tokens of locks.
#[derive(Debug)]
pub struct AbandonedTokens {
    kept_for: Duration,
    tokens: Mutex<VecDeque<(Instant, String)>>,
}

impl AbandonedTokens {
    /// Remembers tokens of locks that last for `lease`. A call may be late by one lease, and its locks then last for
    /// another.
    pub fn new(lease: Duration) -> Self {
        Self { kept_for: lease * 2, tokens: Mutex::default() }
    }

    /// Remembers that no batch uses `token` any more.
    pub fn add(&self, token: String) {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.len() == MOST {
            tokens.pop_front();
        }
        tokens.push_back((Instant::now(), token));
    }

    /// The tokens whose locks may still exist.
    pub fn tokens(&self) -> Vec<String> {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        while tokens.front().is_some_and(|(since, _)| since.elapsed() > self.kept_for) {
            tokens.pop_front();
        }
        tokens.iter().map(|(_, token)| token.clone()).collect()
    }
}
