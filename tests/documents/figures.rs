//! Test of the figures in README: the benchmark's page has each of them.

use std::collections::BTreeSet;

use crate::{
    markdown::{Part, parts},
    tree::Tree,
};

/// The units that follow a measured figure.
const UNITS: [&str; 5] = ["orders/s", "orders a second", "µs", "ms", "MiB"];

#[test]
fn the_figures_of_readme_stand_in_the_benchmark() {
    let tree = Tree::read_all();
    let page = tree.read("docs/benchmarks/README.md");
    let page: BTreeSet<&str> = page.split(|c: char| c.is_whitespace() || c == '|').collect();
    let readme = tree.read("README.md");
    // Blocks of code show other runs.
    let parts = parts("README.md", &readme);
    let prose = parts.iter().filter_map(|part| if let Part::Prose(text) = part { Some(text) } else { None });
    for figure in prose.flat_map(|text| figures(text)) {
        assert!(page.contains(figure), "docs/benchmarks/README.md has no {figure}, which README.md quotes");
    }
    assert_eq!(
        figures("It writes 12,300 orders/s. A row of 3 | 1.5 ms |").collect::<Vec<_>>(),
        ["12,300", "1.5"]
    );
}

/// The numbers before one of the units.
fn figures(text: &str) -> impl Iterator<Item = &str> {
    let numbers = text.match_indices(' ').filter_map(move |(at, _)| {
        let is_unit = |unit: &&str| {
            let rest = text[at + 1..].strip_prefix(*unit);
            rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
        };
        UNITS.into_iter().find(is_unit)?;
        text[..at].split_whitespace().next_back()
    });
    numbers.filter(|number| number.starts_with(|c: char| c.is_ascii_digit()))
}
