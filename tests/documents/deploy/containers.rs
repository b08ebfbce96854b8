//! The containers of compose.yaml and of the Kubernetes manifests that run our image.

use std::{collections::BTreeMap, time::Duration};

use yaml_serde::Value;

use crate::tree::Tree;

/// Values for secrets that come from elsewhere, by their variables.
const SECRETS: [(&str, &str); 5] = [
    ("TIDEGATE_REDIS_URL", "redis://default:secret@redis:6379/0"),
    ("TIDEGATE_MYSQL_URL", "mysql://tidegate:secret@mysql:3306/hmdp"),
    (
        "TIDEGATE_TOKENS",
        "prometheus:read:2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90,\
         shop:order+event:f52fbd32b2b3b86ff88ef6c490628285f482af15ddcb29541f94bcf526a3f6c7",
    ),
    ("PROMETHEUS_TOKEN_SHA256", "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90"),
    ("SHOP_TOKEN_SHA256", "f52fbd32b2b3b86ff88ef6c490628285f482af15ddcb29541f94bcf526a3f6c7"),
];

/// A container that runs our image.
#[derive(Debug)]
pub struct Container {
    /// The file that describes the container.
    pub place: String,
    pub env: BTreeMap<String, String>,
    /// The commands that run in the container: its own command, its probes and its health checks.
    pub commands: Vec<Vec<String>>,
    /// The time that the container may take to stop.
    pub grace: Duration,
    pub ports: Vec<u64>,
    /// Names of secrets and their keys.
    pub secrets: Vec<(String, String)>,
}

impl Container {
    pub fn is_worker(&self) -> bool {
        self.commands[0][1] == "worker"
    }

    /// The setting with the address on which the container listens. None: the container's command ends by itself.
    pub fn listen(&self) -> Option<&'static str> {
        match self.commands[0][1].as_str() {
            "worker" => Some("admin.listen"),
            "gate" => Some("gate.listen"),
            _ => None,
        }
    }
}

/// All documents of a YAML file, with its merge keys (`<<`) merged.
pub fn documents(tree: &Tree, path: &str) -> Vec<Value> {
    use serde::Deserialize;
    let text = tree.read(path);
    let parsed = yaml_serde::Deserializer::from_str(&text).map(Value::deserialize);
    let merged = parsed.map(|document| {
        let mut document = document.unwrap_or_else(|error| panic!("{path}: {error}"));
        document.apply_merge().unwrap_or_else(|error| panic!("{path}: {error}"));
        document
    });
    merged.collect()
}

/// The containers of compose.yaml.
pub fn of_compose(tree: &Tree, path: &str) -> Vec<Container> {
    let compose = documents(tree, path).remove(0);
    let services = compose["services"].as_mapping().expect("services").clone();
    let ours = services.into_iter().filter(|(_, service)| service["image"] == "tidegate");
    let container = |(name, service): (Value, Value)| {
        let env = service["environment"].as_mapping().expect("an environment");
        let env = env.iter().map(|(name, value)| (text(name), filled_in(&text(value))));
        let own = ours_with(words(&service["command"]).unwrap_or(vec!["worker".into()]));
        // The first word is CMD.
        let check = words(&service["healthcheck"]["test"]).map(|words| words[1..].to_vec());
        let ports = words(&service["ports"]).unwrap_or_default();
        let port = |port: &String| port.rsplit(':').next().expect("a port").parse().expect("a number");
        Container {
            place: format!("{path}: {}", text(&name)),
            env: env.collect(),
            commands: [own].into_iter().chain(check).collect(),
            grace: seconds(&text(&service["stop_grace_period"])),
            ports: ports.iter().map(port).collect(),
            secrets: Vec::new(),
        }
    };
    ours.map(container).collect()
}

/// The containers of a manifest.
pub fn of_kubernetes(tree: &Tree, path: &str) -> Vec<Container> {
    let mut containers = Vec::new();
    for document in documents(tree, path) {
        let pod = &document["spec"]["template"]["spec"];
        let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap_or(30);
        let both = [&pod["containers"], &pod["initContainers"]];
        for container in both.into_iter().filter_map(Value::as_sequence).flatten() {
            let image = text(&container["image"]);
            if !image.split(':').next().expect("a name").ends_with("tidegate") {
                continue;
            }
            containers.push(of_pod(path, container, Duration::from_secs(grace)));
            assert_eq!(
                pod["enableServiceLinks"], false,
                "{path}: a Service named tidegate would set variables"
            );
        }
    }
    containers
}

fn of_pod(path: &str, container: &Value, grace: Duration) -> Container {
    let (mut env, mut secrets) = (BTreeMap::new(), Vec::new());
    for variable in container["env"].as_sequence().into_iter().flatten() {
        let name = text(&variable["name"]);
        let reference = &variable["valueFrom"]["secretKeyRef"];
        let value = match variable["value"].as_str() {
            Some(value) => value.to_owned(),
            None => {
                secrets.push((text(&reference["name"]), text(&reference["key"])));
                secret(&name)
            }
        };
        assert!(env.insert(name, value).is_none(), "{path}: a variable is there twice");
    }
    let probes = ["livenessProbe", "readinessProbe", "startupProbe"];
    let probes = probes.iter().filter_map(|probe| words(&container[*probe]["exec"]["command"]));
    let ports = container["ports"].as_sequence().into_iter().flatten();
    Container {
        place: path.to_owned(),
        env,
        commands: [ours_with(words(&container["args"]).expect("args"))].into_iter().chain(probes).collect(),
        grace,
        ports: ports.filter_map(|port| port["containerPort"].as_u64()).collect(),
        secrets,
    }
}

/// The command that the image runs: its ENTRYPOINT is the program.
fn ours_with(args: Vec<String>) -> Vec<String> {
    ["tidegate".to_owned()].into_iter().chain(args).collect()
}

pub fn words(value: &Value) -> Option<Vec<String>> {
    Some(value.as_sequence()?.iter().map(text).collect())
}

/// The text of a scalar.
#[track_caller]
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        other => panic!("a text, not {other:?}"),
    }
}

/// Replaces `${NAME:?why}` in a value.
fn filled_in(value: &str) -> String {
    let mut filled = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').expect("an end");
        let name = name.split(':').next().expect("a name");
        filled = format!(
            "{filled}{before}{}",
            match name {
                name if name.starts_with("TIDEGATE_") || name.ends_with("_SHA256") => secret(name),
                _ => "secret".to_owned(),
            }
        );
        rest = after;
    }
    filled + rest
}

fn secret(name: &str) -> String {
    let known = SECRETS.iter().find(|(known, _)| *known == name);
    known.unwrap_or_else(|| panic!("{name} comes from a secret")).1.to_owned()
}

/// Parses `30s` or `1m`.
pub fn seconds(text: &str) -> Duration {
    let (number, unit) = text.split_at(text.len() - 1);
    let factor = match unit {
        "s" => 1,
        "m" => 60,
        _ => panic!("{text} is no time"),
    };
    Duration::from_secs(number.parse::<u64>().expect("a number") * factor)
}
