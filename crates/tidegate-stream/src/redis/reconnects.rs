//! Notices that a connection was made anew, perhaps to another server.

use fred::{clients::Client, interfaces::EventInterface, types::config::Server};
use tokio::sync::broadcast::{
    Receiver,
    error::TryRecvError::{Closed, Empty},
};

/// Tells of some connections whether one of them was made anew.
///
/// The client says so before the first reply comes over the new connection. So where nothing is said after a reply, that came over
/// the connection of before.
#[derive(Debug)]
pub struct Reconnects(Vec<Receiver<Server>>);

impl Reconnects {
    pub(crate) fn of(clients: &[Client]) -> Self {
        Self(clients.iter().map(Client::reconnect_rx).collect())
    }

    /// Whether one was made anew since this was last asked.
    pub fn seen(&mut self) -> bool {
        let mut seen = false;
        for reconnects in &mut self.0 {
            // Lagged means that there were more of them than the channel holds.
            while !matches!(reconnects.try_recv(), Err(Empty | Closed)) {
                seen = true;
            }
        }
        seen
    }
}
