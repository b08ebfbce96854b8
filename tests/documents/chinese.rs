//! Each Chinese page has the headings, the code, the tables, the commands and the links of its English page.

use crate::{
    markdown::{Document, Part, parts},
    tree::Tree,
};

const FOLDER: &str = "docs/zh-CN/";

/// The English page of a Chinese one.
fn english(path: &str) -> Option<String> {
    match path.strip_prefix(FOLDER) {
        Some("runbook.md") => Some("RUNBOOK.md".to_owned()),
        Some(name) => Some(format!("docs/{name}")),
        None => path.strip_suffix(".zh-CN.md").map(|name| format!("{name}.md")),
    }
}

/// The parts of a page that a translation keeps, each in the order in which the page has it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Skeleton {
    /// The levels of all headings.
    headings: Vec<usize>,
    /// The languages and texts of the blocks of code. A drawing counts only by its lines, because its labels are translated.
    blocks: Vec<(String, String)>,
    /// The columns of all rows of tables.
    rows: Vec<usize>,
    /// The commands within sentences, sorted, because a sentence may turn them round.
    commands: Vec<String>,
    /// The pages to which links lead, in English, sorted.
    links: Vec<String>,
}

impl Skeleton {
    fn of(path: &str, text: &str) -> Self {
        let mut skeleton = Self::default();
        for part in parts(path, text) {
            match part {
                Part::Block { language, text } if language == "mermaid" => {
                    skeleton.blocks.push((language, format!("{} lines", text.lines().count())));
                }
                Part::Block { language, text } => skeleton.blocks.push((language, text)),
                Part::Prose(text) => skeleton.add_prose(&text),
            }
        }
        let document = Document::parse(path, text);
        let targets = document.links.iter().map(|link| document.target_of(link));
        skeleton.links = targets.map(|target| english(&target).unwrap_or(target)).collect();
        skeleton.commands.sort();
        skeleton.links.sort();
        // Each page of a pair may link to the other one.
        skeleton.links.retain(|link| *link != english(path).unwrap_or_else(|| path.to_owned()));
        skeleton
    }

    fn add_prose(&mut self, text: &str) {
        let levels = text.lines().filter(|line| line.starts_with('#'));
        self.headings.extend(levels.map(|line| line.chars().take_while(|c| *c == '#').count()));
        let rows = text.lines().filter(|line| line.starts_with('|'));
        self.rows.extend(rows.map(|row| row.replace("\\|", "").matches('|').count()));
        let spans = text.split('`').skip(1).step_by(2).map(|span| span.replace('\n', " "));
        self.commands.extend(spans.filter(|it| it.starts_with("tidegate") || it.starts_with("redis")));
    }
}

#[test]
fn each_chinese_page_has_the_headings_commands_and_code_of_its_english_page() {
    let tree = Tree::read_all();
    let pages: Vec<&str> =
        tree.paths_of(".md").filter(|path| path.starts_with(FOLDER) || path.ends_with(".zh-CN.md")).collect();
    assert_eq!(pages.len(), 7, "{pages:?}");
    for path in pages {
        let source = english(path).expect("a Chinese page");
        assert_eq!(
            Skeleton::of(path, &tree.read(path)),
            Skeleton::of(&source, &tree.read(&source)),
            "{path} on the left, {source} on the right"
        );
    }
}

#[test]
fn a_translation_that_left_something_out_would_be_seen() {
    let page =
        "# A\n\n[b](b.md) `tidegate status` | no table\n\n| a | b |\n\n```sh\ntidegate audit\n```\n\n## C\n";
    let skeleton = |text: &str| Skeleton::of("docs/a.md", text);
    let translated = page.replace("# A", "# 一").replace("no table", "表").replace("## C", "## 三");
    assert_eq!(skeleton(page), Skeleton::of("docs/zh-CN/a.md", &translated.replace("(b.md)", "(../b.md)")));
    for (part, other) in [
        ("## C\n", ""),
        ("tidegate audit", "tidegate audit --json"),
        ("`tidegate status`", "status"),
        ("| a | b |", "| a |"),
        ("[b](b.md)", "b"),
    ] {
        assert_ne!(skeleton(page), skeleton(&page.replace(part, other)), "{part}");
    }
}
