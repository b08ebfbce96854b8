//! Patterns of SCAN for all keys of a kind.

use super::{STAGED, halves};
use crate::order::VoucherId;

/// All keys that a template can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern<'a> {
    before: &'a str,
    after: &'a str,
}

impl<'a> Pattern<'a> {
    /// All keys that begin so.
    pub(crate) const fn beginning(before: &'a str) -> Self {
        Self { before, after: "" }
    }

    pub(super) fn new(template: &'a str, placeholder: &str) -> Self {
        let (before, after) = halves(template, placeholder);
        Self { before, after }
    }

    /// As SCAN takes it.
    pub(crate) fn glob(&self) -> String {
        let escaped = |text: &str| {
            let special = |c| matches!(c, '*' | '?' | '[' | ']' | '\\');
            text.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect::<String>()
        };
        format!("{}*{}", escaped(self.before), escaped(self.after))
    }

    /// What stands for the placeholder in a key.
    pub(crate) fn name<'k>(&self, key: &'k str) -> Option<&'k str> {
        key.strip_prefix(self.before)?.strip_suffix(self.after)
    }

    /// The keys that a rebuild fills in the place of these, as SCAN takes it.
    pub(crate) fn staged_glob(&self) -> String {
        format!("{}{STAGED}*", self.glob())
    }

    /// What stands for the placeholder in a key, unless that is something else than a number from 1 on.
    pub(crate) fn voucher(&self, key: &str) -> Option<VoucherId> {
        self.name(key)?.parse().ok()
    }
}
