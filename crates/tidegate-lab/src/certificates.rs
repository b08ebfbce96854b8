//! TLS certificates for servers and clients.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// A new certificate authority, a certificate of it for `localhost` and 127.0.0.1, and one for a client. The files
/// exist as long as this value.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// Makes a new authority with its certificates.
    pub fn make() -> Result<Self> {
        let folder = TempDir::new().context("Failed to make a folder for certificates")?;
        let authority_key = KeyPair::generate()?;
        let mut authority = CertificateParams::new([])?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_pem = authority.self_signed(&authority_key)?.pem();
        let server_key = KeyPair::generate()?;
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let issuer = Issuer::new(authority, authority_key);
        let server_pem = CertificateParams::new(names)?.signed_by(&server_key, &issuer)?.pem();
        let client_key = KeyPair::generate()?;
        let client_pem =
            CertificateParams::new(["client".to_owned()])?.signed_by(&client_key, &issuer)?.pem();
        let files = Self { folder };
        for (path, pem) in [
            (files.authority(), authority_pem),
            (files.server(), server_pem),
            (files.server_key(), server_key.serialize_pem()),
            (files.client(), client_pem),
            (files.client_key(), client_key.serialize_pem()),
        ] {
            fs::write(path, pem).context("Failed to write a certificate")?;
        }
        Ok(files)
    }

    /// The certificate of the authority that a client has to trust (PEM).
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    /// The certificate of the server (PEM).
    pub fn server(&self) -> PathBuf {
        self.folder.path().join("server.pem")
    }

    /// The private key of the server (PEM, PKCS #8).
    pub fn server_key(&self) -> PathBuf {
        self.folder.path().join("server.key")
    }

    /// The certificate of the client (PEM).
    pub fn client(&self) -> PathBuf {
        self.folder.path().join("client.pem")
    }

    /// The private key of the client (PEM, PKCS #8).
    pub fn client_key(&self) -> PathBuf {
        self.folder.path().join("client.key")
    }
}
