//! Ports that stay ours while a server is down, so that it can come back on the same one.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, Result, bail};

use crate::ground;

// Below the range from which Linux takes the ports of outgoing connections (32768..): a connection of anybody could
// otherwise sit on the port of a server that is just being restarted.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A port that no other lab on this machine takes while this value lives.
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
        let reservations = ground::root()?.join("ports");
        fs::create_dir_all(&reservations).context("Failed to create the folder of port reservations")?;
        // Processes begin at different places, so that they rarely meet.
        let start = (std::process::id() % u32::from(COUNT)) as u16;
        for _ in 0..COUNT {
            let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
            let number = FIRST + (start.wrapping_mul(17) % COUNT + step) % COUNT;
            let file =
                File::create(reservations.join(number.to_string())).context("Failed to reserve a port")?;
            if file.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Ok(Self { number, _reservation: Some(file) });
            }
        }
        bail!("No free port between {FIRST} and {}", FIRST + COUNT)
    }
}
