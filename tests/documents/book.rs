//! The book (`just book`): its contents name all pages, and its links and drawings work.

use std::collections::{BTreeMap, BTreeSet};

use crate::{markdown::Document, references::PART_OF_GENERATED, tree::Tree};

const CONTENTS: &str = "docs/SUMMARY.md";
/// The folder of the book, from the top of the repository.
const BOOK: &str = "target/book";
/// Files of HTML that repeat the pages or the contents.
const NO_PAGES: [&str; 3] = ["print.html", "404.html", "toc.html"];
/// The least number of drawings.
const DRAWINGS: usize = 10;

#[test]
fn the_contents_name_each_page_once() {
    let tree = Tree::read_all();
    let contents = Document::parse(CONTENTS, &tree.read(CONTENTS));
    let mut named: Vec<String> = contents.links.iter().map(|link| contents.target_of(link)).collect();
    named.sort();
    let pages = tree.paths_of(".md").filter(|path| ![CONTENTS, PART_OF_GENERATED].contains(path));
    assert_eq!(named, pages.collect::<Vec<_>>(), "{CONTENTS} names the left ones, the right ones exist");
}

#[test]
#[ignore = "just check-book builds the book first"]
fn every_link_of_the_book_leads_to_a_page_and_every_drawing_is_drawn() {
    let folder = Tree::root().join(BOOK);
    let book = Tree::read_folder(&folder);
    let pages = book.paths_of(".html").filter(|path| !NO_PAGES.contains(path));
    let pages: BTreeMap<&str, String> = pages.map(|path| (path, book.read(path))).collect();
    let ids: BTreeMap<&str, BTreeSet<&str>> =
        pages.iter().map(|(path, text)| (*path, values(text, "id").collect())).collect();
    let is_found = |path: &str, link: &str| {
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = Document::parse(path, "").target_of(file);
        match ids.get(target.as_str()) {
            Some(ids) => anchor.is_empty() || ids.contains(anchor),
            None => folder.join(&target).is_file(),
        }
    };
    let is_ours =
        |link: &&str| !link.contains("://") && !["mailto:", "data:"].iter().any(|it| link.starts_with(it));
    let broken = pages.iter().flat_map(|(path, text)| {
        let links = values(text, "href").filter(is_ours).filter(|link| !is_found(path, link));
        links.map(move |link| format!("{path}: {link}"))
    });
    let broken: Vec<String> = broken.collect();
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
    let drawings: usize = pages.values().map(|text| text.matches("<pre class=\"mermaid\">").count()).sum();
    assert!(drawings >= DRAWINGS, "{drawings} drawings");
    let undrawn = pages.iter().filter(|(_, text)| text.contains("language-mermaid"));
    let undrawn: Vec<&str> = undrawn.map(|(path, _)| *path).collect();
    assert!(undrawn.is_empty(), "{undrawn:?}");
    for part in ["searchindex", "mermaid"] {
        assert!(book.paths_of(".js").any(|path| path.starts_with(part)), "no {part}");
    }
}

/// The values of an attribute of HTML.
fn values<'a>(text: &'a str, attribute: &str) -> impl Iterator<Item = &'a str> {
    let begin = format!(" {attribute}=\"");
    let parts: Vec<&str> = text.split(begin.as_str()).skip(1).collect();
    parts.into_iter().filter_map(|part| Some(part.split_once('"')?.0))
}
