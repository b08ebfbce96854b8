//! Tests of the gate's metrics.

use std::{
    collections::BTreeSet,
    io::Write,
    process::{Command, Stdio},
};

use hyper::Method;
use serde_json::{Value, json};

use super::{address_of, ask};
use crate::{
    catalog::{GATE, GATE_CERTIFICATE},
    fixture::{Fixture, tokens::token_entry},
    order_event::operator,
};

const TOKEN: &str = "0123456789abcdef";
const BEARER: &str = "Bearer 0123456789abcdef";

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_counted_by_what_came_of_them_and_refusals_by_the_limit() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    program.run("voucher load --voucher 7 --stock 10").expect(0);
    program
        .run("limit set --voucher 7 --name phones --subject phone --window sale --orders 1 --yes")
        .expect(0);
    let plan = fixture
        .worker("gate")
        .set("GATE_LISTEN", "127.0.0.1:0")
        .set("GATE_CONNECTIONS", 99)
        .set("TOKENS", token_entry("shop", "order+read", TOKEN));
    let gate = plan.start_as("gate");
    let address = address_of(&gate).await;
    let headers = [("Content-Type", "application/json"), ("Authorization", BEARER)];
    let post = async |body: &Value| ask(address, Method::POST, "/orders", &headers, &body.to_string()).await;
    let get = async |path: &str| ask(address, Method::GET, path, &headers[1..], "").await;
    let order = |user: i64| json!({ "voucherId": 7, "userId": user, "subjects": { "phone": "a" } });
    let admitted = post(&order(1)).await;
    let mut again = order(1);
    again["orderId"] = admitted.body["orderId"].clone();
    assert_eq!(post(&again).await.status, 202);
    for user in 2..5 {
        assert_eq!(post(&order(user)).await.status, 409);
    }
    assert_eq!(post(&json!({})).await.status, 422);
    for headers in [&headers[..1], &[headers[0], ("Authorization", "Bearer wrong")]] {
        assert_eq!(ask(address, Method::POST, "/orders", headers, "{}").await.status, 401);
    }
    assert_eq!(ask(address, Method::GET, "/metrics", &[], "").await.status, 401);
    let page = get("/metrics").await.text;
    for line in [
        "tidegate_gate_requests_total{outcome=\"admitted\"} 1",
        "tidegate_gate_requests_total{outcome=\"admitted_before\"} 1",
        "tidegate_gate_requests_total{outcome=\"over-limit\"} 3",
        "tidegate_gate_requests_total{outcome=\"bad-input\"} 1",
        "tidegate_gate_requests_total{outcome=\"sold-out\"} 0",
        "tidegate_gate_requests_total{outcome=\"no-token\"} 2",
        "tidegate_gate_limit_refusals_total{limit=\"phones\"} 3",
        "tidegate_gate_request_duration_seconds_count 6",
        "tidegate_gate_connections_limit 99",
        "tidegate_gate_events_total{outcome=\"unsure\"} 0",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is missing in\n{page}");
    }
    let shown = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let own: BTreeSet<&str> = shown.filter(|name| !name.starts_with("process_")).collect();
    let expected = GATE.iter().map(|metric| metric.name).filter(|name| *name != GATE_CERTIFICATE.name);
    assert_eq!(own, expected.collect(), "a gate without TLS has no certificate");

    let mut check = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is installed (crates/tidegate-lab/scripts/install-servers.sh)");
    check.stdin.take().expect("a pipe").write_all(page.as_bytes()).expect("promtool reads");
    let check = check.wait_with_output().expect("promtool ends");
    let said = [check.stdout, check.stderr].concat();
    assert!(check.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
    assert!(gate.stop().await.success());
}
