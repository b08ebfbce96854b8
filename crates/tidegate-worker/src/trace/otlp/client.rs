//! The HTTP client that sends spans, from a library that the program uses anyway.

use std::{
    error::Error,
    fmt::Debug,
    io, mem,
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
use tokio::runtime::{Builder, Handle};

use crate::trace::variable;

/// The shared text about the last network failure, because the OpenTelemetry library does not report the reason of a
/// failure.
pub type Failure = Arc<Mutex<Option<String>>>;

/// Creates an HTTP client for the collector at `endpoint`, and adds the client to the exporter. TLS trusts the system's
/// certificate authorities.
///
/// # Errors
/// Fails if the endpoint needs TLS and the system has no authorities, or if the system refuses a thread.
pub fn attach<B: WithHttpConfig>(builder: B, endpoint: &str, failure: &Failure) -> anyhow::Result<B> {
    let runtime = runtime().context("Failed to start a thread that sends traces")?;
    if !endpoint.starts_with("https://") {
        return Ok(builder.with_http_client(Client::new(HttpConnector::new(), runtime, failure)));
    }
    let https = HttpsConnectorBuilder::new().with_native_roots().context(
        "Failed to find the system's certificate authorities for traces; set SSL_CERT_FILE to a PEM file",
    )?;
    let connector = https.https_only().enable_http1().build();
    Ok(builder.with_http_client(Client::new(connector, runtime, failure)))
}

/// Creates a runtime for the client. It is not the runtime of the lanes: a name lookup holds a thread until the system
/// gives up, and a runtime that ends waits for such threads. This runtime never ends, so the process does not wait for
/// a name server.
fn runtime() -> io::Result<Handle> {
    let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("traces").enable_all().build()?;
    let handle = runtime.handle().clone();
    mem::forget(runtime);
    Ok(handle)
}

fn timeout() -> Duration {
    let variables = [OTEL_EXPORTER_OTLP_TRACES_TIMEOUT, OTEL_EXPORTER_OTLP_TIMEOUT];
    let given = variables.into_iter().find_map(|name| variable(name)?.parse().ok());
    given.map_or(OTEL_EXPORTER_OTLP_TIMEOUT_DEFAULT, Duration::from_millis)
}

/// An HTTP client that works on its own runtime. The exporter has a thread without a runtime, and the client needs
/// one.
#[derive(Debug)]
struct Client<C: Connect + Clone + Send + Sync + 'static> {
    client: HyperClient<C>,
    runtime: Handle,
    failure: Failure,
}

impl<C: Connect + Clone + Send + Sync + 'static> Client<C> {
    fn new(connector: C, runtime: Handle, failure: &Failure) -> Self {
        let client = HyperClient::new(connector, timeout(), None);
        Self { client, runtime, failure: Arc::clone(failure) }
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

/// The text of an error with all its sources. The outermost error only says that there was one.
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
