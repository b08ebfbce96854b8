//! The checks of names in documents. Each check returns its complaints.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
    sync::Mutex,
};

use crate::{
    markdown::Document,
    tree::{Tree, has_word},
};

/// Compares `tidegate ...` with the help of the program.
pub fn commands(_: &Tree, document: &Document) -> Vec<String> {
    let typed = document.commands();
    let typed = typed.iter().filter(|words| words[0] == "tidegate");
    typed
        .filter_map(|words| Some(format!("{}: `{}`: {}", document.name, words.join(" "), wrong(words)?)))
        .collect()
}

fn wrong(words: &[String]) -> Option<String> {
    let mut path: Vec<&str> = Vec::new();
    let mut text = help(&path);
    let mut words = words[1..].iter();
    while let Some(word) = words.next() {
        if let Some(flag) = word.strip_prefix("--") {
            let (name, value) =
                flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
            let line = text.lines().find(|line| has_word(line, &format!("--{name}")));
            let Some(line) = line else { return Some(format!("no flag --{name}")) };
            if value.is_none() && line.contains(&format!("--{name} <")) {
                words.next();
            }
        } else if text.contains("\nCommands:") {
            if !subcommands(&text).contains(word) {
                return Some(format!("no command {word}"));
            }
            path.push(word);
            text = help(&path);
        }
    }
    None
}

/// The vouchers of all commands of a page, in the order of their numbers.
pub fn vouchers(document: &Document) -> Vec<String> {
    const BEFORE: [&str; 4] = ["--voucher ", "seckill:stock:", "voucherId ", "\"voucherId\": \""];
    let texts = document.shell.iter().chain(&document.spans);
    let mut found: Vec<String> = texts
        .flat_map(|text| BEFORE.into_iter().flat_map(|before| text.split(before).skip(1)))
        .map(|rest| rest.chars().take_while(char::is_ascii_digit).collect())
        .filter(|number: &String| !number.is_empty())
        .collect();
    found.sort();
    found
}

/// The help of a command. Documents name the same commands often, so each help text is read once.
fn help(path: &[&str]) -> String {
    static ASKED: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    let mut asked = ASKED.lock().expect("no thread has panicked");
    let text = asked.entry(path.join(" ")).or_insert_with(|| {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(path).arg("--help").output();
        String::from_utf8(output.expect("the program runs").stdout).expect("text")
    });
    text.clone()
}

fn subcommands(help: &str) -> Vec<String> {
    let section = help.split("\nCommands:\n").nth(1).unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.is_empty());
    // Names of groups are indented less, and lines that continue a description are indented more.
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next().map(str::to_owned));
    names.filter(|name| !name.is_empty()).collect()
}

/// Compares `just ...` with the justfile.
pub fn recipes(tree: &Tree, document: &Document) -> Vec<String> {
    let justfile = tree.read("justfile");
    let begins = justfile.lines().filter(|line| !line.starts_with([' ', '#', '[']) && !line.contains(":="));
    let recipes: BTreeSet<&str> =
        begins.filter_map(|line| line.split_once(':')?.0.split_whitespace().next()).collect();
    let typed = document.commands();
    let named = typed.iter().filter(|words| words[0] == "just").filter_map(|words| words.get(1));
    let unknown = named.filter(|recipe| !recipe.starts_with('-') && !recipes.contains(recipe.as_str()));
    unknown.map(|recipe| format!("{}: no recipe {recipe} in the justfile", document.name)).collect()
}

/// Compares `section.key` and `TIDEGATE_*` with config/default.toml, and names of the lab with the lab.
pub fn settings(tree: &Tree, document: &Document) -> Vec<String> {
    let defaults: toml::Table = tree.read("config/default.toml").parse().expect("default.toml is TOML");
    let (mut keys, mut values) = (BTreeSet::new(), BTreeSet::new());
    for (section, table) in &defaults {
        // A list of tables has no section.
        if !table.is_table() {
            keys.insert(section.clone());
        }
        for (key, value) in table.as_table().unwrap_or(&toml::Table::new()) {
            keys.insert(format!("{section}.{key}"));
            values.insert(value.as_str().unwrap_or_default().to_owned());
        }
    }
    // The value of a secret may be in a file.
    let secrets = ["redis.url", "mysql.url", "mysql.shards", "tokens", "webhooks"];
    keys.extend(secrets.map(|key| format!("{key}_file")));
    let is_name = |word: &&str| {
        let section = word.split('.').next().unwrap_or_default();
        let is_plain = |c: char| c.is_ascii_lowercase() || c == '_' || c == '.';
        let is_script = word.ends_with(".lua");
        word.contains('.') && !is_script && defaults.contains_key(section) && word.chars().all(is_plain)
    };
    let all = document.commands().concat();
    let words = all.iter().filter_map(|word| word.split('=').next());
    let unknown = words.filter(is_name).filter(|word| !keys.contains(*word) && !values.contains(*word));
    let mut complaints: Vec<String> =
        unknown.map(|word| format!("{}: no setting {word}", document.name)).collect();

    let of_setting = |key: &String| format!("TIDEGATE_{}", key.to_uppercase().replace('.', "_"));
    let mut variables: BTreeSet<String> = keys.iter().map(of_setting).collect();
    variables.insert("TIDEGATE_CONFIG".to_owned());
    let lab = tree.sources("crates/tidegate-lab/", &[".rs", ".sh"]);
    for (at, _) in document.text.match_indices("TIDEGATE_") {
        let is_part = |c: char| c.is_ascii_uppercase() || c == '_';
        let rest = &document.text[at..];
        let name = &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())];
        if !variables.contains(name) && !has_word(&lab, name) {
            complaints.push(format!("{}: no variable {name}", document.name));
        }
    }
    complaints
}

/// Compares file names with the tree.
pub fn paths(tree: &Tree, document: &Document) -> Vec<String> {
    // The team that runs Tidegate creates deploy/.env, which is never committed.
    let is_placeholder =
        |word: &str| word.contains("NAME") || word.contains("NNNN") || word.ends_with("/.env");
    let is_path = |word: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
        let top = ["crates/", "tests/", "lua/", "migrations/", "config/", "deploy/", "docs/", ".ci/"];
        let ending = [".rs", ".lua", ".toml", ".sql", ".sh", ".md"];
        word.chars().all(is_plain)
            && !word.starts_with(['.', '/'])
            && (top.iter().any(|top| word.starts_with(top))
                || ending.iter().any(|ending| word.ends_with(ending)))
    };
    let words = document.commands().concat();
    let named = words.iter().filter(|word| is_path(word) && !is_placeholder(word));
    let missing = named.filter(|path| !tree.has_path(path));
    missing.map(|path| format!("{}: no file {path}", document.name)).collect()
}

/// Compares links with the tree, and the part after `#` with the headings of the linked document.
pub fn links(tree: &Tree, document: &Document) -> Vec<String> {
    let mut complaints = Vec::new();
    for link in document.links.iter().filter(|link| !link.starts_with("http")) {
        let target = document.target_of(link);
        let heading = link.split_once('#').map(|(_, heading)| format!("#{heading}"));
        if target != document.name && !tree.has(&target) {
            complaints.push(format!("{}: no file {link}", document.name));
        } else if let Some(heading) = heading {
            let headings = if target == document.name {
                document.anchors.clone()
            } else {
                Document::parse(&target, &tree.read(&target)).anchors
            };
            if !headings.contains(&heading) {
                complaints.push(format!("{}: no heading {link}", document.name));
            }
        }
    }
    complaints
}

/// The documents that no chain of links from README reaches.
pub fn unreachable(documents: &[Document]) -> Vec<&str> {
    let by_name: BTreeMap<&str, &Document> =
        documents.iter().map(|document| (document.name.as_str(), document)).collect();
    let mut reached = BTreeSet::new();
    let mut next = vec!["README.md".to_owned()];
    while let Some(name) = next.pop() {
        if let Some(document) = by_name.get(name.as_str()).filter(|_| reached.insert(name.clone())) {
            next.extend(document.links.iter().map(|link| document.target_of(link)));
        }
    }
    by_name.into_keys().filter(|name| !reached.contains(*name)).collect()
}

/// Compares `Type::function`, `snake_case`, `TypesOfWords` and names of tests (five words and more) with the sources.
pub fn names(tree: &Tree, document: &Document) -> Vec<String> {
    let sources = tree.sources("", &[".rs", ".lua", ".sql", ".toml", ".yml"]);
    let exists = |name: &str| {
        if let Some((owner, member)) = name.split_once("::") {
            let is_there = [format!("fn {member}"), format!("{owner}::{member}")];
            return has_word(&sources, owner) && is_there.iter().any(|it| has_word(&sources, it));
        }
        if name.matches('_').count() >= 4 {
            return sources.contains(&format!("fn {name}()")) || sources.contains(&format!("\"{name}\""));
        }
        has_word(&sources, name)
    };
    let is_name = |span: &&String| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        span.chars().all(is_part)
            && (span.contains("::")
                || (span.contains('_') && !span.starts_with("TIDEGATE_"))
                || is_type(span))
    };
    let unknown = document.spans.iter().filter(is_name).filter(|name| !exists(name));
    unknown.map(|name| format!("{}: nothing is named {name}", document.name)).collect()
}

/// Whether a text is the name of a type with two words or more. A single word may be any word.
fn is_type(span: &str) -> bool {
    span.starts_with(|c: char| c.is_ascii_uppercase())
        && span[1..].starts_with(|c: char| c.is_ascii_lowercase())
        && span[1..].contains(|c: char| c.is_ascii_uppercase())
}

/// Compares the drawing of the crates with their dependencies: `a & b --> c`, or `-.->` for tests only.
pub fn crates(tree: &Tree, document: &Document) -> Vec<String> {
    let drawing = document.diagrams.iter().find(|diagram| diagram.contains("--> tidegate-"));
    let mut drawn = BTreeSet::new();
    for line in drawing.map(String::as_str).unwrap_or_default().lines() {
        for (arrow, section) in [(" --> ", "dependencies"), (" -.-> ", "dev-dependencies")] {
            let Some((from, to)) = line.split_once(arrow) else { continue };
            for from in from.split('&') {
                drawn.extend(to.split('&').map(|to| (from.trim().to_owned(), section, to.trim().to_owned())));
            }
        }
    }
    let mut real = BTreeSet::new();
    for path in tree.paths_of("Cargo.toml").filter(|path| path.starts_with("crates/")) {
        let manifest: toml::Table = tree.read(path).parse().expect("Cargo.toml is TOML");
        let name = manifest["package"]["name"].as_str().expect("a name").to_owned();
        for section in ["dependencies", "dev-dependencies"] {
            let needed = manifest.get(section).and_then(toml::Value::as_table).into_iter().flatten();
            // A crate may need itself with other features, for its tests.
            let is_ours = |needed: &&String| needed.starts_with("tidegate") && **needed != name;
            let ours = needed.map(|(needed, _)| needed).filter(is_ours);
            real.extend(ours.map(|ours| (name.clone(), section, ours.clone())));
        }
    }
    drawn.symmetric_difference(&real).map(|arrow| format!("drawn or real, not both: {arrow:?}")).collect()
}

/// Compares the numbered sections of the page of promises with their list in the architecture. Each section names a
/// test.
pub fn promises(architecture: &str, page: &str) -> Vec<String> {
    let list = architecture.split("## What must hold").nth(1).unwrap_or_default();
    let list = list.split("\n## ").next().unwrap_or_default();
    let listed: Vec<&str> =
        list.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())).collect();
    let sections = page.split("\n## ").filter(|section| section.starts_with(|c: char| c.is_ascii_digit()));
    let sections: Vec<&str> = sections.collect();
    let mut complaints = Vec::new();
    if listed.is_empty() || listed.len() != sections.len() {
        complaints.push(format!("{} promises are listed, {} have a section", listed.len(), sections.len()));
    }
    for section in sections {
        let heading = section.lines().next().unwrap_or_default();
        let (number, title) = heading.split_once(". ").unwrap_or_default();
        if !listed.iter().any(|line| line.starts_with(&format!("{number}. **{title}.**"))) {
            complaints.push(format!("not listed: {heading}"));
        }
        let names_a_test = |line: &str| line.starts_with("- `") && line.matches('_').count() >= 4;
        if !section.lines().any(names_a_test) {
            complaints.push(format!("no test is named: {heading}"));
        }
    }
    complaints
}

/// Compares a page's rows `| 0 | admitted |` with the script's `-- Reply 0: admitted`, and its errors with those of the
/// script.
pub fn replies(page: &str, script: &str) -> Vec<String> {
    // A line of the header may have two replies.
    let header = script.lines().filter_map(|line| line.strip_prefix("-- "));
    let header = header.map(|line| line.replace("; Reply ", "\nReply ")).collect::<Vec<_>>().join("\n");
    let contract = header.lines().filter_map(|line| {
        let (kind, rest) = line.split_once(' ')?;
        let (name, meaning) = rest.split_once(": ")?;
        match kind {
            "Reply" => Some(format!("| {name} | {meaning} |")),
            // The advice about an error may follow its meaning.
            "Error" => Some(format!("| `{name}` | {meaning}")),
            _ => None,
        }
    });
    let missing = contract.filter(|row| !page.lines().any(|line| line.starts_with(row)));
    missing.map(|row| format!("the page of producers has no row {row}")).collect()
}

/// Compares the exit codes of a page's table with those of the help.
pub fn exit_codes(page: &str) -> Vec<String> {
    let code = |text: &str| text.trim().parse::<u8>().ok();
    let told: BTreeSet<u8> =
        page.lines().filter_map(|line| code(line.strip_prefix('|')?.split('|').next()?)).collect();
    let help = help(&[]);
    let listed = help.split("Exit codes:").nth(1).unwrap_or_default();
    let real: BTreeSet<u8> =
        listed.lines().filter_map(|line| code(line.split_whitespace().next()?)).collect();
    if told == real && !real.is_empty() {
        Vec::new()
    } else {
        vec![format!("the page of exit codes: {told:?}, help: {real:?}")]
    }
}

/// The commands of the program that no row `| `tidegate ...` |` of a page names.
pub fn unlisted_commands(page: &str) -> Vec<String> {
    let rows = page.lines().filter(|line| line.starts_with("| `tidegate "));
    let listed: Vec<&str> = rows.filter_map(|row| row.split('|').nth(1)).collect();
    let mut commands = Vec::new();
    collect_commands(&[], &mut commands);
    commands.retain(|command| !listed.iter().any(|cell| cell.contains(&format!("`tidegate {command}`"))));
    commands
}

/// Collects all commands below `path` that have no subcommands.
fn collect_commands(path: &[&str], commands: &mut Vec<String>) {
    let below = subcommands(&help(path));
    if below.is_empty() {
        commands.push(path.join(" "));
    }
    for name in below.iter().filter(|name| *name != "help") {
        collect_commands(&[path, &[name.as_str()]].concat(), commands);
    }
}

/// Compares the defaults in a page's table of settings with config/default.toml. For an empty default, the page has a
/// word.
pub fn defaults(tree: &Tree, page: &str) -> Vec<String> {
    let defaults: toml::Table = tree.read("config/default.toml").parse().expect("default.toml is TOML");
    let rows = page.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split('|').map(|cell| cell.trim().trim_matches('`'));
        Some((cells.next()?, cells.next()?))
    });
    let wrong = rows.filter_map(|(key, shown)| {
        let (section, name) = key.split_once('.')?;
        // Another check, `settings`, reports a setting that does not exist.
        let default = defaults.get(section)?.get(name)?;
        let default = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
        (!default.is_empty() && default != shown).then(|| format!("{key} is {default}, not {shown}"))
    });
    wrong.collect()
}

/// Checks that the program logs each line that the runbook explains, and that the runbook explains each warning.
pub fn log_lines(tree: &Tree, runbook: &str) -> Vec<String> {
    let program = [
        "crates/tidegate/",
        "crates/tidegate-compare/",
        "crates/tidegate-http/",
        "crates/tidegate-operations/",
        "crates/tidegate-orders/",
        "crates/tidegate-reconcile/",
        "crates/tidegate-stream/",
        "crates/tidegate-worker/",
    ];
    let sources = joined(&program.map(|folder| tree.sources(folder, &[".rs"])).concat());
    let section = runbook.split("# Log messages").nth(1).unwrap_or_default();
    let rows = section.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0));
    let unsaid = rows.filter(|text| !sources.contains(text));
    let mut complaints: Vec<String> = unsaid.map(|text| format!("nothing logs: {text}")).collect();
    for level in ["tracing::warn!(", "tracing::error!("] {
        for call in sources.split(level).skip(1) {
            let literals = call.split(';').next().unwrap_or(call).split('"').skip(1).step_by(2);
            let Some(text) = literals.filter(|text| text.contains(' ')).last() else { continue };
            let beginning = text.split([':', '(', ';']).next().unwrap_or(text);
            if !text.starts_with('{') && !section.contains(beginning) {
                complaints.push(format!("docs/runbook/log-messages.md does not explain: {text}"));
            }
        }
    }
    complaints
}

/// Checks that each page of the runbook that the program's sources name exists, with the named heading. Messages name
/// these pages, never RUNBOOK.md, which only links to them.
pub fn sections(tree: &Tree, sources: &str) -> Vec<String> {
    let sources = joined(sources);
    let code = sources.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = code.collect::<Vec<_>>().join("\n");
    let mut complaints = Vec::new();
    for (at, _) in code.match_indices("docs/runbook/") {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "/._-#".contains(c);
        let named = &code[at..];
        let named = named[..named.find(|c| !is_part(c)).unwrap_or(named.len())].trim_end_matches('.');
        let (path, anchor) = named.split_once('#').unwrap_or((named, ""));
        if !path.ends_with(".md") || !tree.has_path(path) {
            complaints.push(format!("the runbook has no page {path}"));
        } else if !anchor.is_empty() {
            let page = Document::parse(path, &tree.read(path));
            let is_there = page.anchors.iter().any(|heading| heading[1..] == *anchor);
            complaints.extend((!is_there).then(|| format!("{path} has no heading {anchor}")));
        }
    }
    for (at, _) in code.match_indices("RUNBOOK") {
        let message = code[at..].split('"').next().unwrap_or_default();
        complaints.push(format!("which page of the runbook? {message}"));
    }
    complaints
}

/// Joins string literals that continue in the next line.
fn joined(source: &str) -> String {
    let mut pieces = source.split("\\\n");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |text, piece| text + piece.trim_start())
}
