//! SCAN patterns for all keys of a kind.

use super::{STAGED, halves};
use crate::order::VoucherId;

/// The pattern of all keys that a template can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern<'a> {
    before: &'a str,
    after: &'a str,
}

impl<'a> Pattern<'a> {
    /// The pattern of all keys that begin with this text.
    pub(crate) const fn beginning(before: &'a str) -> Self {
        Self { before, after: "" }
    }

    pub(super) fn new(template: &'a str, placeholder: &str) -> Self {
        let (before, after) = halves(template, placeholder);
        Self { before, after }
    }

    /// The pattern in the form that SCAN takes.
    pub(crate) fn glob(&self) -> String {
        let escaped = |text: &str| {
            let special = |c| matches!(c, '*' | '?' | '[' | ']' | '\\');
            text.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect::<String>()
        };
        format!("{}*{}", escaped(self.before), escaped(self.after))
    }

    /// The text in the place of the placeholder in a key.
    pub(crate) fn name<'k>(&self, key: &'k str) -> Option<&'k str> {
        key.strip_prefix(self.before)?.strip_suffix(self.after)
    }

    /// The pattern, in the form that SCAN takes, of the keys that a rebuild fills in place of these.
    pub(crate) fn staged_glob(&self) -> String {
        format!("{}{STAGED}*", self.glob())
    }

    /// The voucher in the place of the placeholder in a key. `None` if that text is not a number from 1 on.
    pub(crate) fn voucher(&self, key: &str) -> Option<VoucherId> {
        self.name(key)?.parse().ok()
    }
}
