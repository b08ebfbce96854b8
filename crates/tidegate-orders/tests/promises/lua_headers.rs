//! Every script in `lua/` keeps the contract that its header states: no Redis needed to see it.

use std::{collections::BTreeSet, fs, path::Path};

struct LuaFile {
    name: String,
    lines: usize,
    longest: usize,
    header: String,
    /// Without comments.
    body: String,
}

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../lua"))
}

fn lua_files() -> Vec<LuaFile> {
    let files = fs::read_dir(folder()).expect("lua/ is there").map(|file| file.expect("a file").path());
    let scripts = files.filter(|path| path.extension().is_some_and(|extension| extension == "lua"));
    let read = |path: std::path::PathBuf| {
        let text = fs::read_to_string(&path).expect("a readable script");
        let is_header = |line: &&str| line.starts_with("--");
        let header: Vec<&str> = text.lines().take_while(is_header).collect();
        let body = text.lines().skip(header.len()).map(|line| line.split("-- ").next().unwrap_or(line));
        LuaFile {
            name: path.file_name().expect("a name").to_string_lossy().into_owned(),
            lines: text.lines().count(),
            longest: text.lines().map(|line| line.chars().count()).max().unwrap_or(0),
            header: header.join("\n"),
            body: body.collect::<Vec<_>>().join("\n"),
        }
    };
    let files: Vec<LuaFile> = scripts.map(read).collect();
    assert!(files.len() >= 3, "the scripts are not where they are looked for");
    files
}

/// The numbers that stand directly behind `before`, as in `KEYS[3]` or `Reply 6`.
fn numbers_behind(text: &str, before: &str) -> BTreeSet<u32> {
    let behind = text.match_indices(before).map(|(at, _)| &text[at + before.len()..]);
    behind.filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()).collect()
}

/// The words that stand directly behind `before`, as in `Error BADARG`.
fn words_behind(text: &str, before: &str) -> BTreeSet<String> {
    let behind = text.match_indices(before).map(|(at, _)| &text[at + before.len()..]);
    let word = |rest: &str| rest.split(|c: char| !c.is_ascii_uppercase()).next().unwrap_or("").to_owned();
    behind.map(word).filter(|word| !word.is_empty()).collect()
}

/// Whether a script goes through `KEYS` or `ARGV` without naming every place of it.
fn goes_through(body: &str, table: &str) -> bool {
    let by_variable = body
        .match_indices(&format!("{table}["))
        .any(|(at, found)| !body[at + found.len()..].starts_with(|c: char| c.is_ascii_digit()));
    by_variable || body.contains(&format!("({table}"))
}

#[test]
fn every_key_and_argument_that_a_header_names_is_used_and_none_is_used_unnamed() {
    for file in lua_files() {
        for table in ["KEYS", "ARGV"] {
            let named = numbers_behind(&file.header, &format!("{table}["));
            let used = numbers_behind(&file.body, &format!("{table}["));
            let unnamed: Vec<_> = used.difference(&named).collect();
            assert!(unnamed.is_empty(), "{}: {table}{unnamed:?} is used, but not in the header", file.name);
            let unused: Vec<_> = named.difference(&used).collect();
            let loops = goes_through(&file.body, table);
            assert!(unused.is_empty() || loops, "{}: {table}{unused:?} is in the header only", file.name);
            let expected: BTreeSet<u32> = (1..=named.len() as u32).collect();
            assert_eq!(named, expected, "{}: the header leaves out a {table}", file.name);
        }
    }
}

#[test]
fn every_reply_code_in_a_header_is_given_and_none_is_given_undocumented() {
    for file in lua_files() {
        let documented = numbers_behind(&file.header, "Reply ");
        let mut given = numbers_behind(&file.body, "return ");
        given.extend(numbers_behind(&file.body, "refuse("));
        assert_eq!(documented, given, "{}: replies of the header and of the body", file.name);
        assert!(file.header.contains("Reply"), "{}: the header says nothing of replies", file.name);
    }
}

#[test]
fn every_error_of_a_header_is_raised_and_none_is_raised_undocumented() {
    for file in lua_files() {
        let documented = words_behind(&file.header, "Error ");
        let raised = words_behind(&file.body, "error_reply('");
        assert_eq!(documented, raised, "{}: errors of the header and of the body", file.name);
    }
}

#[test]
fn every_script_fits_on_a_screen_begins_with_its_contract_and_stands_in_the_readme() {
    let readme = fs::read_to_string(folder().join("README.md")).expect("lua/README.md");
    for file in lua_files() {
        // What limits need does not fit: windows of months, and two hashes of counters.
        let most = if file.name.ends_with("_limited.lua") { 180 } else { 60 };
        assert!(file.lines <= most, "{} has {} lines; {most} are the limit", file.name, file.lines);
        assert!(file.longest <= 110, "{} has a line of {} characters", file.name, file.longest);
        assert!(file.header.starts_with("-- "), "{} does not begin with its contract", file.name);
        assert!(readme.contains(&format!("`{}`", file.name)), "{} is not in lua/README.md", file.name);
    }
}

#[test]
fn a_drifted_header_would_be_seen() {
    let body = "if x then return refuse(3) end\nreturn call('GET', KEYS[2], ARGV[i]) or 7\nreturn 12";
    assert_eq!(numbers_behind(body, "return "), BTreeSet::from([12]));
    assert_eq!(numbers_behind(body, "refuse("), BTreeSet::from([3]));
    assert_eq!(numbers_behind(body, "KEYS["), BTreeSet::from([2]));
    assert!(goes_through(body, "ARGV") && !goes_through(body, "KEYS"));
    assert_eq!(
        words_behind("redis.error_reply('IDTAKEN x')", "error_reply('"),
        BTreeSet::from(["IDTAKEN".into()])
    );
}
