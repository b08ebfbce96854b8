//! The reading of request bodies: their type, their size, and the time in which they must arrive.

use std::time::Duration;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::{
    HeaderMap, Request,
    body::{Body, Bytes, Incoming},
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};
use tokio::time::timeout;

use super::problem::{Problem, ProblemKind};

/// Reads the body of a request that has one of the content types `types`, at most `most` bytes of it.
///
/// # Errors
/// Fails if the type, the encoding or the size of the body is wrong, or if the body does not arrive within `within`.
pub async fn read(
    request: Request<Incoming>,
    types: &[&str],
    most: usize,
    within: Duration,
) -> Result<Bytes, Problem> {
    if !has_type(request.headers(), types) {
        let types = types.join(" or ");
        return Err(ProblemKind::NotJson.because(format!("send the header Content-Type: {types}")));
    }
    if is_encoded(request.headers()) {
        return Err(ProblemKind::UnknownEncoding.into());
    }
    let too_large = || ProblemKind::TooLarge.because(format!("the body may have at most {} KiB", most >> 10));
    // If a body names its size and is too large, the gate refuses it without reading it.
    if request.body().size_hint().lower() > most as u64 {
        return Err(too_large());
    }
    match timeout(within, Limited::new(request.into_body(), most).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => Err(ProblemKind::BadJson.because(format!("the body is incomplete: {error}"))),
        Err(_) => Err(ProblemKind::TooSlow.into()),
    }
}

/// Whether a request says that its body has one of these content types.
pub fn has_type(headers: &HeaderMap, types: &[&str]) -> bool {
    let sent = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let sent = sent.split(';').next().unwrap_or_default().trim();
    types.iter().any(|known| sent.eq_ignore_ascii_case(known))
}

/// Whether the body has an encoding. `identity` means that it has none.
fn is_encoded(headers: &HeaderMap) -> bool {
    let codings =
        headers.get_all(CONTENT_ENCODING).iter().flat_map(|line| line.as_bytes().split(|it| *it == b','));
    codings
        .map(<[u8]>::trim_ascii)
        .any(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"))
}
