//! Tokens under which nobody works any more, though locks may stand under them.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Tokens that are remembered, at most: every lock call carries them.
const MOST: usize = 32;

/// The latest of them.
#[derive(Debug)]
pub struct AbandonedTokens {
    kept_for: Duration,
    tokens: Mutex<VecDeque<(Instant, String)>>,
}

impl AbandonedTokens {
    /// Of locks that last for `lease`. A call may be late by as much, and what it locks then lasts for another.
    pub fn new(lease: Duration) -> Self {
        Self { kept_for: lease * 2, tokens: Mutex::default() }
    }

    /// Nobody works under `token` any more.
    pub fn add(&self, token: String) {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.len() == MOST {
            tokens.pop_front();
        }
        tokens.push_back((Instant::now(), token));
    }

    /// All that may still matter.
    pub fn tokens(&self) -> Vec<String> {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        while tokens.front().is_some_and(|(since, _)| since.elapsed() > self.kept_for) {
            tokens.pop_front();
        }
        tokens.iter().map(|(_, token)| token.clone()).collect()
    }
}
