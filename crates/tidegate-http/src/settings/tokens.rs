//! The tokens (secrets) of the configuration: who may call the gate and the admin pages, and for what.

use std::{fmt, path::PathBuf, str::FromStr, sync::Arc};

/// A permission of a token: the kind of requests that a client with the token may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TokenScope {
    /// To place orders, and to read orders, vouchers and campaigns.
    Order,
    /// To report events of orders, such as payments.
    Event,
    /// To read orders, vouchers, campaigns, metrics and the admin pages.
    Read,
    /// To read the results of all orders.
    Results,
    /// To publish vouchers, whose sales begin later.
    Sell,
}

impl TokenScope {
    /// All scopes that a token can have.
    pub const ALL: [Self; 5] = [Self::Order, Self::Event, Self::Read, Self::Results, Self::Sell];

    /// The word for this scope in the configuration and in answers.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::Event => "event",
            Self::Read => "read",
            Self::Results => "results",
            Self::Sell => "sell",
        }
    }
}

impl FromStr for TokenScope {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|scope| scope.word() == word).ok_or(())
    }
}

/// The SHA-256 digest of a token, so that the configuration does not contain the token itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// The 32 bytes of the digest.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for TokenDigest {
    /// The digest is left out: a weak token can be guessed from its digest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenDigest(***)")
    }
}

impl FromStr for TokenDigest {
    type Err = &'static str;

    /// Parses a digest from 64 hexadecimal digits. More text may follow after a space, as the program `sha256sum` prints it.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "must be the 64 hexadecimal digits that `printf %s TOKEN | sha256sum` prints";
        let digits = text.split_whitespace().next().unwrap_or_default().as_bytes();
        let mut digest = [0; 32];
        if digits.len() != 2 * digest.len() {
            return Err(WRONG);
        }
        for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            let (high, low) = digit(0).zip(digit(1)).ok_or(WRONG)?;
            *byte = u8::try_from(high * 16 + low).map_err(|_| WRONG)?;
        }
        Ok(Self(digest))
    }
}

/// The place of a token's digest: the configuration itself, or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DigestSource {
    /// The configuration contains the digest.
    Given(TokenDigest),
    /// The file at this path contains the digest. The file is read again and again.
    File(PathBuf),
}

/// One entry of the list `[[tokens]]` in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenEntry {
    /// The name of the token in logs.
    pub name: String,
    /// The place of the token's digest.
    pub digest: DigestSource,
    /// The scopes of the token: the kinds of requests that it permits.
    pub scopes: Vec<TokenScope>,
}

/// A function that reads the list of tokens again from the configuration file.
pub type RereadTokens = Arc<dyn Fn() -> anyhow::Result<Vec<TokenEntry>> + Send + Sync>;

/// The list `[[tokens]]` of the configuration. If the list is empty at the start, clients need no token.
#[derive(Clone, Default)]
pub struct TokenSettings {
    /// The tokens at the start of the process.
    pub list: Vec<TokenEntry>,
    /// Reads the list again while the process runs. None: no file has the list, so it cannot change.
    pub reread: Option<RereadTokens>,
}

impl fmt::Debug for TokenSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSettings").field("list", &self.list).finish_non_exhaustive()
    }
}

impl TokenSettings {
    /// Whether a token of the list has this scope.
    #[must_use]
    pub fn has(&self, scope: TokenScope) -> bool {
        self.list.iter().any(|token| token.scopes.contains(&scope))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_what_sha256sum_prints_and_nothing_else() {
        let digits = "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90";
        let digest: TokenDigest = format!("{digits}  -\n").parse().unwrap();
        assert_eq!(digest.bytes()[..2], [0x2b, 0xd8]);
        assert_eq!(digest, digits.to_uppercase().parse().unwrap());
        assert!(!format!("{digest:?}").contains("2b"));
        for wrong in ["", "2bd8", &digits[1..], &digits.replace('2', "g"), &format!("{digits}0")] {
            assert!(wrong.parse::<TokenDigest>().is_err(), "{wrong}");
        }
    }
}
