//! As much of PromQL as is needed to find the metrics and labels of an expression. promtool checks whether an
//! expression is well-formed.

use std::collections::BTreeSet;

/// The selectors and labels of an expression.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Uses {
    pub selectors: Vec<Selector>,
    /// The labels of `by`, `on` and similar keywords.
    pub grouped_by: BTreeSet<String>,
}

/// `name{label="value"}`
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Selector {
    pub metric: String,
    /// The labels, operators and values of the selector, as they are written.
    pub matchers: Vec<(String, String, String)>,
}

const GROUPING: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
const OPERATORS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];

/// Parses an expression.
pub fn uses(expression: &str) -> Uses {
    let mut uses = Uses::default();
    let mut rest = expression.trim_start();
    while let Some(first) = rest.chars().next() {
        if is_of_a_name(first) && !first.is_ascii_digit() {
            let (name, after) = rest.split_at(rest.find(|c| !is_of_a_name(c)).unwrap_or(rest.len()));
            let after = after.trim_start();
            rest = if GROUPING.contains(&name) {
                let (labels, after) = within(after, '(', ')');
                let labels = labels.split(',').map(str::trim).filter(|label| !label.is_empty());
                uses.grouped_by.extend(labels.map(str::to_owned));
                after
            } else if after.starts_with('(') || is_grouping(after) || OPERATORS.contains(&name) {
                after
            } else {
                let (matchers, after) = within(after, '{', '}');
                uses.selectors.push(Selector { metric: name.to_owned(), matchers: matchers_of(matchers) });
                after
            };
        } else if first == '[' {
            rest = within(rest, '[', ']').1;
        } else if first.is_ascii_digit() {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.');
        } else {
            rest = &rest[first.len_utf8()..];
        }
        rest = rest.trim_start();
    }
    uses
}

/// Whether the name before this text is that of an aggregation: `max by (job) (...)`.
fn is_grouping(after: &str) -> bool {
    let name = after.split(|c| !is_of_a_name(c)).next();
    name.is_some_and(|name| ["by", "without"].contains(&name))
}

fn is_of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

/// The content of the brackets at the beginning of `text`, and the rest. If `text` begins otherwise, the content is
/// empty.
fn within(text: &str, open: char, close: char) -> (&str, &str) {
    let inner = text.strip_prefix(open).and_then(|text| text.split_once(close));
    inner.unwrap_or(("", text))
}

fn matchers_of(text: &str) -> Vec<(String, String, String)> {
    let matchers = text.split("\",").filter(|matcher| !matcher.trim().is_empty());
    let matcher = |matcher: &str| {
        let (label, value) = matcher.split_once('"').expect("a value in quotes");
        let name = label.trim_end_matches(['=', '!', '~', ' ']);
        let operator = label[name.len()..].trim().to_owned();
        (name.trim().to_owned(), operator, value.trim_end_matches('"').to_owned())
    };
    matchers.map(matcher).collect()
}

#[test]
fn metrics_and_labels_are_found_wherever_they_stand() {
    let uses = uses(
        r#"histogram_quantile(0.9, sum by (le, job) (rate(a_bucket{x="1",y=~"2|3"}[5m]))) - c:d > 1e3
           and on (instance) max without(z) (b{}) unless bool e offset 5m"#,
    );
    let metrics: Vec<&str> = uses.selectors.iter().map(|selector| selector.metric.as_str()).collect();
    assert_eq!(metrics, ["a_bucket", "c:d", "b", "e"]);
    let matcher = |name: &str, operator: &str, value: &str| (name.into(), operator.into(), value.into());
    assert_eq!(uses.selectors[0].matchers, [matcher("x", "=", "1"), matcher("y", "=~", "2|3")]);
    assert_eq!(uses.grouped_by.into_iter().collect::<Vec<_>>(), ["instance", "job", "le", "z"]);
}
