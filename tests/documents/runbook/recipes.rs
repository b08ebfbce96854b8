//! The recipes of the runbook, and a terminal on which a test types them word for word.

use std::path::Path;

use tempfile::TempDir;

use super::pages::{self, Page};

use crate::{
    fixture::{Fixture, program},
    markdown::{Part, parts},
    terminal::Terminal,
};

/// A block of code, or code within a sentence.
pub struct Recipe {
    /// The title of its page.
    pub page: String,
    /// `sh` and `sql` for blocks, empty for code within a sentence.
    pub language: String,
    pub text: String,
}

/// All recipes: those of RUNBOOK.md, then those of each page. Blocks come before code within sentences.
pub fn recipes() -> Vec<Recipe> {
    std::iter::once(pages::index()).chain(pages::pages()).flat_map(|page| recipes_of(&page)).collect()
}

fn recipes_of(page: &Page) -> Vec<Recipe> {
    let (mut recipes, mut prose) = (Vec::new(), String::new());
    for part in parts(&page.path, &page.text) {
        match part {
            Part::Prose(text) => prose += &text,
            Part::Block { language, text } => {
                recipes.push(Recipe { page: page.title.clone(), language, text });
            }
        }
    }
    let is_indented = |line: &str| line.trim_start().starts_with("```");
    assert!(!prose.lines().any(is_indented), "{}: a block is indented", page.path);
    recipes.extend(spans(&page.title, &prose));
    recipes
}

fn spans(page: &str, prose: &str) -> Vec<Recipe> {
    let spans = prose.split('`').skip(1).step_by(2);
    let recipe = |text: &str| Recipe {
        page: page.to_owned(),
        language: String::new(),
        text: format!("{}\n", text.replace('\n', " ")),
    };
    spans.map(recipe).collect()
}

/// An operator with the runbook, a terminal, the three programs that it needs, and the rights of `tidegate-operator` in
/// `config/`.
pub struct Operator {
    beginning: String,
    /// The same variables with the rights of an administrator of both servers.
    as_administrator: String,
    /// The folder for files that recipes create.
    folder: TempDir,
    recipes: Vec<Recipe>,
}

/// The result of a recipe.
pub struct Typed {
    recipe: String,
    /// The exit code of each of its commands.
    codes: Vec<i32>,
    /// The whole output.
    pub shown: String,
}

impl Operator {
    /// An operator of this fixture. Its addresses replace the placeholders of RUNBOOK.md.
    pub fn at(fixture: &Fixture) -> Self {
        let recipes = recipes();
        let first = recipes.iter().find(|recipe| recipe.language == "sh").expect("RUNBOOK.md begins with sh");
        // This function is not async, so it waits for the future in place.
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(fixture.add_users()));
        // `-p` would ask for a password, and this user has none.
        let client = format!("-h 127.0.0.1 -P {} -u tidegate tidegate", fixture.mysql.port());
        let client = ("-h HOST -P PORT -u USER -p DATABASE", client.as_str());
        let exports = |redis: &str, mysql: &str| {
            own(&first.text, &[("redis://...", redis), ("mysql://...", mysql), client])
        };
        let name = "tidegate-operator";
        let as_operator = exports(&fixture.redis_url_of(name), &fixture.mysql_url_of(name));
        let as_administrator = exports(&fixture.redis.url(), &fixture.mysql.url());
        Self::with_exports(recipes, &as_operator, &as_administrator)
    }

    /// An administrator of a system with these partitions in a Redis Cluster.
    pub fn in_cluster(redis_url: &str, mysql_url: &str, partitions: &str) -> Self {
        let recipes = recipes();
        let first = recipes.iter().find(|recipe| recipe.language == "sh").expect("RUNBOOK.md begins with sh");
        let exports = own(&first.text, &[("redis://...", redis_url), ("mysql://...", mysql_url)]);
        let exports = format!("{exports}export TIDEGATE_STREAM_PARTITIONS={partitions}\n");
        Self::with_exports(recipes, &exports, &exports)
    }

    fn with_exports(recipes: Vec<Recipe>, as_operator: &str, as_administrator: &str) -> Self {
        // The operator's lock lease is that of the workers. Otherwise, the operator would wait for locks that have
        // expired.
        let lease = "export TIDEGATE_WORKER_LOCK_LEASE_MS=600\n";
        let folder = TempDir::new().expect("a folder");
        let beginning = |exports: &str| format!("cd {}\n{exports}{lease}", folder.path().display());
        let (beginning, as_administrator) = (beginning(as_operator), beginning(as_administrator));
        Self { beginning, as_administrator, folder, recipes }
    }

    /// Types the recipe of `page` that begins with `beginning`, with other words in place of the runbook's, and answers
    /// yes to all questions. A block comes before code in a sentence.
    ///
    /// # Panics
    /// Panics if there is no such recipe, if there are several, or if one of the words is not in it.
    pub fn types(&self, page: &str, beginning: &str, words: &[(&str, &str)]) -> Typed {
        let of_page = self.recipes.iter().filter(|recipe| recipe.page == page);
        let (spans, blocks): (Vec<&Recipe>, Vec<&Recipe>) = of_page
            .filter(|recipe| recipe.text.starts_with(beginning))
            .partition(|recipe| recipe.language.is_empty());
        let found = if blocks.is_empty() { spans } else { blocks };
        let (Some(recipe), true) = (found.first(), found.iter().all(|other| other.text == found[0].text))
        else {
            panic!("{} recipes of {page:?} begin with {beginning:?}", found.len());
        };
        let text = own(&recipe.text, words);
        if recipe.language == "sql" {
            return self.types_line(&format!("mysql <<'END'\n{text}END\n"));
        }
        let (mut codes, mut shown) = (Vec::new(), String::new());
        for command in commands(&text) {
            let typed = self.types_line(&command);
            codes.extend(typed.codes);
            shown += &typed.shown;
        }
        Typed { recipe: recipe.text.clone(), codes, shown }
    }

    fn types_line(&self, line: &str) -> Typed {
        let tidegate = Path::new(env!("CARGO_BIN_EXE_tidegate")).parent().expect("a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = program_of("sh");
        let beginning = if line.contains("CONFIG SET") { &self.as_administrator } else { &self.beginning };
        shell.args(["-uc", &format!("{beginning}{line}")]);
        shell.env("PATH", format!("{}:{path}", tidegate.display()));
        let (code, shown) = Terminal::start(&shell).says_yes();
        Typed { recipe: line.to_owned(), codes: vec![code], shown: plain(&shown) }
    }

    /// The content of a file that a recipe created.
    pub fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }
}

/// A program without the variables that configure the tests.
fn program_of(name: &str) -> std::process::Command {
    let mut command = std::process::Command::new(name);
    for (variable, value) in program().get_envs() {
        assert!(value.is_none(), "the program is given no variable of its own");
        command.env_remove(variable);
    }
    command
}

fn own(text: &str, words: &[(&str, &str)]) -> String {
    words.iter().fold(text.to_owned(), |text, (theirs, ours)| {
        assert!(text.contains(theirs), "{theirs:?} is not in the recipe:\n{text}");
        text.replace(theirs, ours)
    })
}

/// The output of a terminal without the lines of tables, and with one space for several.
fn plain(shown: &str) -> String {
    let words = |line: &str| {
        let is_letter = |c: &char| c.is_ascii_graphic();
        let spaced: String = line.chars().map(|c| if is_letter(&c) { c } else { ' ' }).collect();
        spaced.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    shown.lines().map(words).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

/// The commands of a text. A line that ends with `|` or `\` continues in the next one.
fn commands(text: &str) -> Vec<String> {
    let mut commands = vec![String::new()];
    for line in text.lines() {
        let last = commands.last_mut().expect("there is one");
        *last += &format!("{line}\n");
        if !line.ends_with(['|', '\\']) {
            commands.push(String::new());
        }
    }
    commands.retain(|command| !command.trim().is_empty());
    commands
}

impl Typed {
    /// Checks that each command succeeded.
    #[track_caller]
    pub fn succeeds(self) -> Self {
        let all = vec![0; self.codes.len()];
        self.ends_with(&all)
    }

    /// Checks that the commands ended with these codes.
    #[track_caller]
    pub fn ends_with(self, codes: &[i32]) -> Self {
        assert_eq!(self.codes, codes, "{}\n{}", self.recipe, self.shown);
        self
    }

    /// Checks that the output contains all these texts, in this order.
    #[track_caller]
    pub fn shows(self, texts: &[&str]) -> Self {
        let mut rest = self.shown.as_str();
        for text in texts {
            let Some(at) = rest.find(text) else {
                panic!("{text:?} is not seen after\n{}\nbut\n{}", self.recipe, self.shown);
            };
            rest = &rest[at + text.len()..];
        }
        self
    }
}
