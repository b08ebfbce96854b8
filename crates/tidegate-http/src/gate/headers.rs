//! The headers and the ids of requests, apart from those that name the caller.

use std::{fmt::Display, str::FromStr, time::Duration};

use hyper::HeaderMap;
use tidegate_orders::{scripts::IdempotencyKey, traceparent::Traceparent};

use super::{
    ordering::Attributes,
    problem::{Problem, ProblemKind},
};

/// The longest time for which a request may wait for an outcome.
const MOST_WAIT: Duration = Duration::from_secs(30);
const IDEMPOTENCY_KEY: &str = "idempotency-key";
const PREFER: &str = "prefer";

/// Reads the attributes of a request from its headers.
pub fn attributes(headers: &HeaderMap) -> Result<Attributes, Problem> {
    let traceparent = traceparent(headers);
    let mut keys = headers.get_all(IDEMPOTENCY_KEY).into_iter();
    let key = keys.next().map(|key| IdempotencyKey::parse(key.as_bytes())).transpose();
    match (key, keys.next()) {
        (Ok(key), None) => Ok(Attributes { key, traceparent }),
        (Err(why), _) => Err(ProblemKind::BadInput.because(format!("Idempotency-Key {why}"))),
        (_, Some(_)) => Err(ProblemKind::BadInput.because("the header Idempotency-Key is repeated")),
    }
}

/// The W3C trace context of the client.
pub fn traceparent(headers: &HeaderMap) -> Option<String> {
    let value = headers.get("traceparent")?;
    Traceparent::parse(value.as_bytes())?;
    value.to_str().ok().map(str::to_owned)
}

/// Parses an id in a path or in a query.
pub fn parsed<T: FromStr<Err: Display>>(text: &str, name: &str) -> Result<T, Problem> {
    text.parse().map_err(|error| ProblemKind::BadQuestion.because(format!("the {name} {text:?}: {error}")))
}

/// The time for which the client prefers to wait (RFC 7240), at most [`MOST_WAIT`]. A preference that makes no sense is
/// ignored, as the RFC says.
pub fn preferred_wait(headers: &HeaderMap) -> Duration {
    let lines = headers.get_all(PREFER).iter().filter_map(|line| line.to_str().ok());
    let wait = lines.flat_map(|line| line.split(',')).find_map(|preference| {
        let (name, value) = preference.split(';').next()?.split_once('=')?;
        name.trim().eq_ignore_ascii_case("wait").then(|| value.trim().trim_matches('"').parse::<u64>().ok())
    });
    Duration::from_secs(wait.flatten().unwrap_or_default()).min(MOST_WAIT)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn the_time_to_wait_is_the_first_that_a_client_prefers() {
        let wait = |lines: &[&'static str]| {
            let lines = lines.iter().map(|line| (PREFER.parse().unwrap(), HeaderValue::from_static(line)));
            let mut headers = HeaderMap::new();
            lines.for_each(|(name, value): (hyper::header::HeaderName, _)| _ = headers.append(name, value));
            preferred_wait(&headers).as_secs()
        };
        assert_eq!(wait(&["wait=5"]), 5);
        assert_eq!(wait(&["respond-async, Wait = \"7\"; x=1", "wait=9"]), 7);
        assert_eq!(wait(&["wait=100000"]), 30);
        for nothing in [&[][..], &["wait"], &["wait=-1"], &["wait=soon, wait=3"], &["waiting=5"]] {
            assert_eq!(wait(nothing), 0, "{nothing:?}");
        }
    }
}
