//! The signatures of webhooks, by the specification Standard Webhooks.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context, ensure};
use standardwebhooks::Webhook;
use tidegate_compare::text::error_chain;
use tidegate_orders::{PublishedResult, results::BURIED};

use crate::secret_file;

/// The text before every secret.
const PREFIX: &str = "whsec_";
/// The least length of a secret after its prefix: 24 bytes in base64.
const LEAST: usize = 32;

/// The secrets of a webhook. While a secret is replaced, the file has two secrets, and both sign.
pub struct Signer {
    path: PathBuf,
    secrets: Mutex<Secrets>,
}

struct Secrets {
    text: String,
    webhooks: Vec<Webhook>,
    /// The last error of a read, which was logged.
    logged: Option<String>,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Signer {
    /// Reads the secrets of the webhook `name` from a file. If the file cannot be read, or does not have one or two
    /// secrets, the webhook has no secrets until [`Signer::reread`] succeeds: orders do not depend on it.
    #[must_use]
    pub fn open(name: &str, path: &Path) -> Self {
        let secrets = Secrets::read(path).unwrap_or_else(|error| {
            let error = error_chain(&error);
            tracing::error!(
                name,
                error,
                "cannot read the secrets of the webhook: the webhook sends nothing until the file has a secret"
            );
            Secrets { text: String::new(), webhooks: Vec::new(), logged: Some(error) }
        });
        Self { path: path.to_owned(), secrets: Mutex::new(secrets) }
    }

    /// Whether the webhook has a secret, without which it must send nothing.
    #[must_use]
    pub fn has_secret(&self) -> bool {
        !self.secrets().webhooks.is_empty()
    }

    /// Reads the file with the secrets again. If it has a mistake, the present secrets stay.
    pub fn reread(&self) {
        let read = Secrets::read(&self.path);
        let mut secrets = self.secrets();
        match read {
            Ok(new) if new.text != secrets.text => {
                tracing::info!(secrets = new.webhooks.len(), "read the secrets of the webhook again");
                *secrets = new;
            }
            Ok(_) => secrets.logged = None,
            Err(error) => {
                let error = error_chain(&error);
                if secrets.logged.as_ref() != Some(&error) {
                    tracing::warn!(
                        error,
                        "cannot read the secrets of the webhook again: the former secrets stay in use"
                    );
                    secrets.logged = Some(error);
                }
            }
        }
    }

    /// The value of the header `webhook-signature`: a signature by each secret.
    #[must_use]
    pub fn sign(&self, id: &str, timestamp_s: i64, body: &[u8]) -> String {
        let secrets = self.secrets();
        let signatures = secrets
            .webhooks
            .iter()
            .map(|webhook| webhook.sign(id, timestamp_s, body).expect("the body is JSON, and so UTF-8"));
        signatures.collect::<Vec<_>>().join(" ")
    }

    fn secrets(&self) -> MutexGuard<'_, Secrets> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Secrets {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let text = secret_file::read(path)
            .with_context(|| format!("Failed to read the secrets in {}", path.display()))?;
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        ensure!(
            (1..=2).contains(&lines.len()),
            "{} must have one or two lines, each with a secret",
            path.display()
        );
        let secret = |line: &&str| {
            let secret = line.strip_prefix(PREFIX).filter(|secret| secret.len() >= LEAST)?;
            Webhook::new(secret).ok()
        };
        let webhooks = lines.iter().map(secret).collect::<Option<Vec<_>>>().with_context(|| {
            format!("each secret in {} must be {PREFIX} and at least 24 bytes in base64", path.display())
        })?;
        Ok(Self { text, webhooks, logged: None })
    }
}

/// The value of the header `webhook-id`: the order, the step, the state, and the `ref` of the event or else the entry.
/// Repeated results have the same id. The id consists of letters, digits, `_`, `-` and `~`, even for states of later
/// versions.
///
/// Events that are moved to the dead letters have no step of their own, and two events of an order may have the same
/// `ref`: a refund that began and a refund that is made. So their ids have the entry.
#[must_use]
pub fn webhook_id(result: &PublishedResult) -> String {
    let PublishedResult { order, step, state, .. } = result;
    let state = state.split('_').map(escaped).collect::<Vec<_>>().join("_");
    match result.reference.as_ref().filter(|_| *step != BURIED) {
        Some(reference) => format!("{order}_{step}_{state}_ref-{}", escaped(reference)),
        None => format!("{order}_{step}_{state}_entry-{}", result.entry),
    }
}

/// Replaces every byte that is not a letter, a digit or `-` by `~` and two digits.
fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut escaped, byte| {
        match byte.is_ascii_alphanumeric() || byte == b'-' {
            true => escaped.push(char::from(byte)),
            false => escaped.push_str(&format!("~{byte:02x}")),
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        time::{SystemTime, UNIX_EPOCH},
    };

    use hyper::HeaderMap;
    use tidegate_stream::EntryId;

    use super::*;

    const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const NEW: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

    fn file(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tidegate-signer-{}-{name}", std::process::id()));
        fs::write(&path, text).unwrap();
        path
    }

    fn result(reference: Option<&str>) -> PublishedResult {
        PublishedResult {
            order: 7.try_into().unwrap(),
            state: "refund_due".to_owned(),
            kind: "fact".to_owned(),
            reference: reference.map(str::to_owned),
            step: 3,
            entry: EntryId { ms: 8, seq: 1 },
            json: Box::default(),
        }
    }

    #[test]
    fn while_a_secret_is_replaced_receivers_with_either_secret_accept_the_signature() {
        let path = file("rotation", &format!("{OLD}\n"));
        let signer = Signer::open("shop", &path);
        let now_s = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap();
        let accepted = |secret: &str| {
            let headers = [
                ("webhook-id", "id-1".to_owned()),
                ("webhook-timestamp", now_s.to_string()),
                ("webhook-signature", signer.sign("id-1", now_s, b"{}")),
            ];
            let headers: HeaderMap = headers
                .into_iter()
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
                .collect();
            Webhook::new(secret).unwrap().verify(b"{}", &headers).is_ok()
        };
        assert_eq!((accepted(OLD), accepted(NEW)), (true, false));
        fs::write(&path, format!("{NEW}\n{OLD}\n")).unwrap();
        signer.reread();
        assert_eq!((accepted(OLD), accepted(NEW)), (true, true));
        fs::write(&path, "nonsense").unwrap();
        signer.reread();
        assert_eq!((accepted(OLD), accepted(NEW)), (true, true));
        fs::write(&path, NEW).unwrap();
        signer.reread();
        assert_eq!((accepted(OLD), accepted(NEW)), (false, true));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_has_one_or_two_secrets_and_errors_do_not_show_them() {
        let short = "whsec_c2hvcnQ=";
        for wrong in [
            "",
            "\n\n",
            &format!("{OLD}\n{NEW}\n{OLD}"),
            short,
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_!!",
        ] {
            let path = file("wrong", wrong);
            let error = error_chain(&Secrets::read(&path).err().unwrap());
            assert!(!Signer::open("shop", &path).has_secret());
            assert!(
                error.contains("secret") && !error.contains("MfKQ") && !error.contains("c2hv"),
                "{error}"
            );
            fs::remove_file(path).unwrap();
        }
        let signer = Signer::open("shop", &file("debug", OLD));
        assert!(!format!("{signer:?}").contains("MfKQ"));
    }

    #[test]
    fn a_file_that_is_missing_at_first_is_used_when_it_comes() {
        let path = file("late", "");
        fs::remove_file(&path).unwrap();
        let signer = Signer::open("shop", &path);
        assert!(!signer.has_secret());
        signer.reread();
        assert!(!signer.has_secret());
        fs::write(&path, OLD).unwrap();
        signer.reread();
        assert!(signer.has_secret());
        fs::remove_file(&path).unwrap();
        signer.reread();
        assert!(signer.has_secret(), "the former secrets stay");
    }

    #[test]
    fn repeats_of_a_result_share_the_id_and_other_results_do_not() {
        let paid = |reference| webhook_id(&result(Some(reference)));
        assert_eq!(webhook_id(&result(None)), "7_3_refund_due_entry-8-1");
        assert_eq!(paid("pay-1"), "7_3_refund_due_ref-pay-1");
        assert_eq!(paid("a b"), "7_3_refund_due_ref-a~20b");
        assert_ne!(paid("a~20b"), paid("a b"));
        let later = PublishedResult { entry: EntryId { ms: 9, seq: 0 }, ..result(Some("pay-1")) };
        assert_eq!(webhook_id(&later), paid("pay-1"), "the same event again");
        let unknown = PublishedResult { state: "sent_\nö".to_owned(), ..result(None) };
        assert_eq!(webhook_id(&unknown), "7_3_sent_~0a~c3~b6_entry-8-1");
    }

    #[test]
    fn two_events_among_the_dead_letters_have_two_ids_although_they_have_one_ref() {
        let buried = |seq| PublishedResult {
            state: "rejected".to_owned(),
            step: BURIED,
            entry: EntryId { ms: 8, seq },
            ..result(Some("r-1"))
        };
        assert_eq!(webhook_id(&buried(1)), "7_-1_rejected_entry-8-1");
        assert_ne!(webhook_id(&buried(1)), webhook_id(&buried(2)));
    }
}
