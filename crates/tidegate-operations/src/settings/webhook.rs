//! The settings of webhooks: the URLs to which workers send the results of orders.

use std::{fmt, path::PathBuf};

use tidegate_orders::{Published, PublishedResult, ResultKind, ResultState};

use crate::redacted::HIDDEN;

/// The settings of one webhook.
#[derive(Clone, Debug)]
pub struct WebhookSettings {
    /// The name of the webhook: 1 to 32 of the characters a-z, 0-9, `_` and `-`.
    pub name: String,
    /// The URL to which workers send results.
    pub url: WebhookUrl,
    /// The file with the secret that signs the results, or with two secrets while one of them is replaced.
    pub secret_file: PathBuf,
    /// The results that workers send.
    pub kinds: WebhookFilter,
    /// Whether workers may send results over plain HTTP to addresses that are not loopback.
    pub allow_http: bool,
}

/// The URL of a webhook. The paths of chat services are secrets, and so may be a query. So `Display` and `Debug` show only
/// the scheme and the host.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookUrl(String);

impl WebhookUrl {
    /// Creates the URL of a webhook from a text that was checked before.
    #[must_use]
    pub fn new(url: String) -> Self {
        Self(url)
    }

    /// The whole URL with its path and query, which must not be logged.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((scheme, rest)) = self.0.split_once("://") else { return f.write_str(HIDDEN) };
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let hidden = if matches!(&rest[host.len()..], "" | "/") { "" } else { HIDDEN };
        write!(f, "{scheme}://{host}/{hidden}")
    }
}

impl fmt::Debug for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// The results that a webhook gets, by their states and kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookFilter {
    /// The words that the configuration chose. If the list is empty, the webhook gets all results.
    words: Vec<&'static str>,
}

impl WebhookFilter {
    /// Parses the words of the member `kinds`: states of results, `state` and `fact`. Without words, the webhook gets
    /// all results that workers publish.
    ///
    /// # Errors
    /// If a word is unknown, or if `published` says that workers do not publish such results. The text says which.
    pub fn parse<T: AsRef<str>>(words: &[T], published: Published) -> Result<Self, String> {
        if published == Published::None {
            return Err("selects nothing, because results.publish is none: set results.publish to \"exceptions\", or \
                        remove the webhook"
                .to_owned());
        }
        let word = |text: &T| {
            let text = text.as_ref();
            if let Some(kind) = ResultKind::from_word(text) {
                return Ok(kind.word());
            }
            let state = ResultState::from_word(text).ok_or_else(|| {
                let states = ResultState::ALL.map(ResultState::word).join(", ");
                format!("has the unknown word {text:?}; known are state, fact, {states}")
            })?;
            if published.includes(state) {
                return Ok(state.word());
            }
            Err(format!(
                "has {state}, which workers do not publish: set results.publish to \"all\", or remove \
                 {state} from `kinds`"
            ))
        };
        Ok(Self { words: words.iter().map(word).collect::<Result<_, _>>()? })
    }

    /// Whether the webhook gets this result.
    #[must_use]
    pub fn include(&self, result: &PublishedResult) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| [&*result.state, &*result.kind].contains(word))
    }

    /// The words that the configuration chose. An empty list means all results.
    #[must_use]
    pub fn words(&self) -> &[&'static str] {
        &self.words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kinds_that_are_published_can_be_chosen() {
        let parse = |words: &[&str], published| WebhookFilter::parse(words, published);
        assert!(parse(&["paid", "state", "fact"], Published::All).is_ok());
        assert!(parse(&["refund_due", "fact"], Published::Exceptions).is_ok());
        assert!(parse(&[], Published::Exceptions).unwrap().words().is_empty());
        for (words, published, why) in [
            (&["paid"][..], Published::Exceptions, "has paid, which workers do not publish"),
            (&["payed"], Published::All, "the unknown word \"payed\""),
            (&[], Published::None, "results.publish is none"),
        ] {
            let error = parse(words, published).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn of_a_url_only_the_scheme_and_the_host_are_shown() {
        for (url, shown) in [
            ("https://chat.example/services/T0/B0/secret", "https://chat.example/***"),
            ("https://shop.example:8443/hooks?token=secret", "https://shop.example:8443/***"),
            ("https://shop.example?token=secret", "https://shop.example/***"),
            ("https://shop.example#secret", "https://shop.example/***"),
            ("http://[::1]:80/", "http://[::1]:80/"),
            ("https://shop.example", "https://shop.example/"),
            ("secret", "***"),
        ] {
            let url = WebhookUrl::new(url.to_owned());
            assert_eq!(url.to_string(), shown);
            assert_eq!(format!("{url:?}"), format!("{shown:?}"));
        }
    }
}
