//! The client that asks the gate on this machine whether it is alive or ready.
//!
//! Over TLS, the client accepts any certificate whose private key the gate has: a certificate names the host that callers
//! use, not this address. The client sends no secret.

use std::{io, net::SocketAddr, sync::Arc};

use anyhow::Context;
use hyper::body::Bytes;
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    rustls::{
        self, CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature},
        pki_types::{CertificateDer, ServerName, UnixTime},
    },
};

use super::tls;
use crate::{
    admin_client::{self, StatusCode},
    settings::{GateSettings, TlsSettings},
};

/// Requests a page of the gate with these settings, at this address. None: the gate answers only clients with a
/// certificate of `gate.tls_client_ca`, and would refuse its own. The gate has begun a handshake, so it is alive.
///
/// # Errors
/// Fails if no such gate answers on the address.
pub async fn ask(
    settings: &GateSettings,
    address: SocketAddr,
    path: &str,
) -> anyhow::Result<Option<(StatusCode, Bytes)>> {
    let Some(tls) = &settings.tls else { return admin_client::ask(address, path, None).await.map(Some) };
    let connector = TlsConnector::from(Arc::new(configuration(tls)?));
    let stream = TcpStream::connect(address).await?;
    match connector.connect(ServerName::from(address.ip()), stream).await {
        Ok(encrypted) => admin_client::ask_on(encrypted, address, path, None).await.map(Some),
        Err(error) if is_own_end(&error) => Ok(None),
        Err(error) => Err(error).context("Failed to make a TLS connection"),
    }
}

/// The TLS configuration of the client. If the gate requires a certificate, the client sends the gate's own certificate.
/// If the gate would refuse this certificate, the handshake ends before, and the gate logs no refusal.
fn configuration(settings: &TlsSettings) -> anyhow::Result<ClientConfig> {
    let own = settings.client_authorities.is_some().then(|| tls::own_client_certificate(settings));
    let own = own.transpose()?;
    let provider = Arc::new(ring::default_provider());
    let verdict = match own {
        // The gate cannot cause this error.
        Some(None) => Err(CertificateError::ApplicationVerificationFailure),
        _ => Ok(()),
    };
    let algorithms = provider.signature_verification_algorithms;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("Failed to choose the TLS versions")?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate { algorithms, verdict }));
    match own.flatten() {
        Some((chain, key)) => {
            builder.with_client_auth_cert(chain, key).context("Failed to use the certificate of the gate")
        }
        None => Ok(builder.with_no_client_auth()),
    }
}

/// Whether the client itself ended the handshake, because the gate would refuse its certificate.
fn is_own_end(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    matches!(cause, Some(rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)))
}

/// A check that accepts any certificate whose private key the server has, or ends the handshake when the server has
/// sent its certificate.
#[derive(Debug)]
struct AnyCertificate {
    algorithms: WebPkiSupportedAlgorithms,
    verdict: Result<(), CertificateError>,
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verdict.clone()?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
