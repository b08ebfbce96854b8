//! Keys that callers choose themselves, so that a request which is sent again asks for the same order:
//! `lua/remember_key.lua` and `lua/keep_key.lua`
//! ([the HTTP header](https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/)).

use std::{fmt::Write, time::Duration};

use fred::types::{Key, Value};
use sha2::{Digest, Sha256};
use tidegate_stream::Script;

use super::{Admission, Gate, GateError, understood};
use crate::order::OrderId;

/// How long a key is remembered.
pub const KEY_KEPT: Duration = Duration::from_secs(24 * 3600);
/// How long where its order was refused. Whoever asks again meanwhile makes it a day again.
const KEPT_OF_REFUSED: Duration = Duration::from_secs(60);
/// Bytes of a digest, of which Redis gets twice as many letters: nobody meets the key of another by chance.
const DIGEST_BYTES: usize = 16;
const MOST_BYTES: usize = 128;

/// A key that a caller chose: 1 to 128 visible characters of ASCII. It is the caller's own: another user's, or of another voucher, is
/// another key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey(String);

/// Why a text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be 1 to {MOST_BYTES} visible characters of ASCII")]
pub struct BadIdempotencyKey;

impl IdempotencyKey {
    /// Of a text as it is, or in quotes, as the header has it.
    ///
    /// # Errors
    /// When it is no key.
    pub fn parse(text: &[u8]) -> Result<Self, BadIdempotencyKey> {
        let bare = text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")).unwrap_or(text);
        let is_key = (1..=MOST_BYTES).contains(&bare.len()) && bare.iter().all(u8::is_ascii_graphic);
        let key = std::str::from_utf8(bare).ok().filter(|_| is_key).ok_or(BadIdempotencyKey)?;
        Ok(Self(key.to_owned()))
    }
}

/// For which order a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyReply {
    /// For the order that was asked for now: the key is new.
    New,
    /// For this one, which was asked for before.
    Known(OrderId),
    /// Something else was asked for under it: other units, other subjects.
    OtherRequest,
}

/// The scripts.
#[derive(Clone, Debug)]
pub(super) struct KeyCalls {
    remember: Script,
    keep: Script,
}

impl KeyCalls {
    pub(super) fn new() -> Self {
        Self {
            remember: Script::new("remember_key", include_str!("../../../../lua/remember_key.lua")),
            keep: Script::new("keep_key", include_str!("../../../../lua/keep_key.lua")),
        }
    }
}

impl Gate {
    /// Remembers that this order is asked for under this key, for a day; or tells for which it was asked before.
    ///
    /// # Errors
    /// See [`GateError`]. May be asked again.
    pub async fn remember_key(
        &self,
        key: &IdempotencyKey,
        admission: &Admission,
    ) -> Result<KeyReply, GateError> {
        let kept_ms = KEY_KEPT.as_millis() as i64;
        let args: Vec<Value> =
            vec![admission.order.get().into(), digest_of(admission).into(), kept_ms.into()];
        let reply = self.key_calls.remember.call(&self.pool, vec![self.key_of(key, admission)], args).await?;
        let unexpected =
            || GateError::Unexpected { place: "remember_key.lua".to_owned(), got: format!("{reply:?}") };
        match &reply {
            Value::Integer(2) => Ok(KeyReply::OtherRequest),
            Value::Array(parts) => match parts.as_slice() {
                [Value::Integer(0), _] => Ok(KeyReply::New),
                [Value::Integer(1), order] => {
                    let order = order.as_str().and_then(|order| order.parse().ok());
                    Ok(KeyReply::Known(order.ok_or_else(unexpected)?))
                }
                _ => Err(unexpected()),
            },
            _ => Err(unexpected()),
        }
    }

    /// Keeps the key of an order: for a day from now where the journal holds the order, also where a failover took the key along.
    /// Otherwise for a minute if it `is_decided` that the order was refused, and for a day if it may still be admitted.
    ///
    /// # Errors
    /// See [`GateError`]. May be asked again.
    pub async fn keep_key(
        &self,
        key: &IdempotencyKey,
        admission: &Admission,
        is_decided: bool,
    ) -> Result<(), GateError> {
        let keys = vec![self.key_of(key, admission), self.keys.journal(admission.voucher)];
        let kept_of_refused = if is_decided { KEPT_OF_REFUSED } else { KEY_KEPT };
        let [kept_ms, refused_ms] = [KEY_KEPT, kept_of_refused].map(|span| span.as_millis() as i64);
        let args: Vec<Value> = vec![
            admission.order.get().into(),
            kept_ms.into(),
            refused_ms.into(),
            digest_of(admission).into(),
            admission.user.get().into(),
        ];
        let reply = self.key_calls.keep.call(&self.pool, keys, args).await?;
        understood("keep_key.lua", &reply, |code| (code == 0 || code == 1).then_some(()))
    }

    fn key_of(&self, key: &IdempotencyKey, admission: &Admission) -> Key {
        self.keys.idempotency(admission.voucher, admission.user, &digest(key.0.as_bytes()))
    }
}

/// Of all that is asked for and does not stand in the name of the key.
fn digest_of(admission: &Admission) -> String {
    let mut subjects: Vec<_> = admission.subjects.iter().collect();
    subjects.sort_unstable_by_key(|(name, _)| name.as_str());
    let mut asked = format!("{}", admission.quantity);
    for (name, value) in subjects {
        // Neither has a line break.
        let _infallible = write!(asked, "\n{name}\n{value}");
    }
    digest(asked.as_bytes())
}

fn digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().take(DIGEST_BYTES).fold(String::with_capacity(2 * DIGEST_BYTES), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{limits::Subjects, order::Quantity};

    #[test]
    fn a_key_is_taken_with_or_without_quotes_and_nothing_else_is_one() {
        let key = IdempotencyKey::parse(b"8e03978e-40d5").unwrap();
        assert_eq!(IdempotencyKey::parse(b"\"8e03978e-40d5\""), Ok(key));
        let long = [b'x'; 129];
        for bad in [&b""[..], b"\"\"", b"a b", b"a\n", b"\xc3\xa4", &long] {
            assert_eq!(IdempotencyKey::parse(bad), Err(BadIdempotencyKey), "{bad:?}");
        }
        assert!(IdempotencyKey::parse(&long[1..]).is_ok());
    }

    #[test]
    fn the_order_of_subjects_is_none_of_the_request_and_all_else_is() {
        let admission = |quantity: i64, subjects: &[(&str, &str)]| {
            let with = |all: Subjects, (name, value): &(&str, &str)| all.with(name, value).unwrap();
            Admission {
                order: 1.try_into().unwrap(),
                user: 2.try_into().unwrap(),
                voucher: 3.try_into().unwrap(),
                quantity: Quantity::try_from(quantity).unwrap(),
                subjects: subjects.iter().fold(Subjects::none(), with),
                traceparent: None,
            }
        };
        let one = digest_of(&admission(1, &[("phone", "a"), ("address", "b")]));
        assert_eq!(one, digest_of(&admission(1, &[("address", "b"), ("phone", "a")])));
        assert_eq!(one.len(), 2 * DIGEST_BYTES);
        for other in [
            admission(2, &[("phone", "a"), ("address", "b")]),
            admission(1, &[("phone", "b"), ("address", "a")]),
            admission(1, &[("phone", "a")]),
        ] {
            assert_ne!(one, digest_of(&other), "{other:?}");
        }
    }
}
