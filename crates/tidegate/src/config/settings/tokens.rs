//! The list `[[tokens]]`: the clients of the gate and of the admin pages.

use std::{path::PathBuf, sync::Arc};

use tidegate_http::{DigestSource, RereadTokens, TokenEntry, TokenScope, TokenSettings};
use toml::{Table, Value};

use crate::config::{InvalidConfig, list_entry::ListEntry, reader::SettingsReader};

/// The key of the list of tokens.
pub(super) const KEY: &str = "tokens";

/// Reads the list of tokens. While the process runs, the list is read again from the files that it comes from. Mistakes
/// in other settings of the configuration file do not matter then.
pub(super) fn read(reader: &mut SettingsReader<'_>) -> TokenSettings {
    let list = list(reader);
    let reread = reader.reread(KEY).map(|reread| {
        Arc::new(move || {
            let layers = reread()?;
            let mut reader = SettingsReader::new(&layers);
            let (tokens, problems) = (self::list(&mut reader), reader.into_problems());
            if problems.is_empty() { Ok(tokens) } else { Err(InvalidConfig(problems).into()) }
        }) as RereadTokens
    });
    TokenSettings { list, reread }
}

fn list(reader: &mut SettingsReader<'_>) -> Vec<TokenEntry> {
    let mut tokens: Vec<TokenEntry> = Vec::new();
    reader.entries(KEY, of_text, |entry| {
        let token = token(entry)?;
        if matches!(token.digest, DigestSource::Given(_))
            && tokens.iter().any(|other| other.digest == token.digest)
        {
            return entry
                .wrong("sha256", "is the digest of another token, too: give each client its own token");
        }
        tokens.push(token);
        Some(())
    });
    tokens
}

fn token(entry: &mut ListEntry) -> Option<TokenEntry> {
    let name = entry.name();
    let given = entry.text("sha256").map(|digits| {
        digits.parse().map(DigestSource::Given).or_else(|why: &str| entry.wrong("sha256", why).ok_or(()))
    });
    let file = entry.text("sha256_file").map(PathBuf::from).map(DigestSource::File);
    let digest = match (given, file) {
        (Some(_), Some(_)) => entry.wrong("sha256_file", "must not be set together with `sha256`"),
        (Some(given), None) => given.ok(),
        (None, Some(file)) => Some(file),
        (None, None) => entry.missing("sha256` or `sha256_file"),
    };
    let scopes = scopes(entry);
    Some(TokenEntry { name: name?, digest: digest?, scopes: scopes? })
}

fn scopes(entry: &mut ListEntry) -> Option<Vec<TokenScope>> {
    let Some(words) = entry.words("scopes") else { return entry.missing("scopes") };
    let scopes: Result<Vec<TokenScope>, ()> = words.iter().map(|word| word.parse()).collect();
    match scopes {
        Ok(scopes) if !scopes.is_empty() => Some(scopes),
        _ => {
            let known = TokenScope::ALL.map(TokenScope::word).join(", ");
            entry.wrong("scopes", format!("must list at least one of {known}"))
        }
    }
}

/// Converts a token from a variable or a flag, such as `shop:order+event:DIGEST`.
fn of_text(text: &str) -> Result<Table, &'static str> {
    let [name, scopes, digest] = text.split(':').collect::<Vec<_>>()[..] else {
        return Err("must be NAME:SCOPE+SCOPE:SHA256, such as shop:order+event:2bd806c9...");
    };
    let scopes = scopes.split('+').map(Value::from).collect::<Vec<_>>();
    Ok(Table::from_iter([
        ("name".to_owned(), name.into()),
        ("scopes".to_owned(), scopes.into()),
        ("sha256".to_owned(), digest.into()),
    ]))
}
