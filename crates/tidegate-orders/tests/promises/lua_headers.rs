//! Tests of the headers of all scripts in `lua/`: the body keeps the contract of its header. They need no Redis.

use std::{collections::BTreeSet, fs};

use crate::lua_sources::{folder, header_and_body, names};

struct LuaFile {
    name: String,
    header: String,
    /// The text without comments.
    body: String,
}

fn lua_file(name: String, text: &str) -> LuaFile {
    let (header, body) = header_and_body(text);
    let body = body.lines().map(|line| line.split("-- ").next().unwrap_or(line));
    LuaFile { name, header: header.to_owned(), body: body.collect::<Vec<_>>().join("\n") }
}

/// The scripts that Redis loads, with all their includes.
fn lua_files() -> Vec<LuaFile> {
    let names = names(folder());
    assert!(names.len() >= 3, "the scripts are not where they are looked for");
    let read = |name: &String| fs::read_to_string(folder().join(name)).expect("a readable script");
    names.iter().map(|name| lua_file(name.clone(), &read(name))).collect()
}

/// The numbers directly after `before`, as in `KEYS[3]` or `Reply 6`.
fn numbers_behind(text: &str, before: &str) -> BTreeSet<u32> {
    let behind = text.match_indices(before).map(|(at, _)| &text[at + before.len()..]);
    behind.filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()).collect()
}

/// The words directly after `before`, as in `Error BADARG`.
fn words_behind(text: &str, before: &str) -> BTreeSet<String> {
    let behind = text.match_indices(before).map(|(at, _)| &text[at + before.len()..]);
    let word = |rest: &str| rest.split(|c: char| !c.is_ascii_uppercase()).next().unwrap_or("").to_owned();
    behind.map(word).filter(|word| !word.is_empty()).collect()
}

/// The numbers or words of lists such as `Answers 0 1 2, Errors BADARG IDTAKEN: as in admit.lua`.
fn listed_behind<'a>(header: &'a str, before: &str) -> impl Iterator<Item = &'a str> {
    let behind: Vec<&str> = header.split(before).skip(1).collect();
    behind.into_iter().flat_map(|rest| rest.split([':', ',']).next().unwrap_or("").split_whitespace())
}

/// The first place of a loop over a table, or of its values as arguments: `for at = 3, #ARGV`, `unpack(ARGV, 4)`. All
/// places from there on are used. If the body uses `KEYS` or `ARGV` as a whole, it is 1. None: the body uses every
/// place by its number.
fn used_from(body: &str, table: &str) -> Option<u32> {
    let mut from = BTreeSet::new();
    for line in body.lines().filter(|line| line.contains(table)) {
        let looped = line.split_once(&format!(", #{table}")).and_then(|(start, _)| start.split_once("= "));
        if let Some((_, first)) = looped {
            from.insert(first.trim().parse().unwrap_or(1));
        }
        for (_, rest) in line.split(&format!("unpack({table}")).skip(1).map(|rest| ((), rest)) {
            let places: Vec<&str> = rest.split(')').next().unwrap_or("").split(',').skip(1).collect();
            if places.len() < 2 {
                from.insert(places.first().map_or(1, |first| first.trim().parse().unwrap_or(1)));
            }
        }
        if line.starts_with("local argv") || line.contains(&format!("remove({table})")) {
            from.insert(1);
        }
    }
    from.first().copied()
}

/// The places of a table that a script passes as arguments: `unpack(ARGV, 1, 6)` are 1 to 6. Each of them has a name.
fn taken_apart(file: &LuaFile, table: &str) -> BTreeSet<u32> {
    let mut places = BTreeSet::new();
    for line in file.body.lines() {
        let Some((names, rest)) = line.split_once(&format!("unpack({table}, ")) else { continue };
        let range = rest.split(')').next().unwrap_or("").split_once(", ");
        let Some((Ok(first), Ok(last))) = range.map(|(from, to)| (from.parse::<u32>(), to.parse::<u32>()))
        else {
            continue;
        };
        if let Some(names) = names.trim().strip_prefix("local ").and_then(|names| names.strip_suffix(" = ")) {
            let count = names.split(", ").count();
            assert_eq!(count as u32, last + 1 - first, "{}: names for {table} in: {line}", file.name);
        }
        places.extend(first..=last);
    }
    places
}

#[test]
fn every_key_and_argument_that_a_header_names_is_used_and_none_is_used_unnamed() {
    for file in lua_files() {
        for table in ["KEYS", "ARGV"] {
            let named = numbers_behind(&file.header, &format!("{table}["));
            let mut used = numbers_behind(&file.body, &format!("{table}["));
            used.extend(taken_apart(&file, table));
            let unnamed: Vec<_> = used.difference(&named).collect();
            assert!(unnamed.is_empty(), "{}: {table}{unnamed:?} is used, but not in the header", file.name);
            let rest_from = used_from(&file.body, table).unwrap_or(u32::MAX);
            let is_unused = |place: &&u32| !used.contains(*place) && **place < rest_from;
            let unused: Vec<_> = named.iter().filter(is_unused).collect();
            assert!(unused.is_empty(), "{}: {table}{unused:?} is in the header only", file.name);
            let expected: BTreeSet<u32> = (1..=named.len() as u32).collect();
            assert_eq!(named, expected, "{}: the header leaves out a {table}", file.name);
        }
    }
}

/// The reply numbers of a body: `return 1`, or a variable that holds a reply.
fn numbers_given(body: &str) -> BTreeSet<u32> {
    let ways = ["return ", "refuse(", "answer = ", "answer = {}, ", "closed = ", "known = "];
    ways.iter().flat_map(|way| numbers_behind(body, way)).collect()
}

#[test]
fn every_reply_code_in_a_header_is_given_and_none_is_given_undocumented() {
    for file in lua_files() {
        let mut documented = numbers_behind(&file.header, "Reply ");
        documented
            .extend(listed_behind(&file.header, "Answers ").filter_map(|code| code.parse::<u32>().ok()));
        let given = numbers_given(&file.body);
        assert_eq!(documented, given, "{}: replies of the header and of the body", file.name);
        assert!(file.header.contains("Reply"), "{}: the header says nothing of replies", file.name);
    }
}

/// An array that is a reply: the number of its values, and its first value if that is a number in the script. None: a
/// list whose length is not in the script.
type Array = Option<(usize, Option<u32>)>;

fn array(values: &[String]) -> Array {
    if values.iter().any(|value| value.starts_with("unpack(")) {
        return None;
    }
    Some((values.len(), values.first().and_then(|first| first.parse().ok())))
}

/// The values of a table. The text begins after the `{`.
fn values(text: &str) -> Vec<String> {
    let (mut depth, mut values) = (0, vec![String::new()]);
    for found in text.chars() {
        match found {
            '}' if depth == 0 => break,
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                values.push(String::new());
                continue;
            }
            _ => {}
        }
        values.last_mut().expect("one at least").push(found);
    }
    values.iter().map(|value| value.trim().to_owned()).collect()
}

fn arrays_given(body: &str) -> BTreeSet<Array> {
    let tables = ["return { ", "return nil, { ", "refuse({ "].into_iter();
    tables.flat_map(|way| body.split(way).skip(1).map(|rest| array(&values(rest)))).collect()
}

/// The arrays of a header: `Reply array: a; b; c`.
fn arrays_documented(header: &str) -> BTreeSet<Array> {
    let text: String = header.lines().map(|line| format!("{}\n", line.trim_start_matches("-- "))).collect();
    let arrays = ["Reply array: ", "Answer array: "].into_iter().flat_map(|way| text.split(way).skip(1));
    let of = |rest: &str| {
        let ends = ["\nReply", "\nAnswer", "\nError", "\nKEYS", "\nARGV", "\nWritten"];
        let end = ends.iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
        let values: Vec<String> = rest[..end].split(';').map(|value| value.trim().to_owned()).collect();
        let code = values[0].split([',', ' ']).next().and_then(|first| first.parse().ok());
        Some((values.len(), code))
    };
    arrays.map(of).collect()
}

#[test]
fn every_array_of_a_header_is_a_reply_and_every_array_that_is_a_reply_is_in_the_header() {
    for file in lua_files() {
        let (documented, mut given) = (arrays_documented(&file.header), arrays_given(&file.body));
        let lists_a_table = ["answers", "refused", "entries", "replies"]
            .iter()
            .any(|name| file.body.lines().any(|line| line.trim() == format!("return {name}")));
        let has_list = given.remove(&None) || lists_a_table;
        assert_eq!(documented, given, "{}: arrays of the header and of the body", file.name);
        let says_list = file.header.contains("Reply list: ");
        assert_eq!(says_list, has_list, "{}: a list as a reply, in the header and in the body", file.name);
    }
}

/// The errors that a script raises itself: texts that begin with a word in capitals.
fn errors_raised(body: &str) -> BTreeSet<String> {
    let is_error = |word: &str| word.len() > 4 && word.chars().all(|c| c.is_ascii_uppercase());
    let texts = body.split('\'').skip(1).step_by(2);
    texts
        .filter_map(|text| text.split_once(' '))
        .map(|(word, _)| word.to_owned())
        .filter(|word| is_error(word))
        .collect()
}

#[test]
fn every_error_of_a_header_is_raised_and_none_is_raised_undocumented() {
    for file in lua_files() {
        let mut documented = words_behind(&file.header, "Error ");
        documented.extend(listed_behind(&file.header, "Errors ").map(str::to_owned));
        let raised = errors_raised(&file.body);
        assert_eq!(documented, raised, "{}: errors of the header and of the body", file.name);
    }
}

/// Sources and includes that do not fit on a screen, and the number of lines that each may have below its header.
const LONG: [(&str, usize); 3] =
    [("admit_many.lua", 95), ("release_limited.lua", 75), ("limited_checks.lua", 105)];

/// A script that Redis loads contains all its includes. Only the width of its lines has a limit.
#[test]
fn every_source_fits_on_a_screen_and_every_script_begins_with_its_contract_and_stands_in_the_readme() {
    let readme = fs::read_to_string(folder().join("README.md")).expect("lua/README.md");
    for part in ["", "src", "include"].map(|part| folder().join(part)) {
        for name in names(&part) {
            let text = fs::read_to_string(part.join(&name)).expect("a readable file");
            let longest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            assert!(longest <= 110, "{name} in {} has a line of {longest} characters", part.display());
            let (header, body) = header_and_body(&text);
            assert!(!header.is_empty(), "{name} in {} does not begin with its contract", part.display());
            let (lines, is_loaded) = (body.lines().count(), part.ends_with("lua"));
            let most = LONG.iter().find(|(long, _)| *long == name).map_or(60, |(_, most)| *most);
            assert!(
                is_loaded || lines <= most,
                "{name} has {lines} lines below its header; {most} are the limit"
            );
            assert!(!is_loaded || readme.contains(&format!("`{name}`")), "{name} is not in lua/README.md");
        }
    }
}

#[test]
fn a_drifted_header_would_be_seen() {
    let body = "local a, b = unpack(ARGV, 1, 2)\nfor at = 5, #ARGV do\nif x then return refuse(3) end\n\
                closed = 4\nreturn call('GET', KEYS[2], ARGV[i]) or 7\nreturn { 9, f(a, b) }\nreturn { a, unpack(b) }";
    assert_eq!(numbers_given(body), BTreeSet::from([3, 4]));
    assert_eq!(numbers_behind(body, "KEYS["), BTreeSet::from([2]));
    assert_eq!((used_from(body, "ARGV"), used_from(body, "KEYS")), (Some(5), None));
    let file = lua_file("a.lua".to_owned(), body);
    assert_eq!(taken_apart(&file, "ARGV"), BTreeSet::from([1, 2]));
    assert_eq!(arrays_given(body), BTreeSet::from([Some((2, Some(9))), None]));
    let header = "-- Reply array: 9; a name,\n-- and more\n-- Reply array: a; b; c\n-- Errors A B, Answers 1 2: as there\n";
    assert_eq!(arrays_documented(header), BTreeSet::from([Some((2, Some(9))), Some((3, None))]));
    assert_eq!(listed_behind(header, "Answers ").collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!(
        errors_raised("f('IDTAKEN x') 'GET' 'LIMITED ' .. y"),
        BTreeSet::from(["IDTAKEN".into(), "LIMITED".into()])
    );
}
