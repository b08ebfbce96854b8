//! The files of the repository that the documents are compared with.
#![allow(dead_code, reason = "every test file uses a part of it")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// All text files of a folder, by their path from there.
pub struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// The top of the repository.
    pub fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
    }

    /// Reads all files of the repository except build results and hidden ones (but `.ci` is read).
    pub fn read_all() -> Self {
        Self::read_folder(&Self::root())
    }

    /// Reads all files of a folder, with the same exceptions.
    pub fn read_folder(folder: &Path) -> Self {
        let mut files = BTreeMap::new();
        collect(folder, "", &mut files);
        Self { files }
    }

    /// The text of one file.
    pub fn read(&self, path: &str) -> String {
        self.files.get(path).unwrap_or_else(|| panic!("{path} is missing")).clone()
    }

    /// The paths of all files with this ending.
    pub fn paths_of<'a>(&'a self, ending: &'a str) -> impl Iterator<Item = &'a str> {
        self.files.keys().map(String::as_str).filter(move |path| path.ends_with(ending))
    }

    /// Whether a file or folder has exactly this path.
    pub fn has(&self, path: &str) -> bool {
        self.files.contains_key(path) || self.files.keys().any(|file| file.starts_with(&format!("{path}/")))
    }

    /// Whether a file or folder has this path, or a path that ends with it.
    pub fn has_path(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let ending = format!("/{path}");
        self.files
            .keys()
            .any(|file| file == path || file.starts_with(&format!("{path}/")) || file.ends_with(&ending))
    }

    /// The joined sources with these endings, in folders that begin with this text.
    pub fn sources(&self, folder: &str, endings: &[&str]) -> String {
        let wanted = self.files.iter().filter(|(path, _)| {
            // These tests name files that must not exist.
            !path.starts_with("tests/documents/references")
                && path.starts_with(folder)
                && endings.iter().any(|ending| path.ends_with(ending))
        });
        wanted.map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n")
    }
}

fn collect(folder: &Path, prefix: &str, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == "target" || (name.starts_with('.') && name != ".ci") {
            continue;
        }
        let path = format!("{prefix}{name}");
        if entry.path().is_dir() {
            collect(&entry.path(), &format!("{path}/"), files);
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            files.insert(path, text);
        }
    }
}

/// Whether a Rust file belongs to the product, and not to its tests, the lab or the benchmarks.
pub fn is_of_product(path: &str) -> bool {
    path.starts_with("crates/")
        && path.contains("/src/")
        && !path.contains("/tests/")
        && !path.ends_with("/tests.rs")
        && !["crates/tidegate-bench/", "crates/tidegate-lab/"].iter().any(|other| path.starts_with(other))
}

/// Whether `word` is in `text` as a whole word, not as a part of a longer name.
pub fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part))
}
