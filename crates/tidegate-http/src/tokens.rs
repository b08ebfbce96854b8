//! The tokens that clients send, and the scopes that each token has. A token that is removed from the configuration file,
//! or whose digest file is removed, stops working within seconds.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    future::pending,
    mem,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::Context;
use hyper::{
    HeaderMap,
    header::{AUTHORIZATION, HeaderValue},
};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tidegate_compare::text::error_chain;
use tokio::{task::spawn_blocking, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    secret_file,
    settings::{DigestSource, TokenDigest, TokenEntry, TokenScope, TokenSettings},
};

/// The pause between two reads of the configuration file and of the files with digests.
const REREAD_EVERY: Duration = Duration::from_secs(1);

/// A token that works now.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    name: String,
    digest: TokenDigest,
    scopes: Vec<TokenScope>,
}

/// The reason why a request may not be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The request has no token, or a token that no entry of the list has.
    NoToken,
    /// The token has none of these scopes, one of which the request needs.
    NoScope(&'static [TokenScope]),
}

/// The tokens that work now. The gate and the admin pages of a process share them.
#[derive(Debug)]
pub struct Tokens {
    settings: TokenSettings,
    /// Whether clients need a token. After this process has had a token, it refuses all clients if the list becomes
    /// empty.
    is_needed: AtomicBool,
    current: RwLock<Arc<[Token]>>,
    /// The tokens of the last read. An editor may be writing the file, so a list counts only after two equal reads.
    last_read: Mutex<Vec<Token>>,
    /// Cancelled and replaced when the list changes.
    unchanged: RwLock<CancellationToken>,
}

impl Tokens {
    /// Creates the tokens of a process, and reads the files with digests.
    ///
    /// # Errors
    /// Fails if a file with a digest cannot be read, or contains no digest.
    pub fn open(settings: &TokenSettings) -> anyhow::Result<Arc<Self>> {
        let tokens = settings.list.iter().map(Token::read).collect::<anyhow::Result<Arc<[_]>>>()?;
        let is_needed = AtomicBool::new(!tokens.is_empty());
        let current = RwLock::new(tokens);
        let (last_read, unchanged) = (Mutex::default(), RwLock::default());
        Ok(Arc::new(Self { settings: settings.clone(), is_needed, current, last_read, unchanged }))
    }

    /// Checks that a request has a token with one of the scopes. If no token was ever configured, every request passes.
    ///
    /// # Errors
    /// Fails with the reason why the request may not be answered.
    pub fn check(&self, headers: &HeaderMap, scopes: &'static [TokenScope]) -> Result<(), Denied> {
        if !self.is_needed.load(Relaxed) {
            return Ok(());
        }
        let token = self.token_of(headers).ok_or(Denied::NoToken)?;
        let is_permitted = scopes.iter().any(|scope| token.scopes.contains(scope));
        is_permitted.then_some(()).ok_or(Denied::NoScope(scopes))
    }

    /// The signal that is given when the list changes. An answer that takes long ends then, and the client asks again.
    pub fn change(&self) -> CancellationToken {
        self.unchanged.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Finds the token of a request. The search compares digests, and compares with all tokens in the same time, however
    /// many bytes are right.
    fn token_of(&self, headers: &HeaderMap) -> Option<Token> {
        let sent = headers.get(AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
        let (scheme, sent) = sent.split_at_checked("Bearer ".len())?;
        if !scheme.eq_ignore_ascii_case(b"Bearer ") {
            return None;
        }
        let digest = Sha256::digest(sent);
        let tokens = self.current();
        let mut found = None;
        for token in &*tokens {
            if bool::from(token.digest.bytes().ct_eq(digest.as_slice())) {
                found = Some(token.clone());
            }
        }
        found
    }

    /// Reads the list of tokens and the files with digests again and again, without end.
    pub async fn follow(self: Arc<Self>) -> Infallible {
        let has_files = self.settings.list.iter().any(|token| matches!(token.digest, DigestSource::File(_)));
        if self.settings.reread.is_none() && !has_files {
            return pending().await;
        }
        let mut told = BTreeSet::new();
        loop {
            sleep(REREAD_EVERY).await;
            let tokens = Arc::clone(&self);
            if let Ok(errors) = spawn_blocking(move || tokens.reread()).await {
                for error in errors.difference(&told) {
                    tracing::warn!(error, "cannot read a token again: correct the configuration file");
                }
                told = errors;
            }
        }
    }

    /// Reads the tokens again, and returns the errors. If the configuration file has a mistake, all tokens stay as they
    /// are; a token whose digest cannot be read stops working.
    fn reread(&self) -> BTreeSet<String> {
        let list = match &self.settings.reread {
            Some(reread) => match reread() {
                Ok(list) => list,
                Err(error) => return BTreeSet::from([error_chain(&error)]),
            },
            None => self.settings.list.clone(),
        };
        let (mut tokens, mut errors) = (Vec::new(), BTreeSet::new());
        for entry in &list {
            match Token::read(entry) {
                Ok(token) => tokens.push(token),
                Err(error) => _ = errors.insert(error_chain(&error)),
            }
        }
        let before =
            mem::replace(&mut *self.last_read.lock().unwrap_or_else(PoisonError::into_inner), tokens.clone());
        if before == tokens && *self.current() != *tokens {
            let names: Vec<&str> = tokens.iter().map(|token| &*token.name).collect();
            tracing::info!(tokens = names.join(", "), "the list of tokens has changed");
            self.is_needed.fetch_or(!list.is_empty(), Relaxed);
            *self.current.write().unwrap_or_else(PoisonError::into_inner) = tokens.into();
            mem::take(&mut *self.unchanged.write().unwrap_or_else(PoisonError::into_inner)).cancel();
        }
        errors
    }

    fn current(&self) -> Arc<[Token]> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Token {
    fn read(entry: &TokenEntry) -> anyhow::Result<Self> {
        let TokenEntry { name, digest, scopes } = entry.clone();
        let digest = match digest {
            DigestSource::Given(digest) => digest,
            DigestSource::File(path) => {
                let read = || secret_file::read(&path)?.parse().map_err(|why: &str| anyhow::anyhow!(why));
                read().with_context(|| {
                    format!("Failed to read the digest of the token {name:?} in {}", path.display())
                })?
            }
        };
        Ok(Self { name, digest, scopes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, secret: &str, scopes: &[TokenScope]) -> TokenEntry {
        let digits: String = Sha256::digest(secret).iter().map(|byte| format!("{byte:02x}")).collect();
        let digest = DigestSource::Given(digits.parse().unwrap());
        TokenEntry { name: name.to_owned(), digest, scopes: scopes.to_vec() }
    }

    fn sent(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(value).unwrap())])
    }

    const ORDER: &[TokenScope] = &[TokenScope::Order];
    const READ: &[TokenScope] = &[TokenScope::Order, TokenScope::Read];

    #[test]
    fn a_token_permits_what_its_scopes_say_and_no_token_permits_nothing() {
        let list =
            vec![entry("shop", "abc", &[TokenScope::Order]), entry("page", "def", &[TokenScope::Read])];
        let tokens = Tokens::open(&TokenSettings { list, reread: None }).unwrap();
        assert_eq!(tokens.check(&sent("Bearer abc"), ORDER), Ok(()));
        assert_eq!(tokens.check(&sent("bearer abc"), READ), Ok(()), "the scheme has no case");
        assert_eq!(tokens.check(&sent("Bearer def"), READ), Ok(()));
        assert_eq!(tokens.check(&sent("Bearer def"), ORDER), Err(Denied::NoScope(ORDER)));
        for wrong in ["Bearer abcd", "Bearer ", "Basic abc", "abc", "Bearer  abc"] {
            assert_eq!(tokens.check(&sent(wrong), READ), Err(Denied::NoToken), "{wrong}");
        }
        assert_eq!(tokens.check(&HeaderMap::new(), READ), Err(Denied::NoToken));
    }

    #[test]
    fn without_tokens_all_requests_pass_until_there_was_one() {
        let list = Arc::new(Mutex::new(Ok(Vec::new())));
        let reread = {
            let list = Arc::clone(&list);
            Arc::new(move || list.lock().unwrap().clone().map_err(|why: &str| anyhow::anyhow!(why)))
        };
        let tokens = Tokens::open(&TokenSettings { list: Vec::new(), reread: Some(reread) }).unwrap();
        let reread = || {
            let _first = tokens.reread();
            tokens.reread()
        };
        assert_eq!(tokens.check(&HeaderMap::new(), ORDER), Ok(()));
        *list.lock().unwrap() = Ok(vec![entry("shop", "abc", &[TokenScope::Order])]);
        assert!(tokens.reread().is_empty());
        assert_eq!(tokens.check(&HeaderMap::new(), ORDER), Ok(()), "the file may be half written");
        assert!(reread().is_empty());
        assert_eq!(tokens.check(&HeaderMap::new(), ORDER), Err(Denied::NoToken));
        *list.lock().unwrap() = Err("a mistake in the file");
        assert_eq!(reread().len(), 1);
        assert_eq!(tokens.check(&sent("Bearer abc"), ORDER), Ok(()), "a mistake takes no token away");
        *list.lock().unwrap() = Ok(Vec::new());
        assert!(reread().is_empty());
        assert_eq!(tokens.check(&sent("Bearer abc"), ORDER), Err(Denied::NoToken), "it was removed");
        assert_eq!(
            tokens.check(&HeaderMap::new(), ORDER),
            Err(Denied::NoToken),
            "an empty list opens no door"
        );
    }
}
