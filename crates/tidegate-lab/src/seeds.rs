//! The seeds of tests with random choices: the seeds of a run, and the message of a failed test, with which it can be
//! repeated.

use std::{collections::HashMap, fmt, ops::RangeInclusive};

use rand::{SeedableRng, rngs::StdRng};
use tokio::{runtime::Builder, task::JoinSet};

/// The variable that chooses seeds. `timed-tests.sh` searches for a line with it and `=`, which marks a failed test as
/// one with seeds.
const VARIABLE: &str = "TIDEGATE_TEST_SEED";

/// The seeds of a test, from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    first: u64,
    last: u64,
}

impl Seeds {
    /// The seeds that `TIDEGATE_TEST_SEED` names: `17`, or `17-40`, or `17-` for the usual number of seeds from 17 on.
    /// Without the variable, the usual number of new seeds.
    ///
    /// # Panics
    /// If the variable names no seeds.
    pub fn chosen(usual: u64) -> Self {
        match std::env::var(VARIABLE) {
            Ok(text) => Self::parse(&text, usual)
                .unwrap_or_else(|| panic!("{VARIABLE} is {text:?}, and must be like 17, 17-40 or 17-")),
            Err(_) => Self::from(u64::from(rand::random::<u32>()), usual),
        }
    }

    fn parse(text: &str, usual: u64) -> Option<Self> {
        let seeds = match text.split_once('-') {
            None => Self::from(text.parse().ok()?, 1),
            Some((first, "")) => Self::from(first.parse().ok()?, usual),
            Some((first, last)) => Self { first: first.parse().ok()?, last: last.parse().ok()? },
        };
        (seeds.first <= seeds.last).then_some(seeds)
    }

    fn from(first: u64, count: u64) -> Self {
        Self { first, last: first.saturating_add(count.max(1) - 1) }
    }

    /// The first seed, which is the only one if the usual number is 1.
    pub fn first(self) -> u64 {
        self.first
    }

    /// The range of all seeds.
    pub fn all(self) -> RangeInclusive<u64> {
        self.first..=self.last
    }

    /// The random generator of a test that runs once. Prints the seed, which the test harness shows if the test fails.
    pub fn chance(self) -> StdRng {
        println!("{}", Self::from(self.first, 1));
        StdRng::seed_from_u64(self.first)
    }

    /// The seeds in parts of this size; a failed part is repeated as a whole.
    fn parts(self, size: u64) -> impl Iterator<Item = Self> {
        let starts = self.all().step_by(usize::try_from(size).expect("a small number"));
        starts.map(move |first| Self { first, last: self.last.min(first.saturating_add(size - 1)) })
    }

    /// Runs a test with each part of the seeds. A number of parts run at once, each in a separate runtime: leftovers of
    /// a part, such as clients that search for their servers, end with it. Prints the progress, so that an interrupted
    /// run can continue from there. If a part fails, the others keep running.
    ///
    /// # Panics
    /// At the end, if a part has failed. The message names the failed parts.
    pub async fn run<F>(self, (size, at_once): (u64, usize), test: impl Fn(Self) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut waiting = self.parts(size).peekable();
        let (mut tasks, mut running, mut failed) = (JoinSet::new(), HashMap::new(), Vec::new());
        let mut done = self.first;
        loop {
            while running.len() < at_once
                && let Some(part) = waiting.next()
            {
                let test = test(part);
                running.insert(tasks.spawn_blocking(|| run_alone(test)).id(), part);
            }
            let Some(ended) = tasks.join_next_with_id().await else { break };
            let id = ended.as_ref().map_or_else(tokio::task::JoinError::id, |(id, ())| *id);
            let part = running.remove(&id).expect("it was started");
            if ended.is_err() {
                eprintln!("failed: {part}");
                failed.push(part.to_string());
            }
            let open = running.values().copied().chain(waiting.peek().copied()).map(Self::first).min();
            if let Some(open) = open.filter(|open| *open > done) {
                eprintln!("done: all seeds below {open}, of those up to {}", self.last);
                done = open;
            }
        }
        assert!(failed.is_empty(), "failed, to be repeated each with its seeds: {}", failed.join(", "));
    }
}

fn run_alone(test: impl Future<Output = ()>) {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(test);
    runtime.shutdown_background();
}

/// Shows the variable that repeats a run with these seeds.
impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{VARIABLE}={}", self.first)?;
        if self.first == self.last { Ok(()) } else { write!(f, "-{}", self.last) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn the_variable_names_one_seed_or_a_range_or_the_first_of_the_usual_number() {
        assert_eq!(Seeds::parse("17", 200), Some(Seeds { first: 17, last: 17 }));
        assert_eq!(Seeds::parse("17-40", 200), Some(Seeds { first: 17, last: 40 }));
        assert_eq!(Seeds::parse("17-", 200), Some(Seeds { first: 17, last: 216 }));
        for wrong in ["", "-", "-3", "40-17", "17..40", "x"] {
            assert_eq!(Seeds::parse(wrong, 200), None, "{wrong}");
        }
        assert_eq!(Seeds { first: 17, last: 40 }.to_string(), "TIDEGATE_TEST_SEED=17-40");
        assert_eq!(Seeds { first: 17, last: 17 }.to_string(), "TIDEGATE_TEST_SEED=17");
    }

    #[tokio::test]
    async fn a_part_that_fails_leaves_the_others_running_and_is_named() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let also_seen = Arc::clone(&seen);
        let run = tokio::spawn(async move {
            let test = |part: Seeds| {
                let seen = Arc::clone(&also_seen);
                async move {
                    seen.lock().expect("no test panics with it").push((part.first, part.last));
                    assert!(!part.all().contains(&4), "the seed that fails");
                }
            };
            Seeds { first: 1, last: 7 }.run((3, 2), test).await;
        });
        let panic = run.await.expect_err("a part fails").into_panic();
        let message = panic.downcast_ref::<String>().expect("a text");
        assert!(message.ends_with(": TIDEGATE_TEST_SEED=4-6"), "{message}");
        let mut seen = seen.lock().expect("no test panics with it").clone();
        seen.sort_unstable();
        assert_eq!(seen, [(1, 3), (4, 6), (7, 7)]);
    }
}
