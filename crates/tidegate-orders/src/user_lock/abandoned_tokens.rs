//! Tokens of locks whose worker has stopped using them, although the locks may still exist.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The most tokens that are remembered. Every lock call sends all of them.
const MOST: usize = 32;

/// The newest tokens of user locks that no batch needs any more, but that may still exist in Redis.
#[derive(Debug)]
pub struct AbandonedTokens {
    kept_for: Duration,
    tokens: Mutex<VecDeque<(Instant, String)>>,
}

impl AbandonedTokens {
    /// Creates an empty list of abandoned lock tokens, for locks that expire after the time `lease`. Tokens stay in the
    /// list for twice this time, because a call may reach Redis late.
    pub fn new(lease: Duration) -> Self {
        Self { kept_for: lease * 2, tokens: Mutex::default() }
    }

    /// Adds the token `token` of locks that no batch needs any more.
    pub fn add(&self, token: String) {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.len() == MOST {
            tokens.pop_front();
        }
        tokens.push_back((Instant::now(), token));
    }

    /// The tokens in the list whose locks may still exist in Redis.
    pub fn tokens(&self) -> Vec<String> {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        while tokens.front().is_some_and(|(since, _)| since.elapsed() > self.kept_for) {
            tokens.pop_front();
        }
        tokens.iter().map(|(_, token)| token.clone()).collect()
    }
}
