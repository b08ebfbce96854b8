//! Tests of the scripts in `lua/`: each must equal its source in `lua/src/` with the includes of `lua/include/`.

use std::{collections::BTreeSet, fs, path::Path};

/// The variable that makes the comparison write the expected text, if it is 1: `just lua`.
const WRITE: &str = "TIDEGATE_WRITE_LUA";
/// The line of a source that an include replaces: `--- @include "time"`.
const INCLUDE: &str = "--- @include \"";

/// The folder with the scripts, their sources and the includes.
pub fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../lua"))
}

/// The names of the Lua files of a folder, such as `admit.lua`.
pub fn names(folder: &Path) -> BTreeSet<String> {
    let files = fs::read_dir(folder).expect("a folder of scripts").map(|file| file.expect("a file"));
    let names = files.map(|file| file.file_name().into_string().expect("a name in UTF-8"));
    names.filter(|name| name.ends_with(".lua")).collect()
}

/// The header of a script and its body. A header is the comments above the first statement.
pub fn header_and_body(text: &str) -> (&str, &str) {
    let is_header = |line: &&str| line.starts_with("-- ");
    let length = text.split_inclusive('\n').take_while(is_header).map(str::len).sum();
    text.split_at(length)
}

/// The name of the include in a line.
fn included(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix(INCLUDE)?.strip_suffix('"')
}

/// Appends `body` with its includes. An include is indented as far as the line that names it.
fn expand(body: &str, indentation: &str, to: &mut String) {
    for line in body.lines() {
        if let Some(name) = included(line) {
            let path = folder().join("include").join(format!("{name}.lua"));
            let text =
                fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let own = &line[..line.len() - line.trim_start().len()];
            expand(header_and_body(&text).1, &format!("{indentation}{own}"), to);
        } else if line.is_empty() {
            to.push('\n');
        } else {
            to.extend([indentation, line, "\n"]);
        }
    }
}

/// The script of a source: its header, the name of the source, and its body with the includes.
fn written_from(name: &str) -> String {
    let source = fs::read_to_string(folder().join("src").join(name)).expect("a readable source");
    let (header, body) = header_and_body(&source);
    let mut script =
        format!("{header}-- Written by `just lua` from lua/src/{name}: change that file, not this one\n");
    expand(body, "", &mut script);
    script
}

#[test]
fn every_script_is_what_its_source_says_and_has_one() {
    let (sources, scripts) = (names(&folder().join("src")), names(folder()));
    for name in &sources {
        let (path, expected) = (folder().join(name), written_from(name));
        if std::env::var(WRITE).is_ok_and(|value| value == "1") {
            fs::write(&path, &expected).expect("a script that can be written");
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(found == expected, "lua/{name} is not what lua/src/{name} says: run `just lua`");
    }
    let without: Vec<_> = scripts.difference(&sources).collect();
    assert!(without.is_empty(), "scripts without a source in lua/src: {without:?}");
}

#[test]
fn every_include_is_asked_for_and_says_what_it_reads() {
    let mut asked = BTreeSet::new();
    let all = ["src", "include"].map(|part| folder().join(part));
    for (part, name) in all.iter().flat_map(|part| names(part).into_iter().map(move |name| (part, name))) {
        let text = fs::read_to_string(part.join(name)).expect("a readable file");
        asked.extend(text.lines().filter_map(included).map(|name| format!("{name}.lua")));
    }
    for name in names(&all[1]) {
        assert!(asked.contains(&name), "nothing includes lua/include/{name}");
        let text = fs::read_to_string(all[1].join(&name)).expect("a readable include");
        let (header, _) = header_and_body(&text);
        assert!(header.contains("Reads: "), "lua/include/{name} does not say which names it reads");
    }
}

#[test]
fn what_several_scripts_know_stands_in_one_include() {
    for (fact, place) in [
        ("string.sub('00000'", "time.lua"),
        ("9223372036854775807", "ids.lua"),
        ("{\"action\":\"release\",", "release_note.lua"),
        ("'IDTAKEN ", "taken.lua"),
        ("a:match('%d+$')", "is_less.lua"),
    ] {
        let knows = |part: &str, name: &String| {
            let text = fs::read_to_string(folder().join(part).join(name)).expect("a readable file");
            header_and_body(&text).1.contains(fact)
        };
        let sources: Vec<_> =
            names(&folder().join("src")).into_iter().filter(|name| knows("src", name)).collect();
        assert!(sources.is_empty(), "{fact} stands in {sources:?} and belongs in lua/include/{place}");
        let includes: Vec<_> =
            names(&folder().join("include")).into_iter().filter(|name| knows("include", name)).collect();
        assert_eq!(includes, [place], "{fact}");
    }
}

/// The statements of a line: its text without comments and quoted strings.
fn statements(line: &str) -> String {
    let bare = line.split("-- ").next().unwrap_or(line);
    bare.split('\'').step_by(2).collect::<Vec<_>>().join("''")
}

/// Whether a second statement begins on the line: after the first one, or after the end of a block.
fn has_two_statements(line: &str) -> bool {
    let text = statements(line);
    let words: Vec<&str> = text.split_whitespace().collect();
    let begins = |word: &str| matches!(word, "local" | "return" | "if" | "for" | "while" | "break");
    let opens = |word: &str| matches!(word, "then" | "do" | "else");
    let begins_again = (1..words.len()).any(|at| begins(words[at]) && !opens(words[at - 1]));
    let goes_on = words.iter().rposition(|word| *word == "end").is_some_and(|at| at + 1 < words.len());
    (begins_again || goes_on) && !text.contains("function")
}

/// Whether a line uses a key or an argument by its number. A line that begins with `local` names it, so that is
/// allowed.
fn uses_a_number(line: &str) -> bool {
    let text = statements(line);
    let is_number =
        |rest: &str| rest.split_once(']').is_some_and(|(place, _)| place.chars().all(|c| c.is_ascii_digit()));
    let numbered = |table: &str| text.split(table).skip(1).any(is_number);
    let names =
        text.trim_start().starts_with("local ") || text.contains("= KEYS[") || text.contains("= ARGV[");
    // A request with an idempotency key may get another order id.
    let sets = text.trim_start().starts_with("ARGV[1] = ");
    (numbered("KEYS[") || numbered("ARGV[")) && !names && !sets
}

#[test]
fn sources_give_keys_and_arguments_names() {
    for part in ["src", "include"].map(|part| folder().join(part)) {
        for name in names(&part) {
            let text = fs::read_to_string(part.join(&name)).expect("a readable file");
            for line in header_and_body(&text).1.lines() {
                assert!(!uses_a_number(line), "{name}: no name for a key or an argument in: {line}");
            }
        }
    }
    assert!(uses_a_number("call('GET', KEYS[1])") && !uses_a_number("local stock_key = KEYS[1]"));
}

#[test]
fn sources_have_one_statement_a_line() {
    for part in ["src", "include"].map(|part| folder().join(part)) {
        for name in names(&part) {
            let text = fs::read_to_string(part.join(&name)).expect("a readable file");
            for line in header_and_body(&text).1.lines() {
                assert!(!has_two_statements(line), "{name}: two statements in: {line}");
            }
        }
    }
    for two in ["local a = 1 local b = 2", "if a then b() end return c", "x = 1 return 2"] {
        assert!(has_two_statements(two), "{two}");
    }
    for one in
        ["if a then return 'x end return' end", "for at = 1, 2 do a[at] = 1 end", "end -- if a then b() end"]
    {
        assert!(!has_two_statements(one), "{one}");
    }
}
