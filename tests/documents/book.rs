//! The book (`just book`): its contents name all pages, and its links and drawings work.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use crate::{markdown::Document, references::PART_OF_GENERATED, tree::Tree};

const CONTENTS: &str = "docs/SUMMARY.md";
/// The folder of the book, from the top of the repository.
const BOOK: &str = "target/book";
/// The issue of the book was to draw what people would rather see than read.
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
    let book = Tree::root().join(BOOK);
    let mut pages = BTreeMap::new();
    collect(&book, "", &mut pages);
    let ids: BTreeMap<&str, BTreeSet<&str>> =
        pages.iter().map(|(path, text)| (path.as_str(), values(text, "id").collect())).collect();
    let mut broken = Vec::new();
    for (path, text) in &pages {
        for link in values(text, "href").filter(|link| !link.contains("://") && !link.starts_with("mailto:"))
        {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = Document::parse(path, "").target_of(file);
            let has_anchor = |ids: &BTreeSet<&str>| anchor.is_empty() || ids.contains(anchor);
            let is_found = match ids.get(target.as_str()) {
                Some(ids) => has_anchor(ids),
                None => book.join(&target).is_file(),
            };
            if !is_found {
                broken.push(format!("{path}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
    let drawings: usize = pages.values().map(|text| text.matches("<pre class=\"mermaid\">").count()).sum();
    assert!(drawings >= DRAWINGS, "{drawings} drawings");
    let undrawn: Vec<&String> =
        pages.iter().filter(|(_, text)| text.contains("language-mermaid")).map(|(path, _)| path).collect();
    assert!(undrawn.is_empty(), "{undrawn:?}");
    for part in ["searchindex", "mermaid"] {
        let files = fs::read_dir(&book).expect("the book").flatten();
        assert!(files.into_iter().any(|it| it.file_name().to_string_lossy().starts_with(part)), "no {part}");
    }
}

/// The pages of the book by their paths, without the one that has all pages to print, and the frame of the contents.
fn collect(folder: &Path, prefix: &str, pages: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).expect("just book builds it").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if entry.path().is_dir() {
            collect(&entry.path(), &format!("{path}/"), pages);
        } else if name.ends_with(".html") && !["print.html", "404.html", "toc.html"].contains(&name.as_str())
        {
            pages.insert(path, fs::read_to_string(entry.path()).expect("text"));
        }
    }
}

/// The values of an attribute of HTML.
fn values<'a>(text: &'a str, attribute: &str) -> impl Iterator<Item = &'a str> {
    let begin = format!(" {attribute}=\"");
    let parts: Vec<&str> = text.split(begin.as_str()).skip(1).collect();
    parts.into_iter().filter_map(|part| Some(part.split_once('"')?.0))
}
