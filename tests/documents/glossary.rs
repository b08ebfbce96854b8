//! docs/glossary.md: our own words are few, each is defined once, and newcomers find the page.

use std::collections::BTreeSet;

use crate::{markdown::Document, tree::Tree};

const PAGE: &str = "docs/glossary.md";
/// More of them would be a language of its own, which every newcomer has to learn first.
const MOST_WORDS: usize = 12;
const MOST_SENTENCES: usize = 2;

#[test]
fn our_own_words_are_few_and_each_is_defined_once() {
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
fn a_word_too_many_or_a_wrong_definition_would_be_seen() {
    let page = |words: usize| {
        (0..words).map(|word| format!("| word {word} | What it means. |\n")).collect::<String>()
    };
    let head = "# Glossary\n\n| word | what it means |\n|---|---|\n";
    assert!(complaints(&format!("{head}{}", page(12))).is_empty());
    for (wrong, what) in [
        (page(13), "too many"),
        (String::new(), "none"),
        ("| lane | One. |\n| lane | Another. |\n".to_owned(), "defined twice"),
        ("| lane | One. Two. Three. |\n".to_owned(), "too long"),
        ("| lane | |\n".to_owned(), "not defined"),
    ] {
        assert_eq!(complaints(&format!("{head}{wrong}")).len(), 1, "{what}");
    }
}

fn complaints(page: &str) -> Vec<String> {
    let (mut words, mut complaints) = (BTreeSet::new(), Vec::new());
    for row in page.lines().filter_map(|line| line.strip_prefix("| ")).skip(1) {
        let mut cells = row.split('|').map(str::trim);
        let (word, meaning) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        if !words.insert(word) {
            complaints.push(format!("{word} is defined twice"));
        }
        let sentences = meaning.split_inclusive('.').filter(|sentence| sentence.ends_with('.')).count();
        if !(1..=MOST_SENTENCES).contains(&sentences) {
            complaints.push(format!("{word} is defined in {sentences} sentences"));
        }
    }
    if !(1..=MOST_WORDS).contains(&words.len()) {
        complaints.push(format!("{} words are defined, and not 1 to {MOST_WORDS}", words.len()));
    }
    complaints
}
