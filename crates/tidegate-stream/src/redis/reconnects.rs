//! Detection of reconnects: a connection may lead to another server afterwards.

use fred::{clients::Client, interfaces::EventInterface, types::config::Server};
use tokio::sync::broadcast::{
    Receiver,
    error::TryRecvError::{Closed, Empty},
};

/// A watcher of connections, which reports whether a connection has reconnected.
///
/// The client reports a reconnect before the first reply comes over the new connection. So if no reconnect is reported
/// after a reply, that reply came over the old connection.
#[derive(Debug)]
pub struct Reconnects(Vec<Receiver<Server>>);

impl Reconnects {
    pub(crate) fn of(clients: &[Client]) -> Self {
        Self(clients.iter().map(Client::reconnect_rx).collect())
    }

    /// Returns whether a watched connection has reconnected since the last call of this method.
    pub fn seen(&mut self) -> bool {
        let mut seen = false;
        for reconnects in &mut self.0 {
            // `Lagged` means that there were more reconnects than the channel holds.
            while !matches!(reconnects.try_recv(), Err(Empty | Closed)) {
                seen = true;
            }
        }
        seen
    }
}
