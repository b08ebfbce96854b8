//! The question to the operator before something is changed.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::Context;
use tidegate_compare::text::printable_lines;
use tokio::sync::{Notify, watch};

use crate::{exit::WrongUsage, output::print_note};

tokio::task_local! {
    /// The set of questions that this part of the command adds its own questions to.
    static PART: (Arc<Together>, String);
}

/// The questions of a command that changes several partitions: they are collected, and then asked as one question.
#[derive(Debug)]
pub struct Together {
    kept: Mutex<Vec<Kept>>,
    has_kept: Notify,
    /// The answer of the operator. None: not asked yet. An error is the reason why the question could not be asked.
    answer: watch::Sender<Option<Result<bool, String>>>,
}

/// The plan of one partition, and its question.
#[derive(Debug)]
struct Kept {
    part: String,
    plan: String,
    question: String,
}

impl Together {
    /// Creates a collection without questions.
    pub fn new() -> Self {
        Self { kept: Mutex::default(), has_kept: Notify::new(), answer: watch::Sender::new(None) }
    }

    /// Runs the command in one partition, and collects its question under this name, such as the tag of the partition.
    pub fn part<F: Future>(
        self: &Arc<Self>,
        name: String,
        part: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        PART.scope((Arc::clone(self), name), part)
    }

    /// Waits until the command that runs in one partition has added its question.
    pub async fn waits(&self) {
        self.has_kept.notified().await;
    }

    /// Asks all collected questions as one question. After the answer, the command continues in each partition.
    pub fn ask(&self) {
        let (plans, question) = all_of(&self.kept());
        let answer = ask_now(&plans, &question).map_err(|error| format!("{error:#}"));
        if answer == Ok(false) {
            print_note("Nothing was changed.");
        }
        self.answer.send_replace(Some(answer));
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(&self, kept: Kept) -> anyhow::Result<bool> {
        let mut answers = self.answer.subscribe();
        self.kept().push(kept);
        self.has_kept.notify_one();
        let answer = answers.wait_for(Option::is_some).await.context("Failed to ask")?.clone();
        answer.unwrap_or(Ok(false)).map_err(|wrong| WrongUsage(wrong).into())
    }
}

/// The plans of all partitions, and one question. Partitions with the same plan and question share one heading.
fn all_of(kept: &[Kept]) -> (String, String) {
    let mut groups: Vec<(Vec<&str>, &str, &str)> = Vec::new();
    for Kept { part, plan, question } in kept {
        match groups.iter_mut().find(|(_, planned, asked)| planned == plan && asked == question) {
            Some((parts, ..)) => parts.push(part),
            None => groups.push((vec![part], plan, question)),
        }
    }
    let heading = |parts: &[&str]| match parts {
        [part] => format!("Partition {part}:"),
        parts => format!("Partitions {}:", parts.join(", ")),
    };
    if let [(parts, plan, question)] = &groups[..] {
        return (format!("{}\n{plan}", heading(parts)), (*question).to_owned());
    }
    let group =
        |(parts, plan, question): &(Vec<&str>, &str, &str)| format!("{}\n{plan}\n{question}", heading(parts));
    let plans = groups.iter().map(group).collect::<Vec<_>>().join("\n");
    (plans, format!("Make all these changes, in {} partitions?", kept.len()))
}

/// Shows the plan and asks the operator, on stderr. Only the answers `y` and `yes` mean yes. After any other answer,
/// prints "Nothing was changed.". If the command changes several partitions, asks all questions as one question.
///
/// # Errors
/// When there is no terminal: a script must not hang on a question that no person sees.
pub async fn ask(plan: &str, question: &str) -> anyhow::Result<bool> {
    if let Ok((together, part)) = PART.try_with(Clone::clone)
        && together.answer.borrow().is_none()
    {
        return together.answer(Kept { part, plan: plan.to_owned(), question: question.to_owned() }).await;
    }
    let is_yes = ask_now(plan, question)?;
    if !is_yes {
        print_note("Nothing was changed.");
    }
    Ok(is_yes)
}

fn ask_now(plan: &str, question: &str) -> anyhow::Result<bool> {
    let (stdin, mut stderr) = (io::stdin(), io::stderr());
    if !stdin.is_terminal() || !stderr.is_terminal() {
        let message = format!(
            "{question} There is no terminal for the answer, so nothing was changed: use --dry-run, then --yes"
        );
        return Err(WrongUsage(message).into());
    }
    write!(stderr, "{} [y/N] ", printable_lines(&format!("{plan}\n{question}"))).context("Failed to ask")?;
    stderr.flush().context("Failed to ask")?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer).context("Failed to read the answer")?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_same_in_several_partitions_is_said_once() {
        let kept = |part: &str, plan: &str| {
            let (part, plan) = (part.to_owned(), plan.to_owned());
            Kept { part, plan, question: "Pause?".to_owned() }
        };
        let all = [kept("{a}", "1 sale"), kept("{b}", "2 sales"), kept("{c}", "1 sale")];
        let (plans, question) = all_of(&all);
        assert_eq!(plans, "Partitions {a}, {c}:\n1 sale\nPause?\nPartition {b}:\n2 sales\nPause?");
        assert_eq!(question, "Make all these changes, in 3 partitions?");
        assert_eq!(all_of(&all[..1]), ("Partition {a}:\n1 sale".to_owned(), "Pause?".to_owned()));
    }
}
