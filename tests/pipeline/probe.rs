//! Tests of `tidegate probe`, as Kubernetes and Docker run it beside a worker.

use std::{net::TcpListener, time::Instant};

use crate::{
    browser::address_of,
    fixture::{Fixture, Worker, tokens::token_entry, until},
    program::{Program, Run, closed_port},
};

fn probe(listen: &str, line: &str) -> Run {
    let tokens = format!("tokens={}", tokens());
    Program::with_flags(&["--set", &format!("admin.listen={listen}"), "--set", &tokens]).run(line)
}

/// The tokens of the worker. The probe has the same configuration, and no token.
fn tokens() -> String {
    token_entry("prometheus", "read", "0123456789abcdef")
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
    let run = probe(&format!("127.0.0.1:{}", closed_port()), "probe livez").expect(1);
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
}
