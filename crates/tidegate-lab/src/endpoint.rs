//! The address of a server, for its clients.

/// A server that clients connect to, directly or through a [`Proxy`](crate::Proxy).
pub trait Endpoint {
    /// The URL that clients connect to.
    fn url(&self) -> String;

    /// The port in that URL.
    fn port(&self) -> u16;
}
