//! What a client needs to know of a server.

/// A server that clients can be sent to, directly or through a [`Proxy`](crate::Proxy).
pub trait Endpoint {
    /// Where clients connect to.
    fn url(&self) -> String;

    /// The port in that URL.
    fn port(&self) -> u16;
}
