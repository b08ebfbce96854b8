//! Tests of `tidegate probe`, as Kubernetes and Docker run it beside a worker or a gate.

use std::{net::TcpListener, path::Path, time::Instant};

use nix::sys::signal::Signal;
use tidegate_lab::Certificates;

use crate::{
    browser::address_of,
    fixture::{Fixture, Worker, WorkerPlan, tokens::token_entry, until},
    program::{Program, Run, closed_port},
};

fn probe(listen: &str, line: &str) -> Run {
    probe_with(&[format!("admin.listen={listen}")], line)
}

/// Runs the probe with these settings, and with the tokens.
fn probe_with(settings: &[String], line: &str) -> Run {
    let settings = settings.iter().cloned().chain([format!("tokens={}", tokens())]);
    let flags: Vec<String> = settings.flat_map(|setting| ["--set".to_owned(), setting]).collect();
    Program::with_flags(&flags.iter().map(String::as_str).collect::<Vec<_>>()).run(line)
}

/// The tokens of the worker and the gate. The probe has the same configuration, and no token.
fn tokens() -> String {
    token_entry("prometheus", "read+order", "0123456789abcdef")
}

fn closed() -> String {
    format!("127.0.0.1:{}", closed_port())
}

async fn port_of(worker: &Worker) -> u16 {
    address_of(worker).await.port()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_says_what_the_worker_says_and_needs_no_token() {
    let fixture = Fixture::with_own_mysql().await;
    let plan = fixture.worker("w").set("ADMIN_LISTEN", "0.0.0.0:0").set("TOKENS", tokens());
    let worker = plan.set("WORKER_BACKOFF_MAX_MS", 300).start();
    // The address 0.0.0.0 means this machine for a probe that runs on it.
    let listen = format!("0.0.0.0:{}", port_of(&worker).await);
    until("it is ready", || async { probe(&listen, "probe readyz").code == 0 }).await;
    assert_eq!(probe(&listen, "probe readyz").stdout, "ready\n");
    assert_eq!(probe(&listen, "probe livez").expect(0).stdout, "alive\n");
    let json = probe(&listen, "probe livez --json").expect(0).json();
    assert_eq!(json, serde_json::json!({ "yes": true, "says": "alive" }));

    fixture.mysql.kill9().expect("MySQL is killed");
    until("it is not ready", || async { probe(&listen, "probe readyz").code == 1 }).await;
    let run = probe(&listen, "probe readyz").expect(1);
    assert!(run.stdout.starts_with("not ready\n") && run.stdout.contains("MySQL"), "{run:?}");
    probe(&listen, "probe livez").expect(0);
    assert!(worker.stop().await.success());
    let run = probe(&listen, "probe livez").expect(1);
    assert!(run.stdout.contains("Failed to ask the worker at 127.0.0.1:"), "{run:?}");
}

#[test]
fn who_cannot_be_asked_is_not_alive_and_a_configuration_without_address_is_wrong() {
    let run = probe(&closed(), "probe livez").expect(1);
    assert!(run.stdout.contains("refused"), "{run:?}");
    assert!(
        run.stdout.contains("The probe checks only the worker at the address in admin.listen"),
        "{run:?}"
    );
    let mute = TcpListener::bind("127.0.0.1:0").expect("a port");
    let begun = Instant::now();
    let address = mute.local_addr().expect("an address").to_string();
    let run = probe(&address, "probe readyz").expect(1);
    assert!(run.stdout.contains("no answer within 5s") && begun.elapsed().as_secs() >= 5, "{run:?}");
    let run = probe("off", "probe livez").expect(2);
    assert!(run.stderr.contains("admin.listen is off"), "{run:?}");
    let run = probe("127.0.0.1:0", "probe livez").expect(2);
    assert!(run.stderr.contains("with a fixed port"), "{run:?}");
    Program::with_flags(&[]).run("probe healthz").expect(2);
    Program::with_flags(&[]).run("probe --gate --any livez").expect(2);
    let run = probe_with(&["gate.listen=127.0.0.1:0".to_owned()], "probe --gate livez").expect(2);
    assert!(run.stderr.contains("gate.listen has port 0"), "{run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_flag_it_says_what_the_gate_says() {
    let fixture = Fixture::bare().await;
    let plan = fixture.worker("gate").set("GATE_LISTEN", "0.0.0.0:0").set("TOKENS", tokens());
    let gate = plan.start_as("gate");
    let settings = [
        format!("gate.listen=0.0.0.0:{}", gate.gate_address().await.port()),
        format!("admin.listen={}", closed()),
    ];
    let probe = |line: &str| probe_with(&settings, line);
    until("it is ready", || async { probe("probe --gate readyz").code == 0 }).await;
    assert_eq!(probe("probe --gate readyz").stdout, "ready\n");
    assert_eq!(probe("probe --gate livez").expect(0).stdout, "alive\n");
    probe("probe livez").expect(1);

    fixture.redis.kill9().expect("Redis is killed");
    until("it is not ready", || async { probe("probe --gate readyz").code == 1 }).await;
    assert_eq!(probe("probe --gate readyz").stdout, "not ready\nRedis does not answer\n");
    probe("probe --gate livez").expect(0);
    assert!(gate.stop().await.success());
    let run = probe("probe --gate livez").expect(1);
    assert!(run.stdout.contains("Failed to ask the gate at 127.0.0.1:"), "{run:?}");
    assert!(
        run.stdout.contains("The probe checks only the gate at the address in gate.listen, not gates"),
        "{run:?}"
    );
}

/// The health check of the image.
const ANY: &str = "probe --any livez";

#[tokio::test(flavor = "multi_thread")]
async fn one_health_check_fits_a_worker_a_gate_and_both_in_one_process() {
    let fixture = Fixture::with_own_mysql().await;
    let plan = |name: &str| {
        let plan = fixture.worker(name).set("GATE_LISTEN", "127.0.0.1:0");
        plan.set("WORKER_BACKOFF_MAX_MS", 300)
    };
    let (worker, gate) = (plan("w").start(), plan("g").start_as("gate"));
    let both = plan("b").start_with(&["worker", "--gate"]);
    let at = |admin: String, gate: String| [format!("admin.listen={admin}"), format!("gate.listen={gate}")];
    let of_worker = at(address_of(&worker).await.to_string(), closed());
    let of_gate = at(closed(), gate.gate_address().await.to_string());
    let of_both = at(address_of(&both).await.to_string(), both.gate_address().await.to_string());
    for settings in [&of_worker, &of_gate, &of_both] {
        assert_eq!(probe_with(settings, ANY).expect(0).stdout, "alive\n");
    }
    let off = at("off".to_owned(), gate.gate_address().await.to_string());
    probe_with(&off, ANY).expect(0);
    probe_with(&at(closed(), closed()), ANY).expect(1);

    // Of a process with both, the probe asks the worker: its gate is ready without MySQL.
    fixture.mysql.kill9().expect("MySQL is killed");
    until("the worker is not ready", || async { probe_with(&of_both, "probe --any readyz").code == 1 }).await;
    until("its gate is ready", || async { probe_with(&of_both, "probe --gate readyz").code == 0 }).await;
    worker.signal(Signal::SIGSTOP);
    probe_with(&at(address_of(&worker).await.to_string(), gate.gate_address().await.to_string()), ANY)
        .expect(1);
    worker.kill9();
    for process in [gate, both] {
        assert!(process.stop().await.success());
    }
}

/// The settings of a gate with this certificate, whose clients need a certificate of this authority.
fn tls(shown: &Certificates, clients: Option<&Certificates>) -> Vec<(&'static str, String)> {
    let path = |path: &Path| path.display().to_string();
    let own = [("tls_cert", path(&shown.server())), ("tls_key", path(&shown.server_key()))];
    own.into_iter().chain(clients.map(|of| ("tls_client_ca", path(&of.authority())))).collect()
}

async fn gate_with(fixture: &Fixture, name: &str, tls: &[(&str, String)]) -> (Worker, Vec<String>) {
    let plan = fixture.worker(name).set("GATE_LISTEN", "127.0.0.1:0");
    let set = |plan: WorkerPlan, (name, path): &(&str, String)| {
        plan.set(&format!("GATE_{}", name.to_uppercase()), path)
    };
    let gate = tls.iter().fold(plan, set).start_as("gate");
    let listen = format!("gate.listen={}", gate.gate_address().await);
    let settings = tls.iter().map(|(name, path)| format!("gate.{name}={path}")).chain([listen]);
    (gate, settings.collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_it_needs_no_authority_and_shows_the_certificate_of_the_gate() {
    let fixture = Fixture::bare().await;
    let own = Certificates::make().expect("certificates");
    for (name, clients) in [("all", None), ("own", Some(&own))] {
        let (gate, settings) = gate_with(&fixture, name, &tls(&own, clients)).await;
        until("it is ready", || async { probe_with(&settings, "probe --gate readyz").code == 0 }).await;
        assert_eq!(probe_with(&settings, "probe --gate livez").expect(0).stdout, "alive\n");
        assert!(gate.stop().await.success());
        let run = probe_with(&settings, "probe --gate livez").expect(1);
        assert!(run.stdout.contains("refused"), "{run:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_would_refuse_its_own_certificate_is_alive_while_it_begins_a_handshake() {
    let fixture = Fixture::bare().await;
    let [own, foreign] = [(); 2].map(|()| Certificates::make().expect("certificates"));
    let (gate, settings) = gate_with(&fixture, "gate", &tls(&own, Some(&foreign))).await;
    for _ in 0..5 {
        let run = probe_with(&settings, "probe --gate livez").expect(0);
        assert_eq!(run.stdout, "alive (the gate began a TLS connection)\n");
    }
    let run = probe_with(&settings, "probe --gate readyz").expect(1);
    assert!(run.stdout.contains("let one of these authorities sign gate.tls_cert"), "{run:?}");
    assert!(!gate.log().contains("the gate refused a client certificate"), "{}", gate.log());
    // The kernel still accepts connections for this process.
    gate.signal(Signal::SIGSTOP);
    let run = probe_with(&settings, "probe --gate livez").expect(1);
    assert!(run.stdout.contains("no answer within 5s"), "{run:?}");
    gate.kill9();
}
