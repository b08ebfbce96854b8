//! Tests of names in the documents: each exists. The commands of README and of the page for producers work as they are
//! written.

mod checks;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::{Command, Output},
};

use crate::{fixture::Fixture, markdown::Document, tree::Tree};

/// The history. It keeps the names of commands, files and tests that are gone.
const HISTORY: &str = "CHANGELOG.md";
/// The page that `just bench` writes from figures and from method.md, which is checked. Its names are those of the
/// servers.
const GENERATED: &str = "docs/benchmarks/README.md";
/// The hand-written part of the generated page. Readers see it only there.
pub const PART_OF_GENERATED: &str = "crates/tidegate-bench/src/bench/method.md";

/// The page with the replies of `lua/admit.lua` and with `XADD`.
const PRODUCERS: &str = "docs/producers.md";

/// The most words of `docs/`, without the generated pages and the translations.
const MOST_WORDS: usize = 45_000;

/// The first page for maintainers.
const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// All documents of the repository.
fn documents(tree: &Tree) -> Vec<Document> {
    tree.paths_of(".md").map(|path| Document::parse(path, &tree.read(path))).collect()
}

#[track_caller]
fn assert_none(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// Checks the documents that describe the present program.
fn check_all(check: impl Fn(&Tree, &Document) -> Vec<String>) {
    let tree = Tree::read_all();
    let documents = documents(&tree);
    let of_today =
        documents.iter().filter(|document| ![HISTORY, GENERATED].contains(&document.name.as_str()));
    assert_none(of_today.flat_map(|document| check(&tree, document)).collect());
}

#[test]
fn every_command_and_flag_that_is_named_exists() {
    check_all(checks::commands);
}

#[test]
fn every_recipe_that_is_named_exists() {
    check_all(checks::recipes);
}

#[test]
fn every_setting_and_variable_that_is_named_exists() {
    check_all(checks::settings);
}

#[test]
fn every_path_that_is_named_exists() {
    check_all(checks::paths);
}

#[test]
fn every_link_leads_to_a_file_and_a_heading_that_exist() {
    let tree = Tree::read_all();
    assert_none(documents(&tree).iter().flat_map(|document| checks::links(&tree, document)).collect());
}

#[test]
fn every_document_is_checked_and_links_lead_to_it_from_the_readme() {
    let tree = Tree::read_all();
    let documents = documents(&tree);
    for name in ["README.md", "docs/clocks.md", "lua/README.md", PART_OF_GENERATED] {
        assert!(documents.iter().any(|document| document.name == name), "{name} is not checked");
    }
    let mut unreachable = checks::unreachable(&documents);
    unreachable.retain(|name| *name != PART_OF_GENERATED);
    assert!(unreachable.is_empty(), "no links lead from README to {unreachable:?}");
}

#[test]
fn every_function_and_test_that_is_named_exists() {
    check_all(checks::names);
}

#[test]
fn the_reply_table_is_the_header_of_the_script() {
    let tree = Tree::read_all();
    assert_none(checks::replies(&tree.read(PRODUCERS), &tree.read("lua/admit.lua")));
}

#[test]
fn the_exit_codes_are_those_of_the_help() {
    let tree = Tree::read_all();
    assert_none(checks::exit_codes(&tree.read("docs/exit-codes.md")));
}

#[test]
fn every_command_stands_in_the_table_of_commands() {
    let tree = Tree::read_all();
    let unlisted = checks::unlisted_commands(&tree.read("docs/operating.md"));
    assert!(unlisted.is_empty(), "no row of docs/operating.md names {unlisted:?}");
}

#[test]
fn the_defaults_that_are_shown_are_those_of_the_program() {
    let tree = Tree::read_all();
    let (page, file) = (tree.read("docs/configuration.md"), tree.read("config/default.toml"));
    assert_none(checks::defaults(&tree, &page));
    // Both have the settings that a team should know.
    let (known, _) = file.split_once("\n# ==== Part 2").expect("two parts");
    let keys = known.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" = "));
    let section = page.split("## Settings to know first").nth(1).expect("a section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    assert!(rows.map(|(key, _)| key).eq(keys.map(|(key, _)| key)), "docs/configuration.md lists others");
}

#[test]
fn the_ways_in_can_be_read_at_one_sitting() {
    let tree = Tree::read_all();
    for name in ["README.md", ARCHITECTURE] {
        let lines = tree.read(name).lines().count();
        assert!(lines <= 200, "{name} has {lines} lines: what does not fit belongs on a page of docs/");
    }
}

#[test]
fn the_pages_of_docs_do_not_grow() {
    let tree = Tree::read_all();
    let is_counted = |path: &&str| {
        path.starts_with("docs/")
            && !["docs/benchmarks/", "docs/zh-CN/"].iter().any(|it| path.starts_with(it))
    };
    let words =
        tree.paths_of(".md").filter(is_counted).map(|path| tree.read(path).split_whitespace().count());
    let words: usize = words.sum();
    assert!(
        (10_000..=MOST_WORDS).contains(&words),
        "docs/ has {words} words: say each fact once, and link to it"
    );
}

#[test]
fn every_promise_of_the_architecture_has_a_section_that_names_its_tests() {
    let tree = Tree::read_all();
    assert_none(checks::promises(&tree.read(ARCHITECTURE), &tree.read("docs/invariants.md")));
}

#[test]
fn the_drawing_of_the_crates_shows_what_cargo_builds() {
    let tree = Tree::read_all();
    assert_none(checks::crates(&tree, &Document::parse(ARCHITECTURE, &tree.read(ARCHITECTURE))));
}

#[test]
fn every_log_line_that_is_explained_is_logged_and_every_warning_is_explained() {
    let tree = Tree::read_all();
    assert_none(checks::log_lines(&tree, &tree.read("docs/runbook/log-messages.md")));
}

#[test]
fn every_section_of_the_runbook_that_the_program_names_exists() {
    let tree = Tree::read_all();
    assert_none(checks::sections(&tree, &tree.sources("crates/tidegate", &[".rs"])));
}

#[test]
fn what_is_live_is_the_same_wherever_it_is_asked() {
    use tidegate_orders::row_state::LIVE;
    let runbook = crate::runbook::pages::text();
    let asks = runbook.lines().filter(|line| line.contains("slot IS"));
    let others: Vec<&str> = asks.filter(|line| !line.contains(LIVE)).collect();
    assert!(others.is_empty(), "RUNBOOK asks by another condition than {LIVE}: {others:#?}");
    assert!(runbook.contains(LIVE));
}

#[test]
fn a_wrong_document_would_be_seen() {
    let tree = Tree::read_all();
    let wrong = "`tidegate vouchers`, `tidegate status --jsn`, `tidegate voucher lod`, `just demos`, `worker.batches`, \
                 `TIDEGATE_WORKER_BATCHES`, `lua/admits.lua`, `lanes.rs`, [a](RUNBOK.md), [b](#nowhere), \
                 [c](clocks.md), [d](docs/clocks.md#nowhere), [e](docs/clocks.md#the-clock-of-redis), \
                 `Gate::admits`, `what_is_not_tested_cannot_be_promised`\n";
    let document = Document::parse("wrong", wrong);
    assert_eq!(checks::commands(&tree, &document).len(), 3);
    assert_eq!(checks::recipes(&tree, &document).len(), 1);
    assert_eq!(checks::settings(&tree, &document).len(), 2);
    assert_eq!(checks::paths(&tree, &document).len(), 2);
    assert_eq!(checks::links(&tree, &document).len(), 4);
    let lone = [Document::parse("README.md", "[a](b.md)"), Document::parse("a/b.md", "")];
    assert_eq!(checks::unreachable(&lone), ["a/b.md"]);
    assert_eq!(checks::names(&tree, &document).len(), 2);
    let wrong = "```mermaid\nflowchart LR\n    a[\"lua/admits.lua<br>Gate::admits\"] --> tidegate-stream\n    \
                 a --> b: tidegate vouchers, tb_voucher_orders, OrderHandlers\n```\n";
    let diagram = Document::parse("wrong", wrong);
    assert_eq!(checks::paths(&tree, &diagram).len(), 1);
    assert_eq!(checks::names(&tree, &diagram).len(), 3);
    assert_eq!(checks::commands(&tree, &diagram).len(), 1);
    assert!(checks::crates(&tree, &diagram).len() > 2);
    let list = "## What must hold\n1. **Nothing is lost.**\n";
    let section = "\n## 1. Nothing is lost\n\n- `nothing_that_is_there_is_lost`\n";
    assert!(checks::promises(list, section).is_empty());
    assert_eq!(checks::promises(list, "\n## 1. Nothing is found\n").len(), 2);
    assert_eq!(checks::promises(list, &format!("{section}{section}")).len(), 1);
    assert_eq!(checks::replies("| 0 | refused |", "-- Reply 0: admitted").len(), 1);
    assert_eq!(checks::replies("| `OTHER` | odd |", "-- Error ODD: odd").len(), 1);
    assert_eq!(checks::defaults(&tree, "| `worker.batch` | 7 | |\n| `worker.lanes` | 4 | |").len(), 1);
    let unlisted = checks::unlisted_commands("| `tidegate worker` | |");
    assert!(unlisted.contains(&"dead list".to_owned()) && !unlisted.contains(&"worker".to_owned()));
    assert!(!checks::exit_codes("| 9 | a code |").is_empty());
    assert_eq!(checks::sections(&tree, "docs/runbook/none.md docs/runbook/upgrade.md#none RUNBOOK").len(), 3);
    assert!(!checks::log_lines(&tree, "## Log messages\n| `never said` | INFO | |").is_empty());
}

#[test]
fn each_page_that_shows_commands_has_vouchers_of_its_own() {
    let tree = Tree::read_all();
    let mut pages: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let is_translated = |page: &Document| page.name.contains("zh-CN");
    for page in documents(&tree).iter().filter(|page| page.name != HISTORY && !is_translated(page)) {
        for voucher in checks::vouchers(page) {
            pages.entry(voucher).or_default().insert(page.name.clone());
        }
    }
    let shared = pages.iter().filter(|(_, pages)| pages.len() > 1);
    assert_none(shared.map(|(voucher, pages)| format!("voucher {voucher}: {pages:?}")).collect());
    let page = Document::parse(
        "a.md",
        "`--voucher 7` `voucherId 9`\n```sh\nseckill:stock:8 {3}:seckill:stock:8\n```\n",
    );
    assert_eq!(checks::vouchers(&page), ["7", "8", "8", "9"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_documents_say_to_type_works_and_a_worker_writes_the_orders() {
    let tree = Tree::read_all();
    let [readme, producers] = ["README.md", PRODUCERS].map(|name| Document::parse(name, &tree.read(name)));
    let fixture = Fixture::open().await;
    fixture.add_users().await;
    let plan = fixture.worker("w").set("GATE_LISTEN", "127.0.0.1:0");
    let worker = plan.start_with(&["worker", "--gate"]);
    let gate = worker.gate_address().await.to_string();

    let begins = |block: &&String, begin: &str| block.starts_with(begin);
    let is_typed =
        |block: &&String| begins(block, "tidegate ") || begins(block, "curl http://127.0.0.1:8434");
    for line in readme.shell.iter().filter(is_typed).flat_map(|block| block.lines()) {
        // The worker runs already, and would not end by itself.
        if line != "tidegate worker --gate" {
            type_in(&fixture, &line.replace("127.0.0.1:8434", &gate));
        }
    }
    for block in producers.shell.iter().filter(|block| block.starts_with("tidegate ")) {
        block.lines().for_each(|line| drop(type_in(&fixture, line)));
    }
    let calls = readme.shell.iter().chain(&producers.shell).filter(|block| block.starts_with("redis-cli "));
    let (scripts, entries): (Vec<&String>, Vec<&String>) = calls.partition(|block| block.contains("--eval"));
    assert!(!scripts.is_empty() && !entries.is_empty(), "both ways are shown: {scripts:?}, {entries:?}");
    for script in scripts {
        assert_eq!(type_in(&fixture, script).trim(), "0");
    }
    for entry in entries {
        type_in(&fixture, entry);
    }

    fixture.settled().await;
    let users: Vec<i64> = fixture.orders().await.iter().map(|order| order.user).collect();
    for user in [1001, 2001, 10001, 10011, 10021] {
        assert!(users.contains(&user), "user {user} has no order: {users:?}");
    }
    type_in(&fixture, "tidegate audit");
    assert!(worker.stop().await.success());
}

/// Runs a line at the top of the repository, as the user of `config/` that has just the rights for it. It must succeed.
/// Returns its output.
fn type_in(fixture: &Fixture, line: &str) -> String {
    let output = run_line(fixture, line);
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Runs a line of shell, and returns its output.
pub fn run_line(fixture: &Fixture, line: &str) -> Output {
    shell(fixture, line).output().expect("bash runs")
}

/// A shell for a line, at the top of the repository, as the users of `config/` with the least rights that it needs.
pub fn shell(fixture: &Fixture, line: &str) -> Command {
    let (redis, mysql) = match line {
        line if line.starts_with("redis-cli ") => ("tidegate-producer", "tidegate-reader"),
        line if line.contains("migrate") => ("tidegate-operator", "tidegate-owner"),
        _ => ("tidegate-operator", "tidegate-operator"),
    };
    let folder = Path::new(env!("CARGO_BIN_EXE_tidegate")).parent().expect("a folder");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("bash");
    shell.args(["-euc", line]).current_dir(Tree::root()).env("PATH", path);
    shell.env("TIDEGATE_REDIS_URL", fixture.redis_url_of(redis));
    shell.env("TIDEGATE_MYSQL_URL", fixture.mysql_url_of(mysql));
    shell
}
