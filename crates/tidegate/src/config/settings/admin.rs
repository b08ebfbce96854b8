//! The section `[admin]`: the admin pages of a worker, their address and their token.

use std::{net::SocketAddr, ops::RangeInclusive};

use secrecy::SecretString;
use tidegate_http::AdminSettings;

use crate::config::reader::SettingsReader;

const TOKEN_LENGTH: RangeInclusive<usize> = 16..=256;

/// Reads the settings of the admin pages.
pub(super) fn read(reader: &mut SettingsReader<'_>) -> AdminSettings {
    let token = token(reader, "admin.token");
    AdminSettings {
        listen: listen(reader, &token),
        token: Some(token).filter(|token| !token.is_empty()).map(SecretString::from),
    }
}

/// The token that clients of a server have to send; empty if none is needed.
pub(super) fn token(reader: &mut SettingsReader<'_>, key: &'static str) -> String {
    let token = reader.text(key);
    let is_token = TOKEN_LENGTH.contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic());
    if !token.is_empty() && !is_token {
        reader.wrong(key, "must be 16 to 256 letters, digits or punctuation marks, without spaces");
    }
    token
}

fn listen(reader: &mut SettingsReader<'_>, token: &str) -> Option<SocketAddr> {
    let listen = reader.text("admin.listen");
    if listen == "off" {
        return None;
    }
    let Ok(address) = listen.parse::<SocketAddr>() else {
        reader.wrong("admin.listen", "must be IP:PORT, such as 127.0.0.1:8433 or [::1]:8433, or off");
        return None;
    };
    if !address.ip().to_canonical().is_loopback() && token.is_empty() {
        reader.wrong(
            "admin.listen",
            "is not a loopback address, so clients need a secret: set admin.token (TIDEGATE_ADMIN_TOKEN), for example \
             to the output of `openssl rand -hex 32`; or set this to an address on 127.0.0.1, or to off",
        );
    }
    Some(address)
}
