//! The TLS of the gate, and the check of client certificates.

use std::{fs, io, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, anyhow, ensure};
use tidegate_compare::text::error_chain;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    time::timeout,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, CertificateError, RootCertStore, ServerConfig,
        client::verify_server_cert_signed_by_trust_anchor,
        crypto::ring,
        pki_types::{
            CertificateDer, PrivateKeyDer, UnixTime,
            pem::{self, PemObject},
        },
        server::{ParsedCertificate, WebPkiClientVerifier, danger::ClientCertVerifier},
    },
    server::TlsStream,
};

use super::client_stream::ClientStream;
use crate::settings::TlsSettings;

/// The first byte of a TLS connection: a record of a handshake. No HTTP method begins with it.
const HANDSHAKE: u8 = 22;
/// The largest size of a certificate file, in bytes.
const MOST_BYTES: u64 = 1 << 20;
/// The answer for a client that sends plain HTTP to a gate with TLS. Without it, the client would show an unreadable
/// error.
const PLAIN: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 35\r\n\
    Connection: close\r\n\r\nThe gate requires TLS: use https.\r\n";

/// The certificates of the gate, and their private key.
type OwnCertificate = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The TLS configuration for new connections, and the settings with the paths of the certificate files.
#[derive(Debug)]
pub struct Tls {
    settings: TlsSettings,
    shown: watch::Sender<Shown>,
}

/// The TLS configuration for new connections, and the time when its first certificate expires (Unix time in seconds).
#[derive(Clone, Debug)]
struct Shown {
    configuration: Arc<ServerConfig>,
    not_after: Option<u64>,
}

impl Tls {
    /// Reads the certificates and the private key for TLS.
    ///
    /// # Errors
    /// Fails if a file cannot be used. The error names the setting of the file.
    pub fn load(settings: &TlsSettings) -> anyhow::Result<Self> {
        let shown = watch::Sender::new(Shown::read(settings)?);
        Ok(Self { settings: settings.clone(), shown })
    }

    /// The time when the first of the gate's certificates expires, as Unix time in seconds.
    pub fn not_after(&self) -> Option<u64> {
        self.shown.borrow().not_after
    }

    /// Starts to listen for the signal SIGHUP, so that the signal does not end the process. The gate reads the
    /// certificate files again at each SIGHUP.
    ///
    /// # Errors
    /// Fails if the process cannot listen for signals.
    pub fn hangups() -> anyhow::Result<Signal> {
        signal(SignalKind::hangup()).context("Failed to listen for SIGHUP")
    }

    /// Reads the certificate files again at each SIGHUP, without end. Open connections keep their certificates.
    pub async fn follow(&self, mut hangups: Signal) {
        while hangups.recv().await.is_some() {
            match Shown::read(&self.settings) {
                Ok(shown) => {
                    self.shown.send_replace(shown);
                    tracing::info!("the gate has read its certificates again");
                }
                Err(error) => tracing::error!(
                    error = error_chain(&error),
                    "the gate could not read its certificates and keeps the previous certificates"
                ),
            }
        }
    }

    /// Performs the TLS handshake on a new connection.
    ///
    /// # Errors
    /// Fails if the handshake takes too long, the client does not speak TLS, or its certificate is refused.
    pub async fn accept(
        &self,
        client: ClientStream,
        within: Duration,
    ) -> Result<TlsStream<ClientStream>, NoTls> {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.shown.borrow().configuration));
        let accepting = async {
            match speaks_tls(&client).await? {
                true => acceptor.accept(client).await,
                false => refuse(client).await,
            }
        };
        let accepted = timeout(within, accepting).await;
        accepted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(NoTls::of)
    }
}

/// The reason why a TLS handshake failed.
#[derive(Debug, thiserror::Error)]
pub enum NoTls {
    /// The certificate of the client is invalid, with the reason.
    #[error("{0}")]
    Certificate(String),
    /// The client does not speak TLS, or closed the connection.
    #[error(transparent)]
    Other(io::Error),
}

impl NoTls {
    fn of(error: io::Error) -> Self {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        match cause {
            Some(cause @ (rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented)) => {
                Self::Certificate(readable(cause))
            }
            _ => Self::Other(error),
        }
    }
}

/// Makes an error readable. For certificates of X.509 version 1, the library only says that it does not support them.
fn readable(error: &rustls::Error) -> String {
    let text = error.to_string();
    if text.contains("UnsupportedCertVersion") {
        return "the certificate has version 1 of X.509: create a certificate of version 3, with extensions \
                (openssl x509 -req reads the extensions from -extfile)"
            .to_owned();
    }
    text
}

async fn speaks_tls(client: &ClientStream) -> io::Result<bool> {
    let mut first = [HANDSHAKE];
    client.peek(&mut first).await?;
    Ok(first == [HANDSHAKE])
}

async fn refuse(mut client: ClientStream) -> io::Result<TlsStream<ClientStream>> {
    // The request is read first: if a server closes a connection with unread data, the client may lose the answer.
    let _sent = client.read(&mut [0; 4096]).await?;
    client.write_all(PLAIN).await?;
    client.shutdown().await?;
    Err(io::Error::new(io::ErrorKind::InvalidData, "the client does not speak TLS"))
}

impl Shown {
    fn read(settings: &TlsSettings) -> anyhow::Result<Self> {
        let own = own_certificate(settings)?;
        let not_after = not_after(&own.0);
        Ok(Self { configuration: Arc::new(configuration(settings, own)?), not_after })
    }
}

fn own_certificate(settings: &TlsSettings) -> anyhow::Result<OwnCertificate> {
    let certificates = certificates(&settings.certificate, "gate.tls_cert")?;
    let key = PrivateKeyDer::from_pem_slice(&read(&settings.key, "gate.tls_key", "a private key")?)
        .map_err(|error| unusable(&settings.key, "gate.tls_key", "a private key", &error))?;
    Ok((certificates, key))
}

/// The certificate of the gate, if the gate accepts it also as the certificate of a client.
///
/// # Errors
/// Fails if a file cannot be used. The error names the setting of the file.
pub fn own_client_certificate(settings: &TlsSettings) -> anyhow::Result<Option<OwnCertificate>> {
    let own = own_certificate(settings)?;
    let verifier = verifier(settings.client_authorities.as_deref())?;
    let (first, others) = own.0.split_first().context("gate.tls_cert holds no certificates")?;
    let accepted = verifier.verify_client_cert(first, others, UnixTime::now());
    Ok(accepted.is_ok().then_some(own))
}

/// The time when the first of these certificates expires, as Unix time in seconds.
///
/// The library names the end of a certificate only when it refuses an expired one. So it checks each certificate at the
/// end of time; it checks the time before it looks for the authority.
fn not_after(certificates: &[CertificateDer<'_>]) -> Option<u64> {
    let end_of_time = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    let no_authorities = RootCertStore::empty();
    let ends = certificates.iter().filter_map(|certificate| {
        let parsed = ParsedCertificate::try_from(certificate).ok()?;
        match verify_server_cert_signed_by_trust_anchor(&parsed, &no_authorities, &[], end_of_time, &[]) {
            Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext {
                not_after, ..
            })) => Some(not_after.as_secs()),
            _ => None,
        }
    });
    ends.min()
}

fn configuration(
    settings: &TlsSettings,
    (certificates, key): OwnCertificate,
) -> anyhow::Result<ServerConfig> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("Failed to choose the TLS versions")?;
    let mut configuration = builder
        .with_client_cert_verifier(verifier(settings.client_authorities.as_deref())?)
        .with_single_cert(certificates, key)
        .map_err(|error| {
            let (certificate, key) = (settings.certificate.display(), settings.key.display());
            let failed = format!("Failed to use gate.tls_cert = {certificate} with gate.tls_key = {key}");
            match error {
                rustls::Error::InvalidCertificate(_) => anyhow!("{failed}: {}", readable(&error)),
                error => anyhow!("{failed}; set gate.tls_key to the key of this certificate: {error}"),
            }
        })?;
    configuration.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(configuration)
}

/// Creates the check of client certificates. Without authorities, the gate requests no certificate.
fn verifier(authorities: Option<&Path>) -> anyhow::Result<Arc<dyn ClientCertVerifier>> {
    let Some(path) = authorities else { return Ok(WebPkiClientVerifier::no_client_auth()) };
    let mut roots = RootCertStore::empty();
    for authority in certificates(path, "gate.tls_client_ca")? {
        roots
            .add(authority)
            .with_context(|| wrong_file(path, "gate.tls_client_ca", "certificates of authorities"))?;
    }
    let provider = Arc::new(ring::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .with_context(|| wrong_file(path, "gate.tls_client_ca", "certificates of authorities"))
}

fn certificates(path: &Path, setting: &str) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let unusable = |error| unusable(path, setting, "certificates", &error);
    let text = read(path, setting, "certificates")?;
    let read = CertificateDer::pem_slice_iter(&text).map(|read| read.map_err(unusable));
    let certificates: Vec<_> = read.collect::<Result<_, _>>()?;
    ensure!(
        !certificates.is_empty(),
        "{}: the file holds no certificates",
        wrong_file(path, setting, "certificates")
    );
    Ok(certificates)
}

/// Reads a regular file. A pipe or a device might never end.
fn read(path: &Path, setting: &str, what: &str) -> anyhow::Result<Vec<u8>> {
    let wrong = |why: &dyn std::fmt::Display| anyhow!("{}: {why}", wrong_file(path, setting, what));
    let known = fs::metadata(path).map_err(|error| wrong(&error))?;
    match known.is_file() && known.len() <= MOST_BYTES {
        true => fs::read(path).map_err(|error| wrong(&error)),
        false => Err(wrong(&"the file is not a regular file, or is larger than 1 MiB")),
    }
}

/// Describes an error of PEM parsing. The library's own text may show content of the file, which may be a key.
fn unusable(path: &Path, setting: &str, what: &str, error: &pem::Error) -> anyhow::Error {
    let why = match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "the file holds no matching PEM section".to_owned(),
        _ => "the file is not valid PEM".to_owned(),
    };
    anyhow!("{}: {why}", wrong_file(path, setting, what))
}

fn wrong_file(path: &Path, setting: &str, what: &str) -> String {
    format!(
        "Failed to read {setting} = {}; set it to a PEM file with {what} that the gate may read",
        path.display()
    )
}
