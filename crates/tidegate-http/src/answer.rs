//! What is answered: a page, or a stream that goes on.

use std::{convert::Infallible, pin::Pin};

use futures_util::Stream;
use http_body_util::{Either, Full, StreamBody};
use hyper::{
    Response, StatusCode,
    body::{Bytes, Frame},
    header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue},
};

/// Content type of plain text.
pub const TEXT: &str = "text/plain; charset=utf-8";
/// Content type of JSON.
pub const JSON: &str = "application/json";

/// Parts of a body that come one after the other.
pub type Frames = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>;
/// What is answered.
pub type Answer = Response<Either<Full<Bytes>, StreamBody<Frames>>>;

/// A page.
pub fn answer(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Either::Left(Full::new(body.into())));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// It goes on after this, for as long as its client listens.
pub fn is_stream(answer: &Answer) -> bool {
    matches!(answer.body(), Either::Right(_))
}
