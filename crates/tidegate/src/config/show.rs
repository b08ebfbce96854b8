//! The effective configuration for people and for programs, with secrets hidden.

use std::fmt::Write;

use serde_json::{Map, json};
use toml::Value;

use tidegate_operations::redacted::{HIDDEN, RedactedUrl};

use super::layers::{Layers, Setting};

/// The configuration as TOML, with the source of each value. Passwords are hidden. The program can read all other
/// values again.
pub fn toml(layers: &Layers) -> String {
    let mut text = String::new();
    for setting in layers.settings() {
        let _infallible = writeln!(text, "{} = {} # {}", setting.key, visible(setting), setting.source);
    }
    text
}

/// The configuration as JSON: `{section: {key: {value, source}}}`.
pub fn json(layers: &Layers) -> serde_json::Value {
    let mut sections = Map::new();
    for setting in layers.settings() {
        let (section, key) = split(setting);
        let value = match visible(setting) {
            Value::Integer(number) => json!(number),
            Value::String(text) => json!(text),
            Value::Array(words) => words.iter().map(|word| word.as_str().unwrap_or_default()).collect(),
            Value::Table(texts) => {
                texts.iter().map(|(name, text)| (name.as_str(), text.as_str().unwrap_or_default())).collect()
            }
            other => json!(other.to_string()),
        };
        let keys = sections.entry(section).or_insert_with(|| json!({}));
        keys[key] = json!({ "value": value, "source": setting.source.to_string() });
    }
    sections.into()
}

fn split(setting: &Setting) -> (&str, &str) {
    setting.key.split_once('.').unwrap_or(("", &setting.key))
}

fn visible(setting: &Setting) -> Value {
    match &setting.value {
        Value::String(url) if setting.is_url() => Value::String(RedactedUrl::new(url.as_str()).to_string()),
        Value::String(secret) if setting.is_secret() && !secret.is_empty() => {
            Value::String(HIDDEN.to_owned())
        }
        Value::Array(entries) if setting.is_secret() => {
            Value::Array(entries.iter().map(|entry| Value::from(name_of(entry))).collect())
        }
        Value::Table(urls) if setting.is_secret() => {
            let shown = |url: &Value| RedactedUrl::new(url.as_str().unwrap_or_default()).to_string();
            Value::Table(urls.iter().map(|(name, url)| (name.clone(), Value::from(shown(url)))).collect())
        }
        value => value.clone(),
    }
}

/// The name of an entry of a list, such as a token, with the rest hidden.
fn name_of(entry: &Value) -> String {
    let name = match entry {
        Value::Table(members) => members.get("name").and_then(Value::as_str),
        text => text.as_str().and_then(|text| text.split(':').next()),
    };
    format!("{}:{HIDDEN}", name.unwrap_or_default())
}
