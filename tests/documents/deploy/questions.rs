//! The queries of the alerts and of the dashboard.

use yaml_serde::Value;

use super::containers::{self, text};

use crate::{
    catalog::{ALL, GATE, Metric, MetricKind},
    tree::Tree,
};

pub const ALERTS: &str = "deploy/prometheus/alerts.yml";
const DASHBOARD: &str = "deploy/grafana/dashboard.json";

/// The alerts with their names.
pub fn alerts(tree: &Tree) -> Vec<(String, Value)> {
    let rules = containers::documents(tree, ALERTS).remove(0);
    let rules = rules["groups"][0]["rules"].as_sequence().expect("rules").clone();
    rules.into_iter().map(|rule| (text(&rule["alert"]), rule)).collect()
}

/// All expressions with their places.
pub fn expressions(tree: &Tree) -> Vec<(String, String)> {
    let alerts = alerts(tree).into_iter().map(|(name, rule)| (name, text(&rule["expr"])));
    alerts.chain(queries(tree)).collect()
}

/// The queries of the dashboard, with Grafana's own variables filled in.
pub fn queries(tree: &Tree) -> Vec<(String, String)> {
    let dashboard: serde_json::Value = serde_json::from_str(&tree.read(DASHBOARD)).expect("JSON");
    assert_eq!(dashboard["uid"], "tidegate");
    let mut queries = Vec::new();
    let annotations = dashboard["annotations"]["list"].as_array().expect("annotations");
    queries
        .extend(annotations.iter().map(|annotation| ("annotation".to_owned(), annotation["expr"].clone())));
    for panel in dashboard["panels"].as_array().expect("panels") {
        let title = panel["title"].as_str().expect("a title");
        for target in panel["targets"].as_array().into_iter().flatten() {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
            queries.push((title.to_owned(), target["expr"].clone()));
        }
    }
    assert!(queries.len() > 30, "{queries:?}");
    let filled_in = |query: &serde_json::Value| {
        query.as_str().expect("an expression").replace("$__rate_interval", "5m").replace("$job", "tidegate")
    };
    queries.iter().map(|(title, query)| (title.clone(), filled_in(query))).collect()
}

/// The metric of the catalog that has a sample, or a part of a histogram, with this name.
pub fn metric(name: &str) -> Option<&'static Metric> {
    ALL.iter().chain(GATE).find(|metric| is_of(name, metric))
}

fn is_of(name: &str, metric: &Metric) -> bool {
    let parts: &[&str] =
        if metric.kind == MetricKind::Histogram { &["_bucket", "_sum", "_count"] } else { &[""] };
    name.strip_prefix(metric.name).is_some_and(|part| parts.contains(&part))
}

/// Whether a gate exports this metric, and workers do not.
pub fn is_of_gate(name: &str) -> bool {
    GATE.iter().any(|metric| is_of(name, metric))
}
