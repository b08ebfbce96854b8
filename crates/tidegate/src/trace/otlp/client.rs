//! How spans travel: over HTTP, with the client that is there anyway.

use std::{
    error::Error,
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context;
use async_trait::async_trait;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response, hyper::HyperClient};
use opentelemetry_otlp::{
    OTEL_EXPORTER_OTLP_TIMEOUT, OTEL_EXPORTER_OTLP_TIMEOUT_DEFAULT, OTEL_EXPORTER_OTLP_TRACES_TIMEOUT,
    WithHttpConfig,
};
use tokio::runtime::Handle;

use crate::trace::variable;

/// Why the network failed the last time; the library says no more than that it did.
pub type Failure = Arc<Mutex<Option<String>>>;

/// Gives an exporter a client for this endpoint. TLS trusts the system's certificate authorities.
///
/// # Errors
/// When TLS is wanted and the system has none.
pub fn attach<B: WithHttpConfig>(builder: B, endpoint: &str, failure: &Failure) -> anyhow::Result<B> {
    if !endpoint.starts_with("https://") {
        return Ok(builder.with_http_client(Client::new(HttpConnector::new(), failure)));
    }
    let https = HttpsConnectorBuilder::new().with_native_roots().context(
        "Failed to find the system's certificate authorities, for traces (SSL_CERT_FILE names others)",
    )?;
    let connector = https.https_only().enable_http1().build();
    Ok(builder.with_http_client(Client::new(connector, failure)))
}

fn timeout() -> Duration {
    let variables = [OTEL_EXPORTER_OTLP_TRACES_TIMEOUT, OTEL_EXPORTER_OTLP_TIMEOUT];
    let given = variables.into_iter().find_map(|name| variable(name)?.parse().ok());
    given.map_or(OTEL_EXPORTER_OTLP_TIMEOUT_DEFAULT, Duration::from_millis)
}

/// The exporter works on a thread of its own, without a runtime, which the client needs.
#[derive(Debug)]
struct Client<C: Connect + Clone + Send + Sync + 'static> {
    client: HyperClient<C>,
    runtime: Handle,
    failure: Failure,
}

impl<C: Connect + Clone + Send + Sync + 'static> Client<C> {
    fn new(connector: C, failure: &Failure) -> Self {
        let client = HyperClient::new(connector, timeout(), None);
        Self { client, runtime: Handle::current(), failure: Arc::clone(failure) }
    }
}

#[async_trait]
impl<C> HttpClient for Client<C>
where
    C: Connect + Clone + Debug + Send + Sync + 'static,
    HyperClient<C>: HttpClient,
{
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let host = request.uri().host().unwrap_or_default().to_owned();
        let sent = self.runtime.spawn(async move { client.send_bytes(request).await }).await?;
        let why = sent.as_ref().err().map(|error| format!("{host}: {}", chain(error.as_ref())));
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = why;
        sent
    }
}

/// The outermost error says no more than that there was one.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut chain = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        chain.push_str(": ");
        chain.push_str(&cause.to_string());
        source = cause.source();
    }
    chain
}
