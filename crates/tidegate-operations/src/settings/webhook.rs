//! The settings of webhooks: the URLs to which workers send the results of orders.

use std::{fmt, path::PathBuf};

use tidegate_orders::ResultFilter;

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
    pub kinds: ResultFilter,
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

#[cfg(test)]
mod tests {
    use super::*;

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
