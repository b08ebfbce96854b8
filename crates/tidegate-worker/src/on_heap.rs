//! Large futures are made on the heap.

use std::pin::Pin;

/// The future that `make` answers with, on the heap.
///
/// `Box::pin(future)` has the future on the stack first, in the frame of whoever polls around it, as often as code that is not
/// optimised copies it. Those that ask stores are large, and several of them in one frame overflow a stack.
pub(crate) fn on_heap<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::pin(make())
}
