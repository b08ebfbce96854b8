//! The parts of Markdown that our documents use.
#![allow(dead_code, reason = "every test file uses a part of it")]

/// A document with its code and its links.
pub struct Document {
    pub name: String,
    pub text: String,
    /// The code within sentences, and the words of diagrams.
    pub spans: Vec<String>,
    /// The blocks of shell, with continued lines joined.
    pub shell: Vec<String>,
    /// The blocks of mermaid.
    pub diagrams: Vec<String>,
    /// The targets of links.
    pub links: Vec<String>,
    /// The headings as links name them.
    pub anchors: Vec<String>,
}

impl Document {
    pub fn parse(name: &str, text: &str) -> Self {
        let (mut prose, mut shell, mut diagrams) = (String::new(), Vec::new(), Vec::new());
        for part in parts(name, text) {
            match part {
                Part::Prose(text) => prose += &text,
                Part::Block { language, text } => match language.as_str() {
                    "sh" => shell.push(text.replace("\\\n", "")),
                    "mermaid" => diagrams.push(text),
                    _ => {}
                },
            }
        }
        let headings = prose.lines().filter(|line| line.starts_with('#'));
        let anchors =
            headings.map(|line| format!("#{}", slug(line.trim_start_matches('#').trim()))).collect();
        let spans = prose.split('`').skip(1).step_by(2).map(str::to_owned);
        let spans = spans.chain(diagrams.iter().flat_map(|diagram| named_in(diagram))).collect();
        let links = prose.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()));
        Self { name: name.into(), text: text.into(), links: links.collect(), spans, shell, diagrams, anchors }
    }

    /// All command lines: spans and lines of shell, split into words, with one command each.
    pub fn commands(&self) -> Vec<Vec<String>> {
        let lines = self.shell.iter().flat_map(|block| block.lines());
        let spans = self.spans.iter().map(String::as_str);
        spans.chain(lines).flat_map(commands_of).collect()
    }

    /// The path of a link's target, from the top of the repository.
    pub fn target_of(&self, link: &str) -> String {
        let path = link.split('#').next().unwrap_or_default();
        if path.is_empty() {
            return self.name.clone();
        }
        let mut parts: Vec<&str> = self.name.split('/').collect();
        parts.pop();
        for part in path.trim_end_matches('/').split('/') {
            match part {
                ".." => {
                    parts.pop();
                }
                "." => {}
                part => parts.push(part),
            }
        }
        parts.join("/")
    }
}

/// A block of code, or the prose between two blocks. Each line of the text ends with a newline.
pub enum Part {
    Prose(String),
    Block { language: String, text: String },
}

/// Splits a document into its prose and its blocks of code, in their order.
///
/// # Panics
/// If a block has no end.
pub fn parts(name: &str, text: &str) -> Vec<Part> {
    let (mut parts, mut prose, mut block) = (Vec::new(), String::new(), None);
    for line in text.lines() {
        match (line.strip_prefix("```"), &mut block) {
            (Some(_), Some(_)) => {
                parts.extend(block.take().map(|(language, text)| Part::Block { language, text }))
            }
            (Some(language), None) => {
                parts.push(Part::Prose(std::mem::take(&mut prose)));
                block = Some((language.to_owned(), String::new()));
            }
            (None, Some((_, text))) => *text += &format!("{line}\n"),
            (None, None) => prose += &format!("{line}\n"),
        }
    }
    assert!(block.is_none(), "{name}: a block has no end");
    parts.push(Part::Prose(prose));
    parts
}

/// All words of a diagram, and its labels, which contain commands.
fn named_in(diagram: &str) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_./:-".contains(c);
    let words = diagram.split(|c| !is_part(c)).map(|word| word.trim_matches(['.', ':', '-']));
    let labels = diagram.split(['\n', '"', ',', ':', '|', '&', '<', '>', '[', ']', '(', ')']);
    let commands =
        labels.map(|label| label.trim_matches([' ', '.', '-'])).filter(|label| label.contains(' '));
    words.filter(|word| !word.is_empty()).chain(commands).map(str::to_owned).collect()
}

fn commands_of(line: &str) -> Vec<Vec<String>> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let commands = words.split(|word| ["|", "&&", ";", "#"].contains(&word.as_str()));
    commands.filter(|command| !command.is_empty()).map(<[String]>::to_vec).collect()
}

fn slug(heading: &str) -> String {
    let kept = heading.to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_').collect()
}
