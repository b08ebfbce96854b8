//! Tests of imports: they have one direction. Cargo prevents circles between crates, and this test compares the arrows
//! with those of ARCHITECTURE.md. Within a crate, sibling modules must not import each other in a circle, each with all
//! modules below it. A reader of one of them would have to know the others as well.
//!
//! Parent and child are no circle: a module may use the modules below it, and these may use the items of their parents.
//! Names at the top of a crate (`crate::Name`) are no circle either, because they do not name a file. Modules of tests
//! are left out, in files of their own or not, because the program does not contain them.
//!
//! This needs no tool: imports are text, and a path that begins with `crate::` or `super::` names its target.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};

use crate::tree::Tree;

/// The crates of this repository that may be in `[dependencies]` of each crate.
const ARROWS: [(&str, &[&str]); 10] = [
    ("tidegate-stream", &[]),
    ("tidegate-orders", &["tidegate-stream"]),
    ("tidegate-compare", &["tidegate-orders", "tidegate-stream"]),
    ("tidegate-operations", &["tidegate-compare", "tidegate-orders", "tidegate-stream"]),
    (
        "tidegate-reconcile",
        &["tidegate-compare", "tidegate-operations", "tidegate-orders", "tidegate-stream"],
    ),
    (
        "tidegate-worker",
        &[
            "tidegate-compare",
            "tidegate-operations",
            "tidegate-orders",
            "tidegate-reconcile",
            "tidegate-stream",
        ],
    ),
    (
        "tidegate-http",
        &["tidegate-compare", "tidegate-operations", "tidegate-orders", "tidegate-stream", "tidegate-worker"],
    ),
    (
        "tidegate",
        &[
            "tidegate-compare",
            "tidegate-http",
            "tidegate-operations",
            "tidegate-orders",
            "tidegate-reconcile",
            "tidegate-stream",
            "tidegate-worker",
        ],
    ),
    ("tidegate-lab", &[]),
    ("tidegate-bench", &["tidegate-lab", "tidegate-orders", "tidegate-stream"]),
];

type Path = Vec<String>;
/// Sibling modules by their parent; each with the siblings that it imports.
type Siblings = BTreeMap<Path, BTreeMap<String, BTreeSet<String>>>;

#[test]
fn crates_depend_on_each_other_one_way() {
    let tree = Tree::read_all();
    for manifest in tree.paths_of("/Cargo.toml") {
        let Some(name) = manifest.strip_prefix("crates/").and_then(|path| path.strip_suffix("/Cargo.toml"))
        else {
            continue;
        };
        let (_, allowed) = ARROWS
            .iter()
            .find(|(of, _)| *of == name)
            .unwrap_or_else(|| panic!("which crates may {name} depend on? Say so in ARROWS"));
        let parsed: Table = tree.read(manifest).parse().expect("TOML");
        for dependency in
            parsed.get("dependencies").and_then(Value::as_table).into_iter().flat_map(Table::keys)
        {
            assert!(
                !dependency.starts_with("tidegate") || allowed.contains(&dependency.as_str()),
                "{name} must not depend on {dependency}"
            );
        }
    }
}

#[test]
fn modules_import_each_other_in_no_circle() {
    let tree = Tree::read_all();
    let mut found = Vec::new();
    for (name, _) in ARROWS {
        let source = format!("crates/{name}/src/");
        let files = tree.paths_of(".rs").filter_map(|path| {
            let module = module(path.strip_prefix(&source)?);
            (!is_of_tests(&module)).then(|| (module, tree.read(path)))
        });
        for (parent, members) in circles(&files.collect()) {
            found.push(format!("{name}: {parent}::{{{}}} import each other", members.join(", ")));
        }
    }
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn a_circle_would_be_seen() {
    let crate_of = |files: &[(&str, &str)]| {
        let files = files.iter().map(|(path, text)| (module(path), (*text).to_owned())).collect();
        circles(&files)
    };
    let main = ("main.rs", "mod a; mod b; mod c;");
    let (a, b) = (("a.rs", "use std::fmt;\nuse crate::{b::{One, two}, Top};"), ("b.rs", "use crate::c::X;"));
    assert!(crate_of(&[main, a, b, ("c.rs", "")]).is_empty(), "a line");
    let circle = vec![(String::new(), vec!["a".to_owned(), "b".to_owned(), "c".to_owned()])];
    assert_eq!(crate_of(&[main, a, b, ("c.rs", "fn f() { crate::a::g() }")]), circle, "by a path");
    assert_eq!(
        crate_of(&[main, a, b, ("c.rs", ""), ("c/d.rs", "use super::super::a;")]),
        circle,
        "by a child"
    );
    assert!(crate_of(&[main, a, b, ("c.rs", "//! As crate::a does.\n// crate::a")]).is_empty(), "a comment");
    let tests = "#[cfg(test)]\nmod tests {\n    use crate::a;\n    fn f() {\n    }\n}\n";
    assert!(crate_of(&[main, a, b, ("c.rs", tests)]).is_empty(), "tests");
    let more = format!("{tests}use crate::a;\n");
    assert_eq!(crate_of(&[main, a, b, ("c.rs", &more)]), circle, "after tests");
    let only_function = "#[cfg(test)]\nfn f() {\n    crate::a::g();\n}\n";
    assert_eq!(crate_of(&[main, a, b, ("c.rs", only_function)]), circle, "no module of tests");
    let child = ("a/mod.rs", "mod x; use x::Y;");
    assert!(
        crate_of(&[main, child, ("a/x.rs", "use super::Z; use crate::a::W;")]).is_empty(),
        "parent and child"
    );
    let inner =
        crate_of(&[main, child, ("a/x.rs", "use super::y::{self};"), ("a/y.rs", "use crate::a::x::Y;")]);
    assert_eq!(inner, vec![("a".to_owned(), vec!["x".to_owned(), "y".to_owned()])], "below a parent");
}

/// The module path of a file: `a/b.rs` and `a/b/mod.rs` are `a::b`. The top of the crate is the empty path.
fn module(path: &str) -> Path {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let path = path.strip_suffix("/mod").unwrap_or(path);
    path.split('/').filter(|name| !matches!(*name, "lib" | "main")).map(str::to_owned).collect()
}

fn is_of_tests(module: &Path) -> bool {
    module.iter().any(|name| name == "tests")
}

/// All circles: the parent of the modules, and their sorted names.
fn circles(files: &BTreeMap<Path, String>) -> Vec<(String, Vec<String>)> {
    let mut circles = BTreeSet::new();
    for (parent, imports) in siblings(files) {
        for from in imports.keys() {
            let there = reached(&imports, from);
            let back = there.iter().filter(|to| reached(&imports, to).contains(from));
            let members: Vec<String> = back.cloned().collect();
            if members.len() > 1 {
                circles.insert((parent.join("::"), members));
            }
        }
    }
    circles.into_iter().collect()
}

fn siblings(files: &BTreeMap<Path, String>) -> Siblings {
    let mut siblings = Siblings::new();
    for (from, text) in files {
        for path in imports(from, text) {
            let common = from.iter().zip(&path).take_while(|(one, other)| one == other).count();
            let is_module =
                path.get(..=common).is_some_and(|to| files.keys().any(|file| file.starts_with(to)));
            // Otherwise, one module contains the other, or the name is that of an item.
            if is_module && from.len() > common {
                let below = siblings.entry(path[..common].to_vec()).or_default();
                below.entry(from[common].clone()).or_default().insert(path[common].clone());
            }
        }
    }
    siblings
}

fn reached(imports: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut ahead = vec![from];
    while let Some(at) = ahead.pop() {
        for to in imports.get(at).into_iter().flatten() {
            if reached.insert(to.clone()) {
                ahead.push(to);
            }
        }
    }
    reached
}

/// All paths of this file that begin with `crate::` or `super::`, from the top of the crate.
fn imports(of: &Path, text: &str) -> Vec<Path> {
    let text = without_tests(text);
    let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let parent = of.split_last().map(|(_, parent)| parent.to_vec()).unwrap_or_default();
    let mut found = Vec::new();
    for (word, base) in [("crate::", Path::new()), ("super::", parent)] {
        for (at, _) in code.match_indices(word) {
            let is_inside = |c: char| c.is_alphanumeric() || c == '_' || c == ':' || c == '$';
            if !code[..at].ends_with(is_inside) {
                follow(&code[at + word.len()..], base.clone(), &mut found);
            }
        }
    }
    found
}

/// Removes the modules of tests from a file. As rustfmt formats them, such a module ends with the first brace that is
/// indented as its head.
fn without_tests(text: &str) -> String {
    let (mut kept, mut lines) = (Vec::new(), text.lines());
    while let Some(line) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        let is_module = line.trim_start() == "#[cfg(test)]"
            && lines
                .clone()
                .next()
                .is_some_and(|head| head.trim_start().starts_with("mod ") && head.ends_with('{'));
        if is_module {
            let end = format!("{}}}", &line[..indent]);
            lines.find(|line| *line == end);
        } else {
            kept.push(line);
        }
    }
    kept.join("\n")
}

/// Parses `a::b`, `a::{b, c::d}` and so on, and returns the rest of the text.
fn follow<'a>(mut text: &'a str, mut path: Path, found: &mut Vec<Path>) -> &'a str {
    loop {
        text = text.trim_start();
        if let Some(group) = text.strip_prefix('{') {
            text = group;
            while !text.is_empty() && !text.starts_with(['}', ';']) {
                text = follow(text, path.clone(), found).trim_start();
                text = text.strip_prefix(',').unwrap_or(text).trim_start();
            }
            return text.strip_prefix('}').unwrap_or(text);
        }
        let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
        match &text[..end] {
            "super" => drop(path.pop()),
            "self" | "" => {}
            name => path.push(name.to_owned()),
        }
        text = &text[end..];
        match text.strip_prefix("::") {
            Some(rest) => text = rest,
            None => {
                found.push(path);
                // `*`, or `as another name`.
                return &text[text.find([',', '}', ';', '\n']).unwrap_or(text.len())..];
            }
        }
    }
}
