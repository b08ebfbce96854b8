//! URLs whose secrets never reach a log, an error message or a screen.

use std::fmt;

/// The text `***` that is shown instead of a secret.
pub const HIDDEN: &str = "***";

/// A URL that shows its passwords as `***`, in `Display`, in `Debug` and in error messages.
#[derive(Clone, PartialEq, Eq)]
pub struct RedactedUrl(String);

impl RedactedUrl {
    /// Creates a redacted URL from a text that need not be a valid URL.
    pub fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    /// Returns the URL with its passwords. Use the result only for the client library, and never log it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns whether the URL contains no secret, so that it is shown completely.
    pub fn hides_nothing(&self) -> bool {
        // An `@` in the query may belong to a password: to the one before the query, or to one in it.
        let has_plain_query = self.0.split_once('?').is_none_or(|(_, query)| !query.contains('@'));
        has_plain_query && self.to_string() == self.0
    }

    /// Returns whether the URL has no secret, so that logs may show the whole URL.
    pub fn holds_no_secret(&self) -> bool {
        !self.0.contains('@') && !self.0.contains('?') && self.0.contains("://")
    }
}

impl fmt::Display for RedactedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without a scheme, it is unknown which part is the password.
        let Some((scheme, rest)) = self.0.split_once("://") else { return f.write_str(HIDDEN) };
        write!(f, "{scheme}://")?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        // The query has an unescaped `@`: either a password of the query has it, or the other password has an unescaped
        // `?`. It is unknown which part is secret.
        if query.contains('@') {
            return f.write_str(HIDDEN);
        }
        // The last `@` counts, because the password may contain an unescaped one.
        let address = match rest.rsplit_once('@') {
            Some((user_info, address)) => {
                match user_info.split_once(':') {
                    Some((user, _)) => write!(f, "{user}:***@")?,
                    // Some operators write redis://PASSWORD@host.
                    None if scheme.starts_with("redis") => f.write_str("***@")?,
                    None => write!(f, "{user_info}@")?,
                }
                address
            }
            None => rest,
        };
        f.write_str(address)?;
        let mut separator = '?';
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some((name, _)) if is_secret(name) => write!(f, "{separator}{name}=***")?,
                _ => write!(f, "{separator}{parameter}")?,
            }
            separator = '&';
        }
        Ok(())
    }
}

impl fmt::Debug for RedactedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn is_secret(parameter: &str) -> bool {
    let parameter = parameter.to_ascii_lowercase();
    ["pass", "secret", "token", "auth"].iter().any(|word| parameter.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hidden_wherever_a_url_may_hold_them() {
        for (url, shown) in [
            ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
            ("redis://:hunter2@host:6379/0", "redis://:***@host:6379/0"),
            ("rediss://app:hunter2@host/0", "rediss://app:***@host/0"),
            ("redis://hunter2@host", "redis://***@host"),
            ("mysql://root@host/hmdp", "mysql://root@host/hmdp"),
            ("mysql://root@host/hmdp?ssl-mode=disabled", "mysql://root@host/hmdp?ssl-mode=disabled"),
            ("mysql://root:hun@ter2/x@host/hmdp", "mysql://root:***@host/hmdp"),
            (
                "redis-sentinel://a:hunter2@h:1/0?sentinelServiceName=m&sentinelPassword=hunter2&node=b:2",
                "redis-sentinel://a:***@h:1/0?sentinelServiceName=m&sentinelPassword=***&node=b:2",
            ),
            (
                "redis-sentinel://h:1/0?sentinelServiceName=m&sentinelPassword=hun@ter2",
                "redis-sentinel://***",
            ),
            ("redis-sentinel://a:hunter2@h:1/0?sentinelPassword=hun@ter2&node=b:2", "redis-sentinel://***"),
            ("mysql://root:12?hunter2@host/hmdp", "mysql://***"),
            ("mysql://root:hun@12?hunter2@host/hmdp", "mysql://***"),
            ("root:hunter2@host/hmdp", "***"),
            ("hunter2", "***"),
        ] {
            assert_eq!(RedactedUrl::new(url).to_string(), shown, "{url}");
            assert_eq!(format!("{:?}", RedactedUrl::new(url)), shown, "{url}");
            assert_eq!(RedactedUrl::new(url).hides_nothing(), shown == url, "{url}");
        }
    }
}
