//! Tests of docs/glossary.md: it defines each word of our own once, newcomers find it, and names contain no other such
//! words.

use std::collections::{BTreeMap, BTreeSet};

use crate::{markdown::Document, structure::product::Product, tree::Tree};

const PAGE: &str = "docs/glossary.md";
/// Plain English, and the terms of Redis, SQL, HTTP, Prometheus, Rust and trade.
const FIELD_TERMS: &str = include_str!("field-terms.txt");
const MOST_SENTENCES: usize = 2;

#[test]
fn each_word_of_a_name_is_in_the_glossary_or_a_term_of_the_field() {
    let tree = Tree::read_all();
    let (product, settings) = (Product::read(&tree), tree.read("config/default.toml"));
    let settings = settings.lines().filter_map(|line| line.split_once(" = ")).map(|(name, _)| name);
    let names = product.public_names().into_iter().chain(settings.filter(|name| !name.starts_with('#')));
    let complaints = unknown_words(names, &tree.read(PAGE), FIELD_TERMS);
    assert!(
        complaints.is_empty(),
        "\n{}\nUse the word of the field. A word that is really ours goes into {PAGE}.\n",
        complaints.join("\n")
    );
}

#[test]
fn an_unknown_word_and_an_unused_term_would_be_seen() {
    let page = "| word | what it means |\n|---|---|\n| set aside | Leave it pending. |\n";
    let names = ["SetAside", "lane_status", "stream.partition_ms"];
    let check = |terms: &str| unknown_words(names.into_iter(), page, terms);
    assert_eq!(check("# A comment.\nlane ms partition status\nstream"), Vec::<String>::new());
    assert_eq!(check("ms partition status stream"), ["lane (in lane_status) is unknown"]);
    assert_eq!(check("lane ms partition status stream row"), ["row is in no name: remove it from the list"]);
}

#[test]
fn each_word_of_our_own_is_defined_once() {
    let complaints = complaints(&Tree::read_all().read(PAGE));
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn the_ways_in_lead_to_the_glossary() {
    let tree = Tree::read_all();
    for name in ["README.md", "ARCHITECTURE.md"] {
        let page = Document::parse(name, &tree.read(name));
        assert!(page.links.iter().any(|link| page.target_of(link) == PAGE), "{name} has no link to {PAGE}");
    }
}

#[test]
fn a_wrong_definition_would_be_seen() {
    let head = "# Glossary\n\n| word | what it means |\n|---|---|\n";
    assert!(complaints(&format!("{head}| lane | One. |\n| slot | Another. |\n")).is_empty());
    for (wrong, what) in [
        ("", "none"),
        ("| lane | One. |\n| lane | Another. |\n", "defined twice"),
        ("| slot | One. |\n| lane | Another. |\n", "not in order"),
        ("| lane | One. Two. Three. |\n", "too long"),
        ("| lane | |\n", "not defined"),
    ] {
        assert_eq!(complaints(&format!("{head}{wrong}")).len(), 1, "{what}");
    }
}

/// The words of the glossary with their definitions.
fn definitions(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.lines().filter_map(|line| line.strip_prefix("| ")).skip(1).map(|row| {
        let mut cells = row.split('|').map(str::trim);
        (cells.next().unwrap_or_default(), cells.next().unwrap_or_default())
    })
}

fn complaints(page: &str) -> Vec<String> {
    let (mut last, mut complaints) = ("", Vec::new());
    for (word, meaning) in definitions(page) {
        match word.cmp(last) {
            std::cmp::Ordering::Less => complaints.push(format!("{word} stands behind {last}")),
            std::cmp::Ordering::Equal => complaints.push(format!("{word} is defined twice")),
            std::cmp::Ordering::Greater => {}
        }
        let sentences = meaning.split_inclusive('.').filter(|sentence| sentence.ends_with('.')).count();
        if !(1..=MOST_SENTENCES).contains(&sentences) {
            complaints.push(format!("{word} is defined in {sentences} sentences"));
        }
        last = word;
    }
    if last.is_empty() {
        complaints.push("no word is defined".to_owned());
    }
    complaints
}

/// The words of names that are neither defined on the page nor terms of the field, and terms that no name has.
fn unknown_words<'a>(names: impl Iterator<Item = &'a str>, page: &str, terms: &str) -> Vec<String> {
    let terms = terms.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace);
    let terms: BTreeSet<&str> = terms.collect();
    let own: BTreeSet<&str> = definitions(page).flat_map(|(word, _)| word.split([' ', '-'])).collect();
    let words: BTreeMap<String, &str> =
        names.flat_map(|name| words_of(name).into_iter().map(move |word| (word, name))).collect();
    let unknown =
        words.iter().filter(|(word, _)| !terms.contains(word.as_str()) && !own.contains(word.as_str()));
    let unused = terms.iter().filter(|term| !words.contains_key(**term));
    let unknown = unknown.map(|(word, name)| format!("{word} (in {name}) is unknown"));
    unknown.chain(unused.map(|term| format!("{term} is in no name: remove it from the list"))).collect()
}

/// The words of `CamelCase`, `snake_case` and dotted names, in lower case.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for letter in name.chars() {
        if !letter.is_ascii_alphabetic() || (letter.is_ascii_uppercase() && was_lower) {
            words.push(String::new());
        }
        was_lower = letter.is_ascii_lowercase();
        if letter.is_ascii_alphabetic() {
            words.last_mut().expect("one at least").push(letter.to_ascii_lowercase());
        }
    }
    words.retain(|word| word.len() > 1);
    words
}
