//! Idempotency keys, so that a repeated request asks for the same order: `lua/admit_by_key.lua` and
//! `lua/admit_limited_by_key.lua`, one call for an admission ([the HTTP
//! header](https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/)).

use std::{fmt::Write, time::Duration};

use fred::{
    clients::Pool,
    error::Error,
    types::{Key, Value},
};
use sha2::{Digest, Sha256};
use tidegate_stream::Script;

use super::Admission;
use crate::{keys::Keys, order::OrderId};

/// The time for which Redis keeps an idempotency key after the last request with the key.
pub const KEY_KEPT: Duration = Duration::from_secs(24 * 3600);
/// The bytes of a digest; Redis gets it as twice as many letters. So no two keys have the same digest by chance.
const DIGEST_BYTES: usize = 16;
const MOST_BYTES: usize = 128;

/// An idempotency key, which the caller chooses: 1 to 128 visible ASCII characters. The same text from another user, or
/// for another voucher, is another key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey(String);

/// The error for a text that is not an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be 1 to {MOST_BYTES} visible characters of ASCII")]
pub struct BadIdempotencyKey;

impl IdempotencyKey {
    /// Parses an idempotency key, with or without the quotes that the HTTP header has around it.
    ///
    /// # Errors
    /// If the text is not an idempotency key.
    pub fn parse(text: &[u8]) -> Result<Self, BadIdempotencyKey> {
        let bare = text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")).unwrap_or(text);
        let is_key = (1..=MOST_BYTES).contains(&bare.len()) && bare.iter().all(u8::is_ascii_graphic);
        let key = std::str::from_utf8(bare).ok().filter(|_| is_key).ok_or(BadIdempotencyKey)?;
        Ok(Self(key.to_owned()))
    }
}

/// An order, and the reply about it.
#[derive(Debug)]
pub(super) struct Decided<T> {
    /// The id of the order. If an earlier request was made under the same key, it is the order of that request.
    pub(super) order: OrderId,
    pub(super) reply: T,
}

/// The idempotency key of a request in the form that Redis has it.
#[derive(Clone, Debug)]
pub(super) struct RequestKey {
    key: Key,
    digest: String,
}

impl RequestKey {
    pub(super) fn new(keys: &Keys, key: &IdempotencyKey, admission: &Admission) -> Self {
        let key = keys.idempotency(admission.voucher, admission.user, &digest(key.0.as_bytes()));
        Self { key, digest: digest_of(admission) }
    }
}

/// A script that admits orders, and the script that does the same under an idempotency key.
#[derive(Debug)]
pub(super) struct AdmitScript {
    plain: Script,
    by_key: Script,
}

impl AdmitScript {
    pub(super) fn admit() -> Self {
        Self {
            plain: Script::new("admit", include_str!("../../../../lua/admit.lua")),
            by_key: Script::new("admit_by_key", include_str!("../../../../lua/admit_by_key.lua")),
        }
    }

    pub(super) fn admit_limited() -> Self {
        Self {
            plain: Script::new("admit_limited", include_str!("../../../../lua/admit_limited.lua")),
            by_key: Script::new(
                "admit_limited_by_key",
                include_str!("../../../../lua/admit_limited_by_key.lua"),
            ),
        }
    }

    /// Replaces the script for requests without a key by another one.
    pub(super) fn replaced_by(self, plain: Script) -> Self {
        Self { plain, ..self }
    }

    /// Requests an order with these keys and arguments of the script. `order` is the first of the arguments.
    ///
    /// # Errors
    /// The error that Redis answers.
    pub(super) async fn call(
        &self,
        pool: &Pool,
        order: OrderId,
        key: Option<&RequestKey>,
        mut keys: Vec<Key>,
        mut args: Vec<Value>,
    ) -> Result<Decided<Value>, Error> {
        let Some(RequestKey { key, digest }) = key else {
            let reply = self.plain.call(pool, keys, args).await?;
            return Ok(Decided { order, reply });
        };
        keys.push(key.clone());
        args.extend([digest.as_str().into(), (KEY_KEPT.as_millis() as i64).into()]);
        let reply = self.by_key.call(pool, keys, args).await?;
        if let Value::Array(parts) = &reply
            && let [reply, order] = &parts[..]
            && let Some(order) = order.as_str().and_then(|order| order.parse().ok())
        {
            return Ok(Decided { order, reply: reply.clone() });
        }
        Ok(Decided { order, reply })
    }
}

/// The digest of all parts of a request that the name of the key does not hold.
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
