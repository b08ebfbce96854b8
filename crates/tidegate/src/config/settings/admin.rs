//! The section `[admin]`: the admin pages of a worker and their address.

use std::net::SocketAddr;

use tidegate_http::{AdminSettings, TokenScope, TokenSettings};

use crate::config::reader::SettingsReader;

/// Reads the settings of the admin pages.
pub(super) fn read(reader: &mut SettingsReader<'_>, tokens: &TokenSettings) -> AdminSettings {
    AdminSettings { listen: listen(reader, tokens) }
}

fn listen(reader: &mut SettingsReader<'_>, tokens: &TokenSettings) -> Option<SocketAddr> {
    let listen = reader.text("admin.listen");
    if listen == "off" {
        return None;
    }
    let Ok(address) = listen.parse::<SocketAddr>() else {
        reader.wrong("admin.listen", "must be IP:PORT, such as 127.0.0.1:8433 or [::1]:8433, or off");
        return None;
    };
    if !address.ip().to_canonical().is_loopback() && !tokens.has(TokenScope::Read) {
        reader.wrong(
            "admin.listen",
            "is not a loopback address, so clients need a token: create one with `openssl rand -hex 32`, and add its \
             SHA-256 digest to [[tokens]] (TIDEGATE_TOKENS) with the scope `read`; or set this to an address on \
             127.0.0.1, or to off",
        );
    }
    Some(address)
}
