//! The creation of large futures on the heap.

use std::pin::Pin;

/// Creates a future with `make` and puts it on the heap.
///
/// `Box::pin(future)` has the future on the stack first: in the frame of the code that polls around it, with a copy
/// for each move that is not optimised away. The futures of queries to the stores are large, and several of them in
/// one frame overflow a stack.
pub(crate) fn on_heap<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::pin(make())
}
