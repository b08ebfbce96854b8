//! `[gate]`: the gate over HTTP, and what an admission waits for.

use std::{net::SocketAddr, num::NonZeroU32};

use secrecy::SecretString;
use tidegate_operations::brake::BrakeSettings;
use tidegate_orders::gate::{Confirmation, ConfirmedIn};
use tidegate_worker::{CallerSettings, GateSettings};

use super::{HOUR_MS, admin::token};
use crate::config::reader::Reader;

/// Reads where the gate listens, and to whom.
pub(super) fn read(reader: &mut Reader<'_>) -> GateSettings {
    let token = token(reader, "gate.token");
    GateSettings {
        listen: listen(reader, &token),
        token: Some(token).filter(|token| !token.is_empty()).map(SecretString::from),
        connections: reader.number("gate.connections", 1..=1_000_000),
        read_within: reader.millis("gate.read_ms", 100..=60_000),
        tutorial_login: tutorial_login(reader),
        sold_out_for: reader.millis("gate.sold_out_ms", 0..=10_000),
        callers: callers(reader),
    }
}

fn listen(reader: &mut Reader<'_>, token: &str) -> SocketAddr {
    let listen = reader.text("gate.listen").parse::<SocketAddr>();
    if listen.is_err() {
        reader.wrong("gate.listen", "must be IP:PORT, such as 127.0.0.1:8434 or [::1]:8434");
    }
    let listen = listen.unwrap_or_else(|_| SocketAddr::from(([127, 0, 0, 1], 8434)));
    if !listen.ip().to_canonical().is_loopback() && token.is_empty() {
        reader.wrong(
            "gate.listen",
            "is not a loopback address, so callers must know a secret: set gate.token (TIDEGATE_GATE_TOKEN), \
             for example to what `openssl rand -hex 32` prints; or listen on 127.0.0.1",
        );
    }
    listen
}

fn callers(reader: &mut Reader<'_>) -> CallerSettings {
    const PROXIES: &str = "gate.trusted_proxies";
    const HEADER: &str = "gate.user_header";
    let mut proxies = Vec::new();
    for net in reader.words(PROXIES) {
        match net.parse() {
            Ok(net) => proxies.push(net),
            Err(why) => reader.wrong(PROXIES, format!("names {net:?}, which {why}")),
        }
    }
    let header = reader.text(HEADER);
    if header.is_empty() {
        return CallerSettings { proxies, user_header: None };
    }
    let user_header = header.parse().map_err(|why: &str| reader.wrong(HEADER, why)).ok();
    reader.rule(!proxies.is_empty(), HEADER, PROXIES, "is believed of listed proxies only: list them");
    CallerSettings { proxies, user_header }
}

/// How many replicas have an order before it counts as admitted.
pub(super) fn confirmation(reader: &mut Reader<'_>) -> Option<Confirmation> {
    let within = reader.millis("gate.wait_ms", 1..=60_000);
    let places = [("memory", ConfirmedIn::Memory), ("file", ConfirmedIn::AppendOnlyFile)];
    let place = reader.choice("gate.wait_for", &places);
    let replicas = NonZeroU32::new(reader.number("gate.wait_replicas", 0..=32))?;
    Some(Confirmation { replicas, within, place })
}

/// What workers do for the gate.
pub(super) fn brake(reader: &mut Reader<'_>) -> BrakeSettings {
    let busy_after = reader.millis("gate.busy_after_ms", 0..=HOUR_MS);
    BrakeSettings {
        busy_after: Some(busy_after).filter(|after| !after.is_zero()),
        needs_workers: reader.choice("gate.needs_workers", &[("no", false), ("yes", true)]),
    }
}

/// Where the tutorial's service keeps who is logged in; nowhere, where the setting is empty.
fn tutorial_login(reader: &mut Reader<'_>) -> Option<String> {
    let template = reader.text("gate.tutorial_login");
    if template.is_empty() {
        return None;
    }
    if template.matches("<token>").count() != 1 {
        reader
            .wrong("gate.tutorial_login", "must hold <token> once, such as login:token:<token>; \"\" = off");
    }
    Some(template)
}
