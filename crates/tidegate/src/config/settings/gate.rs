//! The section `[gate]`: the HTTP server of the gate, and the conditions of an admission.

use std::{collections::BTreeMap, net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use jiff::SignedDuration;
use tidegate_http::{
    AttemptRate, AttemptSettings, CallerSettings, GateSettings, TlsSettings, TokenScope, TokenSettings,
};
use tidegate_operations::busy_marker::BusyMarkerSettings;
use tidegate_orders::{
    limits::{MOST_SUBJECTS, SubjectName},
    scripts::{Confirmation, ConfirmedIn},
};
use tidegate_worker::WorkerSettings;

use super::HOUR_MS;
use crate::config::reader::SettingsReader;

/// Reads the address, the permitted clients and the rates of the gate.
pub(super) fn read(
    reader: &mut SettingsReader<'_>,
    worker: &WorkerSettings,
    tokens: &TokenSettings,
) -> GateSettings {
    let tls = tls(reader);
    let knows_callers =
        tokens.has(TokenScope::Order) || tls.as_ref().is_some_and(|tls| tls.client_authorities.is_some());
    GateSettings {
        listen: listen(reader, knows_callers),
        connections: reader.number("gate.connections", 1..=1_000_000),
        read_within: reader.millis("gate.read_ms", 100..=60_000),
        leave_for: leave_for(reader, worker),
        tutorial_login: tutorial_login(reader),
        sold_out_for: reader.millis("gate.sold_out_ms", 0..=10_000),
        callers: callers(reader),
        attempts: attempts(reader),
        tls,
    }
}

fn listen(reader: &mut SettingsReader<'_>, knows_callers: bool) -> SocketAddr {
    let listen = reader.text("gate.listen").parse::<SocketAddr>();
    if listen.is_err() {
        reader.wrong("gate.listen", "must be IP:PORT, such as 127.0.0.1:8434 or [::1]:8434");
    }
    let listen = listen.unwrap_or_else(|_| SocketAddr::from(([127, 0, 0, 1], 8434)));
    if !listen.ip().to_canonical().is_loopback() && !knows_callers {
        reader.wrong(
            "gate.listen",
            "is not a loopback address, so clients need a token or a certificate: add the SHA-256 digest of a token \
             to [[tokens]] (TIDEGATE_TOKENS) with the scope `order`, or set gate.tls_client_ca; or listen on 127.0.0.1",
        );
    }
    listen
}

/// Reads gate.leave_ms, at most half of the stop deadline: the other half is for requests in progress.
fn leave_for(reader: &mut SettingsReader<'_>, worker: &WorkerSettings) -> Duration {
    reader.millis("gate.leave_ms", 0..=HOUR_MS).min(worker.stop_deadline / 2)
}

fn tls(reader: &mut SettingsReader<'_>) -> Option<TlsSettings> {
    let [certificate, key, client_authorities] =
        ["gate.tls_cert", "gate.tls_key", "gate.tls_client_ca"].map(|key| reader.text(key));
    match (certificate.is_empty(), key.is_empty()) {
        (true, false) => reader
            .wrong("gate.tls_cert", "is needed for gate.tls_key: name the file (PEM) with its certificate"),
        (false, true) => reader
            .wrong("gate.tls_key", "is needed for gate.tls_cert: name the file (PEM) with its private key"),
        (true, true) if !client_authorities.is_empty() => {
            reader.wrong("gate.tls_client_ca", "needs TLS: set gate.tls_cert and gate.tls_key");
        }
        _ => {}
    }
    (!certificate.is_empty() && !key.is_empty()).then(|| TlsSettings {
        certificate: certificate.into(),
        key: key.into(),
        client_authorities: Some(client_authorities).filter(|path| !path.is_empty()).map(PathBuf::from),
    })
}

fn callers(reader: &mut SettingsReader<'_>) -> CallerSettings {
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
    reader.rule(
        !proxies.is_empty(),
        HEADER,
        PROXIES,
        "is trusted only from listed proxies: list your proxies",
    );
    CallerSettings { proxies, user_header }
}

fn attempts(reader: &mut SettingsReader<'_>) -> AttemptSettings {
    const ADDRESS: &str = "gate.attempts_by_address";
    const SUBJECT: &str = "gate.attempts_by_subject";
    let by_address = reader.text(ADDRESS);
    let by_address = (by_address != "off")
        .then(|| rate(&by_address))
        .and_then(|rate| rate.map_err(|why| reader.wrong(ADDRESS, format!("must be off, or {why}"))).ok());
    let mut by_subject = BTreeMap::new();
    for (name, text) in reader.table(SUBJECT) {
        match (name.parse::<SubjectName>(), rate(&text)) {
            (Err(error), _) => reader.wrong(SUBJECT, format!("names an invalid subject: {error}")),
            (_, Err(why)) => reader.wrong(SUBJECT, format!("has {text:?} for {name}, but must have {why}")),
            (Ok(name), Ok(rate)) => _ = by_subject.insert(name, rate),
        }
    }
    // The most subjects that an order may name, and the user.
    if by_subject.len() > MOST_SUBJECTS + 1 {
        reader.wrong(SUBJECT, format!("has more subjects than the {MOST_SUBJECTS} that an order may have"));
    }
    AttemptSettings { by_address, by_subject }
}

fn rate(text: &str) -> Result<AttemptRate, String> {
    const MOST: Duration = Duration::from_secs(24 * 3600);
    let wrong = || {
        "ATTEMPTS/SPAN such as 20/1s or 5/10m, with up to 1000000 in a second and a span of up to a day"
            .to_owned()
    };
    let (attempts, span) = text.split_once('/').ok_or_else(wrong)?;
    let attempts: NonZeroU32 = attempts.parse().map_err(|_| wrong())?;
    let span: SignedDuration = span.parse().map_err(|_| wrong())?;
    let span = Duration::try_from(span).map_err(|_| wrong())?;
    let each = span / attempts.get();
    (span <= MOST && each >= Duration::from_micros(1))
        .then_some(AttemptRate { attempts, span })
        .ok_or_else(wrong)
}

/// The number of replicas that must have an order before it counts as admitted.
pub(super) fn confirmation(reader: &mut SettingsReader<'_>) -> Option<Confirmation> {
    let within = reader.millis("gate.wait_ms", 1..=60_000);
    let places = [("memory", ConfirmedIn::Memory), ("file", ConfirmedIn::AppendOnlyFile)];
    let place = reader.choice("gate.wait_for", &places);
    let replicas = NonZeroU32::new(reader.number("gate.wait_replicas", 0..=32))?;
    Some(Confirmation { replicas, within, place })
}

/// Reads the settings of when workers mark sales as busy.
pub(super) fn busy_marker(reader: &mut SettingsReader<'_>) -> BusyMarkerSettings {
    let busy_after = reader.millis("gate.busy_after_ms", 0..=HOUR_MS);
    BusyMarkerSettings {
        busy_after: Some(busy_after).filter(|after| !after.is_zero()),
        needs_workers: reader.choice("gate.needs_workers", &[("no", false), ("yes", true)]),
    }
}

/// The hash in which the tutorial's service keeps its logins; None if the setting is empty.
fn tutorial_login(reader: &mut SettingsReader<'_>) -> Option<String> {
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
