//! Checks of the crate's source: its public API names no type of its Redis client, and no text names its users.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, iter};

/// The one file that may name the client's types: it is there with the feature `fred` only.
const CONVERSIONS: &str = "with_fred.rs";

/// Words of the crates that use this one.
const FOREIGN: [&str; 12] = [
    "mysql",
    "sqlx",
    "voucher",
    "orders",
    "order id",
    "an order",
    "user lock",
    "user_lock",
    "`tidegate ",
    "tidegate:",
    "runbook",
    "sale",
];

fn sources() -> Vec<(String, String)> {
    fn files(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let sources: Vec<_> = files(&root)
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(&root).unwrap().display().to_string();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    assert!(sources.len() > 30, "{} files", sources.len());
    sources
}

/// The code without comments and unit tests.
fn code(source: &str) -> String {
    let source = source.split("#[cfg(test)]\nmod tests").next().unwrap();
    source.lines().filter(|line| !line.trim_start().starts_with("//")).flat_map(|line| [line, "\n"]).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The types that a file imports from `fred`, under the names that it uses for them, and `fred` itself.
fn names_of_the_client(code: &str) -> BTreeSet<&str> {
    let imports = code.split("use fred::").skip(1).map(|rest| rest.split(';').next().unwrap());
    let names = imports.flat_map(words).filter(|word| word.starts_with(char::is_uppercase));
    names.chain(iter::once("fred")).collect()
}

/// All items of the public API: signatures, fields, variants and trait implementations.
fn shown(code: &str) -> Vec<String> {
    let mut shown = Vec::new();
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        let start = line.trim_start();
        let is_block = start.starts_with("pub enum ") || start.starts_with("pub trait ");
        let is_signature = start.starts_with("impl") || start.starts_with("pub ");
        if !is_block && !is_signature {
            continue;
        }
        let indent = line.len() - start.len();
        let mut item = line.to_owned();
        let is_over = |line: &str| match is_block {
            true => line.ends_with('}') && line.len() - line.trim_start().len() == indent,
            false => line.ends_with(['{', ';', ',', '}']) && line.len() - line.trim_start().len() == indent,
        };
        let mut last = line;
        while !is_over(last)
            && let Some(next) = lines.next()
        {
            item.extend(["\n", next]);
            last = next;
        }
        if !is_of_a_private_type(&item, code) {
            shown.push(without_private_fields(&item));
        }
    }
    shown
}

/// Whether the item belongs to a private type, which is not part of the API.
fn is_of_a_private_type(item: &str, code: &str) -> bool {
    let of = item.split_once(" for ").filter(|_| item.starts_with("impl")).map(|(_, of)| of);
    let name = of.and_then(|of| words(of).next());
    name.is_some_and(|name| {
        code.lines().any(|line| line.strip_prefix("struct ").is_some_and(|of| words(of).next() == Some(name)))
    })
}

/// Removes the private fields of a tuple struct. The fields of other structs have lines of their own.
fn without_private_fields(item: &str) -> String {
    match item.split_once('(') {
        Some((head, fields)) if head.trim_start().starts_with("pub struct ") => {
            let shown = fields.split(',').filter(|field| field.trim_start().starts_with("pub "));
            iter::once(head).chain(shown).collect()
        }
        _ => item.to_owned(),
    }
}

#[test]
fn the_public_api_names_no_type_of_the_client() {
    let mut looked_at = 0;
    for (name, source) in sources().iter().filter(|(name, _)| name != CONVERSIONS) {
        let code = code(source);
        let foreign = names_of_the_client(&code);
        for item in shown(&code).iter().filter(|item| !item.trim_start().starts_with("pub use")) {
            looked_at += 1;
            let item = item.replace("std::error::Error", "");
            let named: Vec<&str> = words(&item).filter(|word| foreign.contains(word)).collect();
            assert!(named.is_empty(), "{name}: {named:?} of fred in\n{item}");
        }
    }
    assert!(looked_at > 200, "{looked_at} items");
}

#[test]
fn a_type_of_the_client_is_noticed_wherever_it_is_shown() {
    let imports =
        "use fred::{\n    clients::Pool,\n    error::Error,\n    types::{Key, Resp3Frame as Frame},\n};\n";
    for item in [
        "pub fn new(pool: Pool) -> Self {",
        "pub async fn take(\n    &self,\n    keys: Vec<Key>,\n) -> u64 {",
        "pub struct Holder {\n    pub key: Option<Key>,\n}",
        "pub struct Raw(pub Frame);",
        "pub enum Wrong {\n    /// It.\n    Redis(Error),\n}",
        "impl From<Error> for Wrong {",
        "pub type Answer = Result<(), fred::error::Error>;",
    ] {
        let source = format!("{imports}{item}\n");
        let code = code(&source);
        let foreign = names_of_the_client(&code);
        let found = shown(&code).iter().any(|item| words(item).any(|word| foreign.contains(word)));
        assert!(found, "{item}");
    }
    for hidden in [
        "struct Own(Known);\nimpl From<Pool> for Own {",
        "pub struct Opaque(Pool);",
        "pub struct Known(pub(crate) Pool, pub u64);",
        "fn pool() -> Pool {",
    ] {
        let found = shown(hidden).iter().any(|item| words(item).any(|word| word == "Pool"));
        assert!(!found, "{hidden}");
    }
}

#[test]
fn it_knows_nothing_of_those_who_use_it() {
    for (name, source) in sources() {
        for (at, line) in source.lines().enumerate() {
            let lower = line.to_lowercase();
            let word = FOREIGN.iter().find(|word| lower.contains(**word));
            assert_eq!(word, None, "{name}:{}: {line}", at + 1);
            // A setting has a letter after the dot; the end of a sentence does not.
            let mut settings = lower.split("worker.").skip(1);
            let is_setting = settings.any(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
            assert!(!is_setting, "{name}:{}: a setting in {line}", at + 1);
        }
    }
}

#[test]
fn the_scripts_that_it_compiles_in_are_those_that_it_packages() {
    let all: String = sources().into_iter().map(|(_, source)| source).collect();
    let compiled: BTreeSet<String> = all
        .split("include_str!(\"../lua/")
        .skip(1)
        .map(|rest| format!("lua/{}", rest.split('"').next().unwrap()))
        .collect();
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let packaged: BTreeSet<String> =
        manifest.split('"').filter(|text| text.starts_with("lua/")).map(str::to_owned).collect();
    assert_eq!(compiled, packaged);
}
