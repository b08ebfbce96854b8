//! The pages of the runbook: RUNBOOK.md, which links to all others, and all files of `docs/runbook/`.

use std::{ffi::OsStr, fs};

use crate::tree::Tree;

/// The parts of a page for a symptom, in this order.
pub const PARTS: [&str; 5] =
    ["What you see", "How to confirm it", "What to type", "When it is over", "What not to do"];

/// A page of the runbook.
pub struct Page {
    /// The path from the top of the repository.
    pub path: String,
    pub title: String,
    pub text: String,
}

impl Page {
    pub fn new(path: &str, text: String) -> Self {
        let title = text.lines().find_map(|line| line.strip_prefix("# "));
        let title = title.unwrap_or_else(|| panic!("{path} has no title")).to_owned();
        Self { path: path.to_owned(), title, text }
    }

    /// Whether the page has the parts of a page for a symptom, and no others.
    pub fn has_all_parts(&self) -> bool {
        self.text.lines().filter_map(|line| line.strip_prefix("## ")).eq(PARTS)
    }
}

/// The page RUNBOOK.md.
pub fn index() -> Page {
    let text = fs::read_to_string(Tree::root().join("RUNBOOK.md"));
    Page::new("RUNBOOK.md", text.expect("RUNBOOK.md is there"))
}

/// All pages of `docs/runbook/`, by name.
pub fn pages() -> Vec<Page> {
    let folder = fs::read_dir(Tree::root().join("docs/runbook")).expect("a folder");
    let paths = folder.map(|entry| entry.expect("an entry").path());
    let mut pages: Vec<Page> = paths
        .filter(|path| path.extension() == Some(OsStr::new("md")))
        .map(|path| {
            let name = path.file_name().expect("a name").to_string_lossy();
            Page::new(&format!("docs/runbook/{name}"), fs::read_to_string(&path).expect("text"))
        })
        .collect();
    pages.sort_by(|one, other| one.path.cmp(&other.path));
    pages
}

/// The whole text of the runbook.
pub fn text() -> String {
    std::iter::once(index()).chain(pages()).map(|page| page.text).collect::<Vec<_>>().join("\n")
}
