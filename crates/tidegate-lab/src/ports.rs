//! Ports that stay reserved while a server is down, so that it can restart on the same one.

use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, Result, bail};
use tokio::net::TcpSocket;

use crate::data_folder;

// The first port is below the range from which Linux takes the ports of outgoing connections (32768..). Otherwise, any
// connection could occupy the port of a server that is just being restarted.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A port that no other lab on this machine uses while this value lives.
#[derive(Debug)]
pub(crate) struct ReservedPort {
    pub number: u16,
    /// None for a port that the caller has chosen.
    _reservation: Option<File>,
}

impl ReservedPort {
    pub fn fixed(number: u16) -> Self {
        Self { number, _reservation: None }
    }

    pub fn any() -> Result<Self> {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let reservations = data_folder::root()?.join("ports");
        fs::create_dir_all(&reservations).context("Failed to create the folder of port reservations")?;
        // Processes begin at different ports, so that they rarely collide.
        let start = (std::process::id() % u32::from(COUNT)) as u16;
        for _ in 0..COUNT {
            let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
            let number = FIRST + (start.wrapping_mul(17) % COUNT + step) % COUNT;
            let file =
                File::create(reservations.join(number.to_string())).context("Failed to reserve a port")?;
            if file.try_lock().is_ok() && bound(number).is_ok() {
                return Ok(Self { number, _reservation: Some(file) });
            }
        }
        bail!("No free port between {FIRST} and {}", FIRST + COUNT)
    }
}

/// Checks that a port is free. It binds the port and does not listen. While another thread starts a process, that
/// process has a copy of this socket until it runs its program. The copy must not keep a server from listening.
fn bound(number: u16) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, number).into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_copy_of_the_look_at_a_port_keeps_nobody_from_it_and_a_listener_does() {
        let port = ReservedPort::any().unwrap();
        let copy = bound(port.number).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.number)).unwrap();
        drop(copy);
        assert_eq!(bound(port.number).map(drop).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
    }
}
