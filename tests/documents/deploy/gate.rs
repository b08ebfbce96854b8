//! Tests of the gate in `deploy/`: its manifests fit each other, its pages have what alerts ask for, and processes have no
//! more rights than they need.

use std::{collections::BTreeSet, process::Command};

use hyper::Method;
use tidegate_lab::Certificates;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use yaml_serde::Value;

use super::{
    COMPOSE, FLEET, GATE, PODS, containers,
    containers::{text, words},
    mib, promql,
    questions::alerts,
    setting, settings,
};
use crate::{
    browser::{Page, ask},
    fixture::{Fixture, Worker, until},
    tree::Tree,
};

/// The metrics page of a gate after it has refused two units of voucher 1.
pub async fn page_after_refusal(gate: &Worker) -> Page {
    let address = gate.gate_address().await;
    let body = r#"{"voucherId":"1","userId":"9","quantity":2}"#;
    let head = "POST /orders HTTP/1.1\r\nHost: gate\r\nConnection: close\r\nContent-Type: application/json";
    let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    until("the limit refuses", || async {
        let mut stream = TcpStream::connect(address).await.expect("the gate listens");
        stream.write_all(request.as_bytes()).await.expect("it is read");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("it is answered");
        answer.contains("/problems/over-limit")
    })
    .await;
    ask(Method::GET, address, "/metrics", None).await
}

/// The metrics page of a new gate with TLS.
pub async fn page_over_tls(fixture: &Fixture) -> Page {
    let certificates = Certificates::make().expect("certificates");
    let plan = fixture.worker("tls").set("GATE_LISTEN", "127.0.0.1:0");
    let plan = plan.set("GATE_TLS_CERT", certificates.server().display());
    let gate = plan.set("GATE_TLS_KEY", certificates.server_key().display()).start_as("gate");
    let url = format!("https://{}/metrics", gate.gate_address().await);
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--fail", "--insecure", &url]);
    let output = curl.output().expect("curl runs");
    assert!(output.status.success() && gate.stop().await.success(), "{output:?}");
    Page { status: 200, content_type: String::new(), text: String::from_utf8(output.stdout).expect("text") }
}

fn manifest(tree: &Tree, path: &str, nth: usize) -> Value {
    containers::documents(tree, &format!("deploy/kubernetes/{path}.yaml")).remove(nth)
}

#[test]
fn the_manifests_of_the_gate_fit_each_other_and_the_program() {
    let tree = Tree::read_all();
    let deployment = containers::documents(&tree, GATE).remove(0);
    let of = |file: &str| manifest(&tree, &format!("gate/{file}"), 0);
    let [service, budget, policy, scaler, kustomization] =
        ["service", "poddisruptionbudget", "networkpolicy", "horizontalpodautoscaler", "kustomization"]
            .map(of);
    let monitor = manifest(&tree, "monitoring/podmonitor", 2);
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    assert_eq!(&service["spec"]["selector"], labels);
    for selector in [
        &deployment["spec"]["selector"],
        &budget["spec"]["selector"],
        &policy["spec"]["podSelector"],
        &monitor["spec"]["selector"],
    ] {
        assert_eq!(&selector["matchLabels"], labels);
    }
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let port = &container["ports"][0];
    assert_eq!(service["spec"]["ports"][0]["port"], port["containerPort"]);
    assert_eq!(service["spec"]["ports"][0]["targetPort"], port["name"]);
    assert_eq!(monitor["spec"]["podMetricsEndpoints"][0]["port"], port["name"]);

    // A rolling update always has as many ready gates as before, and two gates run at least.
    assert_eq!(deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"], 0);
    let least = [&deployment["spec"]["replicas"], &scaler["spec"]["minReplicas"]];
    assert!(least.iter().all(|least| least.as_u64() >= Some(2)), "{least:?}");
    assert_eq!(budget["spec"]["maxUnavailable"], 1);
    for key in ["kind", "apiVersion"] {
        assert_eq!(scaler["spec"]["scaleTargetRef"][key], deployment[key]);
    }
    assert_eq!(scaler["spec"]["scaleTargetRef"]["name"], deployment["metadata"]["name"]);
    assert!(container["resources"]["requests"]["cpu"].is_string(), "the CPU time is a share of the request");
    let patch = &kustomization["patches"][0];
    assert_eq!(patch["target"]["name"], deployment["metadata"]["name"]);
    assert!(text(&patch["patch"]).contains("op: remove") && text(&patch["patch"]).contains("/spec/replicas"));

    // A gate serves requests until the Service has forgotten it, and then has as much time to answer the last ones.
    assert!(container.get("lifecycle").is_none());
    let settings = settings(&containers::of_kubernetes(&tree, GATE)[0]);
    let millis = |key| setting(&settings, key).as_u64().expect("a number");
    let (leave, deadline) = (millis("gate.leave_ms"), millis("worker.stop_deadline_ms"));
    assert!((5_000..=deadline / 2).contains(&leave), "{leave}");
}

#[test]
fn only_named_pods_reach_the_ports_of_gates_and_workers() {
    let tree = Tree::read_all();
    for (path, file, rules) in [(GATE, "gate/networkpolicy", 2), (FLEET, "fleet/networkpolicy", 1)] {
        let policy = manifest(&tree, file, 0);
        let pod = containers::documents(&tree, path).remove(0)["spec"]["template"].clone();
        assert_eq!(policy["spec"]["podSelector"]["matchLabels"], pod["metadata"]["labels"]);
        assert_eq!(words(&policy["spec"]["policyTypes"]).expect("types"), ["Ingress"]);
        let ingress = policy["spec"]["ingress"].as_sequence().expect("rules");
        assert_eq!(ingress.len(), rules, "{file}");
        for rule in ingress {
            // Without `from`, or with an empty selector, all pods may connect.
            let from = rule["from"].as_sequence().expect("a list");
            let named = from.iter().flat_map(|from| from.as_mapping().expect("selectors").values());
            let named: Vec<_> = named.map(|selector| selector["matchLabels"].as_mapping()).collect();
            assert!(
                !named.is_empty() && named.iter().all(|it| it.is_some_and(|it| !it.is_empty())),
                "{rule:?}"
            );
            let port = &pod["spec"]["containers"][0]["ports"][0]["containerPort"];
            assert_eq!(
                (&rule["ports"][0]["port"], rule["ports"][0]["protocol"].as_str()),
                (port, Some("TCP"))
            );
        }
    }
}

#[test]
fn processes_have_no_rights_and_no_place_to_write_and_ports_are_open_on_this_machine_only() {
    let tree = Tree::read_all();
    for path in PODS {
        let pod = containers::documents(&tree, path).remove(0)["spec"]["template"]["spec"].clone();
        let both = ["initContainers", "containers"].map(|key| pod[key].as_sequence().cloned());
        let is_ours = |container: &Value| text(&container["image"]).contains("tidegate");
        let ours: Vec<Value> = both.into_iter().flatten().flatten().filter(is_ours).collect();
        assert_eq!(ours.len(), 1, "{path}");
        for own in ours.iter().map(|container| &container["securityContext"]) {
            let of_pod = &pod["securityContext"];
            let either = |key: &str| own.get(key).or(of_pod.get(key)).cloned().unwrap_or_default();
            assert_eq!(either("runAsNonRoot"), true, "{path}");
            assert_eq!(either("seccompProfile")["type"], "RuntimeDefault", "{path}");
            assert_eq!(own["allowPrivilegeEscalation"], false, "{path}");
            assert_eq!(own["readOnlyRootFilesystem"], true, "{path}");
            assert_eq!(words(&own["capabilities"]["drop"]).expect("a list"), ["ALL"], "{path}");
        }
    }
    let compose = containers::documents(&tree, COMPOSE).remove(0);
    for (name, service) in compose["services"].as_mapping().expect("services") {
        for port in words(&service["ports"]).unwrap_or_default() {
            assert!(port.starts_with("127.0.0.1:"), "{name:?}: {port}");
        }
        if service["image"] == "tidegate" {
            assert_eq!(service["read_only"], true, "{name:?}");
            assert_eq!(words(&service["cap_drop"]).expect("a list"), ["ALL"], "{name:?}");
            assert_eq!(
                words(&service["security_opt"]).expect("a list"),
                ["no-new-privileges:true"],
                "{name:?}"
            );
        }
    }
}

#[test]
fn a_gate_may_open_a_file_for_each_connection_and_take_twice_the_memory_that_was_measured() {
    let tree = Tree::read_all();
    let compose = containers::documents(&tree, COMPOSE).remove(0);
    let of_compose = containers::of_compose(&tree, COMPOSE);
    let gate = of_compose.iter().find(|container| container.listen() == Some("gate.listen")).expect("a gate");
    let connections = setting(&settings(gate), "gate.connections").as_u64().expect("a number");
    let files = compose["services"]["gate"]["ulimits"]["nofile"].as_u64().expect("a number");
    assert!(files >= connections + 256, "{files}");
    let idle = mib(&tree, "docs/benchmarks/README.md", "idle connections, each of which", "from 24.0 to ");
    let deployment = containers::documents(&tree, GATE).remove(0);
    let limit =
        text(&deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"]);
    let limit: u64 = limit.strip_suffix("Mi").expect("MiB").parse().expect("a number");
    assert!((2 * idle..3 * idle).contains(&limit), "{limit} MiB, and {idle} MiB were measured");
}

#[test]
fn the_alert_on_errors_counts_every_answer_5xx_that_is_no_decision() {
    let tree = Tree::read_all();
    let problems = tree.read("crates/tidegate-http/src/gate/problem.rs");
    let errors = problems.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let status: u16 = words.next()?.parse().ok()?;
        Some(words.next()?.trim_matches('"').to_owned()).filter(|_| status >= 500)
    });
    let mut errors: BTreeSet<String> = errors.collect();
    assert!(errors.remove("busy") && errors.remove("paused"), "{errors:?}");
    let (_, rule) =
        alerts(&tree).into_iter().find(|(name, _)| name == "TidegateGateErrors").expect("an alert");
    let selectors = promql::uses(&text(&rule["expr"])).selectors;
    let named = selectors.iter().filter_map(|selector| selector.matchers.first());
    let named: Vec<BTreeSet<String>> =
        named.map(|(_, _, value)| value.split('|').map(str::to_owned).collect()).collect();
    assert_eq!(named, [errors.clone(), errors]);
}

#[test]
fn kubectl_builds_every_kustomization() {
    if Command::new("kubectl").args(["version", "--client"]).output().is_err() {
        eprintln!("kubectl is not on this machine: the manifests were only read");
        return;
    }
    for (folder, scaled) in [("fleet", false), ("keda", true), ("cluster", true), ("gate", true)] {
        let path = Tree::root().join("deploy/kubernetes").join(folder);
        let output = Command::new("kubectl").arg("kustomize").arg(path).output().expect("kubectl runs");
        let built = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{folder}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!built.contains("image: tidegate\n"), "{folder}: the image has a placeholder as its name");
        assert_eq!(built.contains("\n  replicas:"), !scaled, "{folder}: a scaler sets the number of pods");
    }
}
