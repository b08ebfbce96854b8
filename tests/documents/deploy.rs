//! Tests of `deploy/` against the program: metrics, settings, commands, ports, times and pages of the runbook.

mod containers;
mod gate;
mod promql;
mod questions;
mod redis_users;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
    time::Duration,
};

use containers::{Container, seconds, text};
use promql::Selector;
use questions::{ALERTS, alerts, expressions, is_of_gate, metric, queries};

use crate::{
    browser::{get, until_page},
    fixture::Fixture,
    markdown::Document,
    program::Program,
    tree::Tree,
};

const COMPOSE: &str = "deploy/compose.yaml";
const FLEET: &str = "deploy/kubernetes/fleet/statefulset.yaml";
const SIDECAR: &str = "deploy/kubernetes/sidecar/deployment.yaml";
const GATE: &str = "deploy/kubernetes/gate/deployment.yaml";
/// The manifests with pods.
const PODS: [&str; 4] = [FLEET, SIDECAR, GATE, "deploy/kubernetes/fleet/migrate.yaml"];
const UNIT: &str = "deploy/systemd/tidegate.service";
/// The address of the book in the alerts.
const BOOK_URL: &str = "https://tidegate.example/";
/// Labels that Prometheus itself adds.
const OF_PROMETHEUS: [&str; 2] = ["job", "instance"];
/// The label of a worker's series in a system with partitions.
const PARTITION: &str = "partition";
/// The metric in which Prometheus itself notes whether a scrape succeeded.
const UP: &str = "up";

#[test]
fn alerts_and_dashboard_use_metrics_and_labels_that_exist() {
    let tree = Tree::read_all();
    let mut complaints = Vec::new();
    for (place, expression) in expressions(&tree) {
        let uses = promql::uses(&expression);
        assert!(!uses.selectors.is_empty(), "{place}: {expression}");
        let mut labels: BTreeSet<&str> = OF_PROMETHEUS.into_iter().chain([PARTITION]).collect();
        for selector in uses.selectors.iter().filter(|selector| selector.metric != UP) {
            let Some(metric) = metric(&selector.metric) else {
                complaints.push(format!("{place}: no metric {}", selector.metric));
                continue;
            };
            let mut of_metric: BTreeSet<&str> = metric.labels.iter().copied().collect();
            of_metric.extend(["le"].iter().filter(|_| selector.metric.ends_with("_bucket")));
            labels.extend(&of_metric);
            let unknown = selector.matchers.iter().map(|(label, _, _)| label.as_str());
            let unknown =
                unknown.filter(|label| !OF_PROMETHEUS.contains(label) && !of_metric.contains(label));
            complaints
                .extend(unknown.map(|label| format!("{place}: {} has no label {label}", selector.metric)));
        }
        let unknown = uses.grouped_by.iter().filter(|label| !labels.contains(label.as_str()));
        complaints
            .extend(unknown.map(|label| format!("{place}: groups by {label}, which no metric there has")));
    }
    assert!(complaints.is_empty(), "{complaints:#?}");
    assert!(metric("tidegate_orders_written_total").is_none() && metric("tidegate_batch_entries").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_selector_of_alerts_and_dashboard_finds_something_on_the_page_of_a_worker_or_a_gate() {
    let tree = Tree::read_all();
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let webhooks = fixture.webhooks(&[("shop", "http://localhost:9/")]);
    let worker = fixture.worker("w").set("WEBHOOKS", webhooks).start();
    let gate = fixture.worker("g").set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
    fixture.rush(1_000, 50).await;
    fixture.settled().await;
    let limited = ["limit", "set", "--voucher", "1", "--name", "each", "--window", "order", "--units", "1"];
    assert!(fixture.tidegate(&[&limited[..], &["--yes"]].concat()).status.success());
    until_page(&worker, "/metrics", 200, "tidegate_limit_counters{").await;
    until_page(&worker, "/metrics", 200, "tidegate_webhook_pending{").await;
    let of_worker = get(&worker, "/metrics").await.samples();
    let mut of_gate = gate::page_after_refusal(&gate).await.samples();
    of_gate.extend(gate::page_over_tls(&fixture).await.samples());
    for (place, expression) in expressions(&tree) {
        for selector in promql::uses(&expression).selectors {
            let samples = if is_of_gate(&selector.metric) { &of_gate } else { &of_worker };
            assert!(
                selector.metric == UP || is_found(&selector, samples),
                "{place}: nothing is {selector:?} on the page"
            );
        }
    }
    let is_worker =
        |samples: &BTreeMap<String, f64>| samples.keys().any(|name| name.starts_with("tidegate_build_info"));
    assert!(is_worker(&of_worker) && !is_worker(&of_gate), "a fleet of gates has no worker");
    assert!(worker.stop().await.success() && gate.stop().await.success());
}

/// Whether the page has a series for the selector, and for each of its alternatives (`=~"one|other"`).
fn is_found(selector: &Selector, samples: &BTreeMap<String, f64>) -> bool {
    let is_there = |matchers: &[(String, &str)]| {
        samples.keys().any(|sample| {
            let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
            let has = |(label, value): &(String, &str)| labels.contains(&format!("{label}=\"{value}\""));
            name == selector.metric && matchers.iter().all(has)
        })
    };
    let of_page = selector.matchers.iter().filter(|(label, ..)| !OF_PROMETHEUS.contains(&label.as_str()));
    let mut alternatives = vec![Vec::new()];
    for (label, operator, value) in of_page {
        assert!(["=", "=~"].contains(&operator.as_str()), "{selector:?}");
        let values: Vec<&str> = if operator == "=" { vec![value] } else { value.split('|').collect() };
        let with = |matchers: &Vec<_>| {
            values
                .iter()
                .map(|value| [&matchers[..], &[(label.clone(), *value)]].concat())
                .collect::<Vec<_>>()
        };
        alternatives = alternatives.iter().flat_map(with).collect();
    }
    alternatives.iter().all(|matchers| is_there(matchers))
}

fn promtool(args: &[&str], path: &Path) {
    let output = Command::new("promtool").args(args).arg(path).output();
    let output = output.expect("promtool is installed (crates/tidegate-lab/scripts/install-servers.sh)");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "promtool {args:?}: {said}");
}

#[test]
fn promtool_finds_no_fault_and_the_alerts_fire_when_they_should() {
    let (root, tree) = (Tree::root(), Tree::read_all());
    promtool(&["check", "rules", "--lint=all", "--lint-fatal"], &root.join(ALERTS));
    promtool(&["test", "rules"], &root.join("deploy/prometheus/alerts_test.yml"));
    // The file with the token exists in the container only.
    promtool(&["check", "config", "--syntax-only"], &root.join("deploy/prometheus/prometheus.yml"));
    let rules: Vec<_> = queries(&tree)
        .iter()
        .enumerate()
        .map(|(at, (_, query))| serde_json::json!({ "record": format!("query:{at}"), "expr": query }))
        .collect();
    let rules = serde_json::json!({ "groups": [{ "name": "dashboard", "rules": rules }] });
    let folder = tempfile::TempDir::new().expect("a folder");
    let path = folder.path().join("dashboard.yml");
    fs::write(&path, rules.to_string()).expect("written");
    promtool(&["check", "rules"], &path);
}

/// The values of the panels for two workers in a system with two partitions. Both workers export the numbers of the
/// stores.
const OF_TWO_PARTITIONS: [(&str, &str, f64); 16] = [
    ("Dead letters", "tidegate_dead_letters", 30.0),
    ("Orders", "tidegate_stream_entries_added_total", 3.0),
    ("Results, by state", "tidegate_results_unpublished", 30.0),
    ("Entries on their way", "tidegate_stream_undelivered_entries", 30.0),
    ("Entries on their way", "tidegate_stream_pending_entries", 30.0),
    ("Entries in the stream", "tidegate_stream_entries", 30.0),
    ("Entries in the stream", "tidegate_dead_letters", 30.0),
    ("Consumers of the group", "tidegate_stream_consumers", 30.0),
    ("Orders to be paid in time", "tidegate_unpaid_orders", 30.0),
    ("Orders to be paid in time", "tidegate_unpaid_overdue_orders", 30.0),
    // Ages are not added up.
    ("Oldest undelivered order", "tidegate_stream_oldest_undelivered_age_seconds", 20.0),
    ("Oldest pending order", "tidegate_stream_oldest_pending_age_seconds", 20.0),
    ("Age of the oldest order", "tidegate_stream_oldest_undelivered_age_seconds", 20.0),
    ("Age of the oldest order", "tidegate_stream_oldest_pending_age_seconds", 20.0),
    // These metrics count workers, each worker once.
    ("Workers that wait for a store", "tidegate_breaker_open", 2.0),
    ("Paused", "tidegate_paused", 2.0),
];

#[test]
fn panels_add_partitions_up_and_count_no_worker_twice() {
    let tree = Tree::read_all();
    let (mut series, mut expected, mut tested) = (BTreeMap::new(), Vec::new(), BTreeSet::new());
    let queries = queries(&tree);
    for (title, metric, value) in OF_TWO_PARTITIONS {
        let is_it =
            |query: &str| promql::uses(query).selectors.iter().any(|selector| selector.metric == metric);
        let mut found = queries.iter().filter(|(of, query)| of == title && is_it(query));
        let (_, query) = found.next().unwrap_or_else(|| panic!("no panel {title} shows {metric}"));
        assert!(found.next().is_none(), "{title} shows {metric} twice");
        let label = match metric {
            "tidegate_stream_consumers" => r#",process="alive""#,
            "tidegate_breaker_open" => r#",store="redis""#,
            "tidegate_paused" => r#",reason="fleet""#,
            _ => "",
        };
        for (instance, partition, number) in [("1", "3", 10), ("1", "1", 20), ("2", "3", 10), ("2", "1", 20)]
        {
            let labels = format!(r#"job="tidegate",instance="{instance}",partition="{partition}"{label}"#);
            let values = match metric {
                "tidegate_breaker_open" | "tidegate_paused" => "1x40".to_owned(),
                // The counter grows each second by a tenth of the number.
                _ if metric.ends_with("_total") => format!("0+{}x40", number * 3 / 2),
                _ => format!("{number}x40"),
            };
            series.insert(format!("{metric}{{{labels}}}"), values);
        }
        let labels = if label.contains("process") { r#"{process="alive"}"# } else { "{}" };
        expected.push(serde_json::json!({
            "expr": query, "eval_time": "8m", "exp_samples": [{ "labels": labels, "value": value }],
        }));
        tested.insert(query.clone());
    }
    // A panel that takes one maximum over all partitions must show an age, or yes or no.
    for (title, query) in &queries {
        let is_one = query.starts_with("max(") && !query.contains("_age_seconds");
        assert!(!is_one || tested.contains(query) || query.contains("tidegate_busy"), "{title}: {query}");
    }
    let series: Vec<_> = series
        .iter()
        .map(|(series, values)| serde_json::json!({ "series": series, "values": values }))
        .collect();
    let tests = serde_json::json!({
        "rule_files": [],
        "evaluation_interval": "15s",
        "tests": [{ "interval": "15s", "input_series": series, "promql_expr_test": expected }],
    });
    let folder = tempfile::TempDir::new().expect("a folder");
    let path = folder.path().join("panels_test.yml");
    fs::write(&path, tests.to_string()).expect("written");
    promtool(&["test", "rules"], &path);
}

#[test]
fn every_alert_is_tested_and_leads_to_a_page_of_the_runbook_which_lists_it() {
    let tree = Tree::read_all();
    let runbook = tree.read("RUNBOOK.md");
    let tests = tree.read("deploy/prometheus/alerts_test.yml");
    for (name, rule) in alerts(&tree) {
        let url = text(&rule["annotations"]["runbook_url"]);
        let page = url.strip_prefix(BOOK_URL).unwrap_or_else(|| panic!("{name}: {url} is not in the book"));
        let page = page.replacen(".html", ".md", 1);
        let file = page.split('#').next().unwrap_or_default();
        assert!(file.starts_with("docs/runbook/") && tree.has_path(file), "{name}: no page {page}");
        let heading = page.strip_prefix(file).unwrap_or_default();
        let headings = Document::parse(file, &tree.read(file)).anchors;
        assert!(heading.is_empty() || headings.iter().any(|it| it == heading), "{name}: no heading {page}");
        let row = runbook.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let row = row.unwrap_or_else(|| panic!("RUNBOOK.md does not list {name}"));
        assert!(row.contains(&format!("({page})")), "{name} leads to {page}, but RUNBOOK.md says {row}");
        assert!(
            tree.read(file).contains(&format!("`{name}`")),
            "{page} does not say that {name} leads there"
        );
        let fires = [format!("alertname=\"{name}\",job"), format!("alertname: {name}\n        exp_alerts")];
        assert!(fires.iter().any(|fires| tests.contains(fires)), "alerts_test.yml does not let {name} fire");
    }
    let known: BTreeSet<String> = alerts(&tree).into_iter().map(|(name, _)| name).collect();
    let rows = runbook.lines().filter_map(|line| line.strip_prefix("| `Tidegate")?.split('`').next());
    for row in rows {
        assert!(known.contains(&format!("Tidegate{row}")), "there is no alert Tidegate{row}");
    }
}

fn all_containers(tree: &Tree) -> Vec<Container> {
    let of_pods = PODS.into_iter().flat_map(|path| containers::of_kubernetes(tree, path));
    let all: Vec<Container> = containers::of_compose(tree, COMPOSE).into_iter().chain(of_pods).collect();
    assert_eq!(all.len(), 8, "{all:#?}");
    all
}

/// The settings that a container's variables make.
fn settings(container: &Container) -> serde_json::Value {
    let variables: Vec<(&str, &str)> =
        container.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert!(variables.iter().all(|(name, _)| name.starts_with("TIDEGATE_")), "{container:?}");
    let run = Program::with_flags(&[]).run_with(&["config", "--json"], &variables);
    assert_eq!(run.code, 0, "{}: {run:#?}", container.place);
    run.json()
}

/// The value of `section.key`.
fn setting<'a>(settings: &'a serde_json::Value, key: &str) -> &'a serde_json::Value {
    let (section, key) = key.split_once('.').expect("a section");
    &settings[section][key]["value"]
}

/// Checks that the program knows a command line, flags included.
fn assert_known(place: &str, command: &[String]) {
    let (program, args) = command.split_first().expect("a command");
    assert_eq!(program, "tidegate", "{place}");
    let args: Vec<&str> = args.iter().map(String::as_str).chain(["--help"]).collect();
    let run = Program::with_flags(&[]).run_with(&args, &[]);
    assert_eq!(run.code, 0, "{place}: {command:?}: {run:#?}");
}

#[test]
fn what_containers_are_given_is_what_the_program_takes() {
    let tree = Tree::read_all();
    for container in all_containers(&tree) {
        let settings = settings(&container);
        for command in &container.commands {
            assert_known(&container.place, command);
        }
        let Some(listen) = container.listen() else { continue };
        let deadline = setting(&settings, "worker.stop_deadline_ms").as_u64().expect("a number");
        assert!(
            container.grace > Duration::from_millis(deadline),
            "{container:?} is killed before its deadline"
        );
        let listen = setting(&settings, listen).as_str().expect("an address");
        for port in &container.ports {
            assert!(listen.ends_with(&format!(":{port}")), "{}: {listen} and {port}", container.place);
        }
    }
}

#[test]
fn whoever_scrapes_asks_the_port_on_which_workers_listen() {
    let tree = Tree::read_all();
    let containers = all_containers(&tree);
    let of_compose = containers.iter().filter(|container| container.place.starts_with(COMPOSE));
    let prometheus = containers::documents(&tree, "deploy/prometheus/prometheus.yml").remove(0);
    let targets = prometheus["scrape_configs"][0]["static_configs"].as_sequence().expect("targets");
    let targets = targets.iter().flat_map(|of| containers::words(&of["targets"]).expect("targets"));
    let listening = of_compose.filter_map(|container| {
        let name = container.place.rsplit(' ').next().expect("a name");
        assert!(!container.is_worker() || container.env["TIDEGATE_WORKER_NAME"] == name);
        let variable = format!("TIDEGATE_{}", container.listen()?.to_uppercase().replace('.', "_"));
        Some(container.env[&variable].replace("0.0.0.0", name))
    });
    assert_eq!(targets.collect::<BTreeSet<String>>(), listening.collect());

    let fleet = containers::documents(&tree, FLEET).remove(0);
    let port = &fleet["spec"]["template"]["spec"]["containers"][0]["ports"][0];
    let monitor = containers::documents(&tree, "deploy/kubernetes/monitoring/podmonitor.yaml").remove(0);
    assert_eq!(monitor["spec"]["podMetricsEndpoints"][0]["port"], port["name"]);
    let service = containers::documents(&tree, "deploy/kubernetes/fleet/service.yaml").remove(0);
    assert_eq!(service["spec"]["ports"][0]["port"], port["containerPort"]);
    assert_eq!(service["metadata"]["name"], fleet["spec"]["serviceName"]);
    let budget = containers::documents(&tree, "deploy/kubernetes/fleet/poddisruptionbudget.yaml").remove(0);
    for selector in [&monitor["spec"]["selector"], &budget["spec"]["selector"], &fleet["spec"]["selector"]] {
        assert_eq!(selector["matchLabels"], fleet["spec"]["template"]["metadata"]["labels"]);
    }
}

#[test]
fn a_worker_in_the_pod_of_an_application_is_scraped_too() {
    let tree = Tree::read_all();
    let shop = containers::documents(&tree, SIDECAR).remove(0);
    let monitor = containers::documents(&tree, "deploy/kubernetes/monitoring/podmonitor.yaml").remove(1);
    let pod = &shop["spec"]["template"];
    let chosen = monitor["spec"]["selector"]["matchLabels"].as_mapping().expect("labels");
    assert!(!chosen.is_empty());
    for (label, value) in chosen {
        assert_eq!(&pod["metadata"]["labels"][label], value, "{label:?}");
    }
    let port = &pod["spec"]["initContainers"][0]["ports"][0];
    assert_eq!(monitor["spec"]["podMetricsEndpoints"][0]["port"], port["name"]);
    for container in all_containers(&tree).iter().filter(|container| container.is_worker()) {
        let listen = container.env.get("TIDEGATE_ADMIN_LISTEN").map_or("", String::as_str);
        assert!(listen.starts_with("0.0.0.0:"), "{}: nobody can scrape {listen:?}", container.place);
    }
}

#[test]
fn keda_looks_at_the_stream_and_scales_the_fleet() {
    let tree = Tree::read_all();
    let scaled = containers::documents(&tree, "deploy/kubernetes/keda/scaledobject.yaml").remove(0);
    let trigger = &scaled["spec"]["triggers"][0];
    let settings = Program::with_flags(&[]).run("config --json").expect(0).json();
    assert_eq!(
        text(&trigger["metadata"]["stream"]),
        setting(&settings, "stream.name").as_str().expect("a name")
    );
    assert_eq!(
        text(&trigger["metadata"]["consumerGroup"]),
        setting(&settings, "stream.group").as_str().expect("a name")
    );
    assert!(
        trigger["metadata"]["lagCount"].is_string() && scaled["spec"]["minReplicaCount"].as_u64() > Some(0)
    );
    let authentication =
        containers::documents(&tree, "deploy/kubernetes/keda/triggerauthentication.yaml").remove(0);
    assert_eq!(trigger["authenticationRef"]["name"], authentication["metadata"]["name"]);
    let fleet = containers::documents(&tree, FLEET).remove(0);
    for key in ["kind", "apiVersion"] {
        assert_eq!(scaled["spec"]["scaleTargetRef"][key], fleet[key]);
    }
    assert_eq!(scaled["spec"]["scaleTargetRef"]["name"], fleet["metadata"]["name"]);

    // One command of the README makes the Secret with all of its keys.
    let readme = tree.read("deploy/README.md");
    let of_keda = authentication["spec"]["secretTargetRef"].as_sequence().expect("secrets");
    let of_keda = of_keda.iter().map(|secret| (text(&secret["name"]), text(&secret["key"])));
    let of_pods = all_containers(&tree).into_iter().flat_map(|container| container.secrets);
    for (name, key) in of_pods.chain(of_keda) {
        assert!(readme.contains(&format!("create secret generic {name} ")), "no Secret {name} is made");
        assert!(readme.contains(&format!("--from-literal={key}=")), "no key {key} is made");
    }
}

#[test]
fn on_a_cluster_keda_looks_at_the_stream_of_every_partition() {
    let tree = Tree::read_all();
    let of =
        |file: &str| containers::documents(&tree, &format!("deploy/kubernetes/cluster/{file}")).remove(0);
    let kustomization = of("kustomization.yaml");
    let patch: yaml_serde::Value =
        yaml_serde::from_str(&text(&kustomization["patches"][0]["patch"])).expect("a patch");
    let variable = &patch[0]["value"];
    assert_eq!(text(&variable["name"]), "TIDEGATE_STREAM_PARTITIONS");
    let set = format!("stream.partitions={}", text(&variable["value"]));
    let settings = Program::with_flags(&["--set", &set]).run("config --json").expect(0).json();
    let tags = setting(&settings, "stream.partitions");
    let tags: Vec<&str> =
        tags.as_array().expect("tags").iter().map(|tag| tag.as_str().expect("a tag")).collect();
    let name = setting(&settings, "stream.name").as_str().expect("a name").to_owned();
    let wanted: Vec<String> = tags.iter().map(|tag| format!("{{{tag}}}:{name}")).collect();
    let triggers = of("triggers.yaml");
    assert_eq!(
        (text(&triggers[0]["op"]).as_str(), text(&triggers[0]["path"]).as_str()),
        ("replace", "/spec/triggers")
    );
    let triggers = triggers[0]["value"].as_sequence().expect("triggers");
    let streams: Vec<String> = triggers.iter().map(|trigger| text(&trigger["metadata"]["stream"])).collect();
    assert_eq!(streams, wanted);
    let single = containers::documents(&tree, "deploy/kubernetes/keda/scaledobject.yaml").remove(0);
    for trigger in triggers {
        assert_eq!(text(&trigger["type"]), "redis-cluster-streams");
        for same in ["consumerGroup", "lagCount", "activationLagCount"] {
            assert_eq!(trigger["metadata"][same], single["spec"]["triggers"][0]["metadata"][same], "{same}");
        }
    }
}

/// The number of MiB after this text in a document, such as 96 in `≤ 96 MiB`.
fn mib(tree: &Tree, document: &str, line: &str, before: &str) -> u64 {
    let text = tree.read(document);
    let line = text.lines().find(|text| text.contains(line)).unwrap_or_else(|| panic!("{document}: {line}"));
    let (_, rest) = line.split_once(before).unwrap_or_else(|| panic!("{document}: {before}"));
    rest.split(" MiB").next().expect("a number").trim().parse().expect("MiB")
}

#[test]
fn on_a_cluster_a_worker_may_take_twice_what_the_figures_say() {
    let tree = Tree::read_all();
    let entries = mib(&tree, "docs/benchmarks/README.md", "worker's peak memory, entries of 64 KiB", "| ≤ ");
    let comparison = mib(&tree, "docs/reconcile.md", "ten million orders of one voucher took", "126 s and ");
    let kustomization =
        containers::documents(&tree, "deploy/kubernetes/cluster/kustomization.yaml").remove(0);
    let patch: yaml_serde::Value =
        yaml_serde::from_str(&text(&kustomization["patches"][0]["patch"])).expect("a patch");
    let partitions = text(&patch[0]["value"]["value"]).split(',').count() as u64;
    assert!(text(&patch[1]["path"]).ends_with("/resources"));
    let limit = text(&patch[1]["value"]["limits"]["memory"]);
    let limit: u64 = limit.strip_suffix("Mi").expect("MiB").parse().expect("a number");
    let wanted = 2 * (entries + comparison + 2 * partitions);
    assert!(limit >= wanted && limit < wanted + 64, "{limit} MiB, and {wanted} are wanted");
}

#[test]
fn files_that_are_mounted_copied_or_listed_exist() {
    let tree = Tree::read_all();
    let compose = containers::documents(&tree, COMPOSE).remove(0);
    let mut mounted = 0;
    for (name, service) in compose["services"].as_mapping().expect("services") {
        for volume in service["volumes"].as_sequence().into_iter().flatten() {
            let from = text(volume).split(':').next().expect("a source").to_owned();
            match from.strip_prefix("./") {
                Some(path) => {
                    mounted += 1;
                    assert!(Tree::root().join("deploy").join(path).exists(), "{name:?}: {path} is missing");
                }
                None => assert!(compose["volumes"].get(&from).is_some(), "{name:?}: no volume {from}"),
            }
        }
    }
    assert!(mounted >= 4);
    let example = tree.read("deploy/env.example");
    for name in tree.read(COMPOSE).split("${").skip(1).map(|rest| rest.split(':').next().expect("a name")) {
        assert!(example.contains(&format!("\n{name}=")), "env.example lacks {name}");
    }

    let ignored = fs::read_to_string(Tree::root().join(".dockerignore")).expect(".dockerignore");
    let dockerfile = tree.read("deploy/Dockerfile");
    let copied = dockerfile
        .lines()
        .filter_map(|line| line.strip_prefix("COPY "))
        .filter(|line| !line.starts_with("--"));
    for word in copied.flat_map(|line| line.rsplit_once(' ').expect("a target").0.split(' ')) {
        assert!(tree.has_path(word), "{word} is copied");
        assert!(ignored.lines().any(|line| line == format!("!{word}")), ".dockerignore hides {word}");
    }
    for folder in ["fleet", "keda", "cluster", "gate"] {
        let folder = format!("deploy/kubernetes/{folder}/");
        let kustomization = containers::documents(&tree, &format!("{folder}kustomization.yaml")).remove(0);
        let resources = containers::words(&kustomization["resources"]).expect("resources");
        for resource in &resources {
            assert!(Tree::root().join(&folder).join(resource).exists(), "{resource} is missing");
        }
        let patches = kustomization["patches"].as_sequence().into_iter().flatten();
        let patches: Vec<&str> = patches.filter_map(|patch| patch["path"].as_str()).collect();
        for file in tree.paths_of(".yaml").filter_map(|path| path.strip_prefix(&*folder)) {
            let is_listed = resources.iter().any(|it| it == file) || patches.contains(&file);
            // migrate.yaml is applied by itself, before the others.
            assert!(
                is_listed || ["kustomization.yaml", "migrate.yaml"].contains(&file),
                "{folder}{file} is in no list"
            );
        }
    }
}

#[test]
fn the_image_is_built_with_a_rust_that_is_new_enough_and_runs_what_exists_as_nobody() {
    let tree = Tree::read_all();
    let dockerfile = tree.read("deploy/Dockerfile");
    let line = |word: &str| {
        let found = dockerfile.lines().rfind(|line| line.contains(word));
        found.unwrap_or_else(|| panic!("{word} is missing")).to_owned()
    };
    let minor =
        |version: &str| version.split('.').nth(1).expect("a version").parse::<u32>().expect("a number");
    let manifest: toml::Table = tree.read("Cargo.toml").parse().expect("TOML");
    let wanted = manifest["workspace"]["package"]["rust-version"].as_str().expect("a version").to_owned();
    let image =
        line("FROM rust:").split(':').nth(1).expect("a tag").split('-').next().expect("a version").to_owned();
    assert!(minor(&image) >= minor(&wanted), "{image} and {wanted}");
    let exec = |word: &str| -> Vec<String> {
        let line = line(word);
        serde_json::from_str(&line[line.find('[').expect("a list")..]).expect("a list of words")
    };
    // `one_health_check_fits_a_worker_a_gate_and_both_in_one_process` tests this command.
    assert_eq!(exec("HEALTHCHECK"), ["tidegate", "probe", "--any", "livez"]);
    assert_known("CMD", &[exec("ENTRYPOINT"), exec("CMD [\"worker")].concat());
    let user = line("USER ").split([' ', ':']).nth(1).expect("a user").parse::<u32>();
    assert!(user.is_ok_and(|user| user > 0), "Kubernetes' runAsNonRoot wants a number");
}

/// The last value of a key of a unit.
fn of_unit(unit: &str, key: &str) -> String {
    let value = unit.lines().rfind(|line| line.starts_with(&format!("{key}=")));
    value.unwrap_or_else(|| panic!("no {key}")).split_once('=').expect("a value").1.to_owned()
}

#[test]
fn systemd_takes_the_unit_and_the_program_what_the_unit_gives_it() {
    let tree = Tree::read_all();
    let unit = tree.read(UNIT);
    let command: Vec<String> = of_unit(&unit, "ExecStart").split(' ').map(str::to_owned).collect();
    let command = [vec!["tidegate".to_owned()], command[1..].to_vec()].concat();
    assert_known(UNIT, &command);
    assert_eq!(of_unit(&unit, "Type"), "notify");
    // The exit code 2 means wrong usage or configuration only: tests/operators/configuration.rs checks that.
    assert_eq!(of_unit(&unit, "RestartPreventExitStatus"), "2");
    let stop = Duration::from_secs(of_unit(&unit, "TimeoutStopSec").parse().expect("seconds"));
    let secrets = tree.read("deploy/systemd/tidegate.env.example");
    let env = unit.lines().filter_map(|line| line.strip_prefix("Environment="));
    let env =
        env.flat_map(|line| line.split(' ')).chain(secrets.lines().filter(|line| !line.starts_with('#')));
    let env = env.map(|pair| pair.split_once('=').expect("a pair"));
    let mut env: Vec<(&str, String)> = env.map(|(name, value)| (name, value.to_owned())).collect();
    let production = Tree::root().join("config/production.toml").display().to_string();
    env.iter_mut()
        .filter(|(name, _)| *name == "TIDEGATE_CONFIG")
        .for_each(|(_, value)| *value = production.clone());
    let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let settings = Program::with_flags(&[]).run_with(&["config", "--json"], &env).expect(0).json();
    let deadline = setting(&settings, "worker.stop_deadline_ms").as_u64().expect("a number");
    assert!(stop > Duration::from_millis(deadline));
    assert_eq!(stop, seconds(&format!("{}s", of_unit(&unit, "TimeoutAbortSec"))));
    let connections = setting(&settings, "gate.connections").as_u64().expect("a number");
    let files: u64 = of_unit(&unit, "LimitNOFILE").parse().expect("a number");
    assert!(files >= connections + 256, "callers of a gate have no room in {files} files");

    let Ok(version) = Command::new("systemd-analyze").arg("--version").output() else {
        eprintln!("systemd-analyze is not on this machine: the unit was only read");
        return;
    };
    assert!(version.status.success());
    let folder = tempfile::TempDir::new().expect("a folder");
    let path = folder.path().join("tidegate.service");
    let with_path = concat!("ExecStart=", env!("CARGO_BIN_EXE_tidegate"));
    fs::write(&path, unit.replace("ExecStart=tidegate", with_path)).expect("written");
    let output = Command::new("systemd-analyze").arg("verify").arg(&path).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let of_ours: Vec<&str> = said.lines().filter(|line| line.contains("tidegate")).collect();
    assert!(of_ours.is_empty(), "{said}");
}
