//! The product in numbers: all crates except the lab and the benchmarks; also the scripts and the settings.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter, thread,
};

use super::source_file::{SourceFile, TypeDefinition};
use crate::{
    statements::follows_keyword,
    tree::{Tree, is_of_product},
};

/// CONTRIBUTING.md names both limits.
const FUNCTION_LINES: usize = 60;
const FILE_LINES: usize = 350;

const ORDERS: &str = "tb_voucher_order";
/// Folders that may have SQL on the order table, and are not counted.
const LEDGER_AND_SCHEMA: [&str; 2] =
    ["crates/tidegate-orders/src/ledger", "crates/tidegate-orders/src/schema"];

/// A number and its place. Lists of them begin with the highest number.
pub type Ranked = (usize, String);

/// The files of the product.
pub struct Product {
    sources: BTreeMap<String, SourceFile>,
    /// Scripts without their comments.
    scripts: Vec<String>,
    settings: usize,
}

impl Product {
    pub fn read(tree: &Tree) -> Self {
        let sources = tree.paths_of(".rs").filter(|path| is_of_product(path));
        let sources: Vec<(&str, String)> = sources.map(|path| (path, tree.read(path))).collect();
        let sources: Vec<(&str, &str)> = sources.iter().map(|(path, text)| (*path, text.as_str())).collect();
        let is_source =
            |path: &&str| ["lua/src/", "lua/include/"].iter().any(|folder| path.starts_with(folder));
        let scripts = tree.paths_of(".lua").filter(is_source);
        let scripts = scripts.map(|path| without_comments(&tree.read(path))).collect();
        let defaults: toml::Table = tree.read("config/default.toml").parse().expect("TOML");
        // A list of tables is one setting.
        let sections = defaults.values().map(|section| section.as_table().map_or(1, toml::Table::len));
        Self { scripts, settings: sections.sum(), ..Self::of(&sources) }
    }

    /// A product of these files with their texts, without scripts and settings.
    pub fn of(sources: &[(&str, &str)]) -> Self {
        let mut sources = parse_all(sources);
        let tests: Vec<String> = sources.iter().flat_map(|(path, file)| test_modules(path, file)).collect();
        sources.retain(|path, _| !tests.iter().any(|module| is_in_module(path, module)));
        Self { sources, scripts: Vec::new(), settings: 0 }
    }

    pub fn code_lines(&self) -> usize {
        self.sources.values().map(|file| file.code_lines).sum()
    }

    /// Lines of all files below a folder, with comments and blank lines.
    pub fn lines_below(&self, folder: &str) -> usize {
        self.sources.iter().filter(|(path, _)| path.starts_with(folder)).map(|(_, file)| file.lines).sum()
    }

    pub fn commands(&self) -> usize {
        self.sources.values().map(|file| file.commands).sum()
    }

    pub fn settings(&self) -> usize {
        self.settings
    }

    pub fn short_summaries(&self) -> Vec<Ranked> {
        let summaries = self.each(|file| &file.short_summaries);
        ranked(summaries.map(|(path, it)| (it.split_whitespace().count(), format!("{it} ({path})"))))
    }

    pub fn scripts_with(&self, text: &str) -> usize {
        self.scripts.iter().filter(|script| script.contains(text)).count()
    }

    pub fn functions(&self) -> Vec<Ranked> {
        let functions = self.each(|file| &file.functions);
        ranked(functions.map(|(path, (name, lines))| (*lines, format!("{name} ({path})"))))
    }

    pub fn long_functions(&self) -> usize {
        self.functions().iter().filter(|(lines, _)| *lines > FUNCTION_LINES).count()
    }

    pub fn long_files(&self) -> Vec<Ranked> {
        let files = self.sources.iter().map(|(path, file)| (file.lines, path.clone()));
        ranked(files.filter(|(lines, _)| *lines > FILE_LINES))
    }

    /// The names of all public types and of all modules.
    pub fn public_names(&self) -> BTreeSet<&str> {
        let types = self.types().filter(|(_, it)| it.is_public).map(|(_, it)| it.name.as_str());
        let modules = self.sources.keys().filter_map(|path| module(path).rsplit('/').next());
        types.chain(modules).collect()
    }

    /// Names that more than one public type has, with the files of these types.
    pub fn ambiguous_names(&self) -> Vec<Ranked> {
        let mut files: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (path, it) in self.types().filter(|(_, it)| it.is_public) {
            files.entry(&it.name).or_default().push(path);
        }
        files.retain(|_, paths| paths.len() > 1);
        let names = files.into_iter();
        ranked(names.map(|(name, paths)| (paths.len(), format!("{name} ({})", paths.join(", ")))))
    }

    pub fn fields(&self) -> Vec<Ranked> {
        ranked(self.types().map(|(path, it)| (it.fields, format!("{} ({path})", it.name))))
    }

    pub fn private_fields(&self) -> Vec<Ranked> {
        ranked(self.types().map(|(path, it)| (it.private_fields, format!("{} ({path})", it.name))))
    }

    /// The public methods of each type, in all files of its crate.
    pub fn public_methods(&self) -> Vec<Ranked> {
        let mut methods: BTreeMap<String, usize> = BTreeMap::new();
        for (path, (name, count)) in self.each(|file| &file.public_methods) {
            *methods.entry(format!("{name} ({})", self.definition(name, path))).or_default() += count;
        }
        ranked(methods.into_iter().map(|(name, count)| (count, name)))
    }

    /// Files outside the ledger and the schema that hold SQL on the order table.
    pub fn order_sql(&self) -> Vec<Ranked> {
        let is_sql = |text: &&String| {
            // A text that is only the name is put into a statement through a variable.
            *text == ORDERS || follows_keyword(text, ORDERS, &["FROM", "JOIN", "UPDATE", "INTO"])
        };
        let others = self
            .sources
            .iter()
            .filter(|(path, _)| !LEDGER_AND_SCHEMA.iter().any(|allowed| path.starts_with(allowed)));
        let files = others.map(|(path, file)| (file.strings.iter().filter(is_sql).count(), path.clone()));
        ranked(files.filter(|(statements, _)| *statements > 0))
    }

    pub fn folders_with_order_sql(&self) -> usize {
        let files = self.order_sql();
        files.iter().filter_map(|(_, path)| Some(path.rsplit_once('/')?.0)).collect::<BTreeSet<_>>().len()
    }

    /// Each item of a list that every file has, with the path of its file.
    fn each<'a, T: 'a>(&'a self, list: fn(&SourceFile) -> &Vec<T>) -> impl Iterator<Item = (&'a str, &'a T)> {
        self.sources.iter().flat_map(move |(path, file)| iter::repeat(path.as_str()).zip(list(file)))
    }

    fn types(&self) -> impl Iterator<Item = (&str, &TypeDefinition)> {
        self.each(|file| &file.types)
    }

    /// The file that defines the type of an `impl` block in `path`: the nearest one of the crate.
    fn definition<'a>(&'a self, name: &str, path: &'a str) -> &'a str {
        let shared = |other: &str| {
            module(other)
                .split('/')
                .zip(module(path).split('/'))
                .take_while(|(one, other)| one == other)
                .count()
        };
        let files = self.types().filter(|(_, it)| it.name == name).map(|(file, _)| file);
        // The first two names are those of the crate.
        files.filter(|file| shared(file) >= 2).max_by_key(|file| shared(file)).unwrap_or(path)
    }
}

/// Parses all files on two threads, because most of the time goes here.
fn parse_all(sources: &[(&str, &str)]) -> BTreeMap<String, SourceFile> {
    let parse = |sources: &[(&str, &str)]| -> BTreeMap<String, SourceFile> {
        sources.iter().map(|(path, text)| ((*path).to_owned(), SourceFile::parse(text))).collect()
    };
    let (some, others) = sources.split_at(sources.len() / 2);
    thread::scope(|scope| {
        let others = scope.spawn(|| parse(others));
        let mut files = parse(some);
        files.extend(others.join().expect("all files are Rust"));
        files
    })
}

fn ranked(places: impl Iterator<Item = Ranked>) -> Vec<Ranked> {
    let mut all: Vec<Ranked> = places.collect();
    all.sort_by(|(one, name), (other, other_name)| other.cmp(one).then_with(|| name.cmp(other_name)));
    all
}

fn module(path: &str) -> &str {
    path.strip_suffix(".rs").unwrap_or(path)
}

/// The modules under `cfg(test)` that a file declares, as paths without `.rs`.
fn test_modules(path: &str, file: &SourceFile) -> Vec<String> {
    let (folder, name) = module(path).rsplit_once('/').unwrap_or(("", path));
    let below = if matches!(name, "lib" | "main" | "mod") { folder } else { module(path) };
    file.test_modules.iter().map(|name| format!("{below}/{name}")).collect()
}

fn is_in_module(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

fn without_comments(script: &str) -> String {
    let lines = script.lines().map(|line| line.split("--").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}
