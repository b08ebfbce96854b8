//! The HTTP answers of this crate: a page, or a stream.

use std::{convert::Infallible, pin::Pin};

use futures_util::Stream;
use http_body_util::{Either, Full, StreamBody};
use hyper::{
    Response, StatusCode,
    body::{Bytes, Frame},
    header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue},
};

/// The value of the header `Content-Type` for plain text.
pub const TEXT: &str = "text/plain; charset=utf-8";
/// The value of the header `Content-Type` for JSON.
pub const JSON: &str = "application/json";

/// The parts of an HTTP body that is sent as a stream.
pub type Frames = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>;
/// An HTTP answer with a page or a stream as its body.
pub type Answer = Response<Either<Full<Bytes>, StreamBody<Frames>>>;

/// Creates an HTTP answer that has a page as its body.
pub fn answer(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Either::Left(Full::new(body.into())));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// Whether this answer is a stream, which stays open as long as the client reads.
pub fn is_stream(answer: &Answer) -> bool {
    matches!(answer.body(), Either::Right(_))
}
