//! A collector of traces, as OTLP over HTTP defines it: `POST /v1/traces` with an `ExportTraceServiceRequest` in
//! protobuf.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::Ipv4Addr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{AUTHORIZATION, CONTENT_TYPE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
pub use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::{
    collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
    common::v1::{AnyValue, KeyValue, any_value::Value},
    trace::v1::{Span, status::StatusCode as SpanStatus},
};
use prost::Message;
use tokio::{net::TcpListener, task::JoinSet};

use crate::{endpoint::Endpoint, ports::ReservedPort};

const PATH: &str = "/v1/traces";
const PROTOBUF: &str = "application/x-protobuf";

/// A collector that receives traces on 127.0.0.1 and keeps them. It can be stopped and restarted on the same port.
#[derive(Debug)]
pub struct Collector {
    port: ReservedPort,
    received: Arc<Mutex<Received>>,
    serving: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Received {
    spans: Vec<ReceivedSpan>,
    authorizations: Vec<Option<String>>,
    complaints: Vec<String>,
}

/// A received span in readable form: ids in hexadecimal, attributes as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedSpan {
    /// The id of its trace.
    pub trace: String,
    /// The id of the span.
    pub id: String,
    /// The id of its parent; empty if there is none.
    pub parent: String,
    /// The name of the span.
    pub name: String,
    /// The kind of the span.
    pub kind: SpanKind,
    /// The begin, in nanoseconds since 1970.
    pub began_ns: u64,
    /// The end, in nanoseconds since 1970.
    pub ended_ns: u64,
    /// The error message of the span, if it reports an error.
    pub error: Option<String>,
    /// The attributes of the span.
    pub attributes: BTreeMap<String, String>,
    /// The attributes of the program that sent the span.
    pub resource: BTreeMap<String, String>,
}

impl Collector {
    /// Starts a collector on a free port.
    pub async fn start() -> Result<Self> {
        let (port, received) = (ReservedPort::any()?, Arc::default());
        let mut collector = Self { port, received, serving: JoinSet::new() };
        collector.restart().await?;
        Ok(collector)
    }

    /// Listens again, on the same port.
    pub async fn restart(&mut self) -> Result<()> {
        self.stop().await;
        let address = (Ipv4Addr::LOCALHOST, self.port.number);
        let listener = TcpListener::bind(address).await.context("Failed to listen for traces")?;
        self.serving.spawn(serve(listener, Arc::clone(&self.received)));
        Ok(())
    }

    /// Stops listening, and closes open connections: new ones are refused. The received spans are kept.
    pub async fn stop(&mut self) {
        self.serving.shutdown().await;
    }

    /// The received spans, in the order of arrival.
    #[must_use]
    pub fn spans(&self) -> Vec<ReceivedSpan> {
        self.received().spans.clone()
    }

    /// The authorization header of each request; None if it had none.
    #[must_use]
    pub fn authorizations(&self) -> Vec<Option<String>> {
        self.received().authorizations.clone()
    }

    /// The errors that were found in requests.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        self.received().complaints.clone()
    }

    fn received(&self) -> MutexGuard<'_, Received> {
        lock(&self.received)
    }
}

impl Endpoint for Collector {
    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port.number)
    }

    fn port(&self) -> u16 {
        self.port.number
    }
}

fn lock(received: &Mutex<Received>) -> MutexGuard<'_, Received> {
    received.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Accepts connections, which end with this task.
async fn serve(listener: TcpListener, received: Arc<Mutex<Received>>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let received = Arc::clone(&received);
        connections.spawn(async move {
            let service = service_fn(async |request| Ok::<_, Infallible>(answer(request, &received).await));
            // A client that closes its connection is no error.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(client), service).await;
        });
    }
}

async fn answer(request: Request<Incoming>, received: &Mutex<Received>) -> Response<Full<Bytes>> {
    let authorization = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    lock(received).authorizations.push(authorization.map(str::to_owned));
    match take(request).await {
        Ok(spans) => {
            lock(received).spans.extend(spans);
            let body = ExportTraceServiceResponse { partial_success: None }.encode_to_vec();
            let response = Response::builder().header(CONTENT_TYPE, PROTOBUF);
            response.body(Full::from(body)).expect("a response")
        }
        Err(complaint) => {
            lock(received).complaints.push(complaint.clone());
            let response = Response::builder().status(StatusCode::BAD_REQUEST);
            response.body(Full::from(complaint)).expect("a response")
        }
    }
}

async fn take(request: Request<Incoming>) -> Result<Vec<ReceivedSpan>, String> {
    let content_type = request.headers().get(CONTENT_TYPE).cloned();
    if (request.method(), request.uri().path()) != (&Method::POST, PATH) {
        return Err(format!("{} {} is not POST {PATH}", request.method(), request.uri()));
    }
    if content_type.as_ref().is_none_or(|value| value != PROTOBUF) {
        return Err(format!("{content_type:?} is not {PROTOBUF}"));
    }
    let body = request.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
    let request = ExportTraceServiceRequest::decode(body).map_err(|error| error.to_string())?;
    let mut spans = Vec::new();
    for of_resource in request.resource_spans {
        let resource = text_of_all(of_resource.resource.unwrap_or_default().attributes);
        let all = of_resource.scope_spans.into_iter().flat_map(|of_scope| of_scope.spans);
        spans.extend(all.map(|span| received_span(span, resource.clone())));
    }
    Ok(spans)
}

fn received_span(span: Span, resource: BTreeMap<String, String>) -> ReceivedSpan {
    let kind = span.kind();
    let status = span.status.unwrap_or_default();
    let error = (status.code() == SpanStatus::Error).then(|| status.message.clone());
    ReceivedSpan {
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        name: span.name,
        kind,
        began_ns: span.start_time_unix_nano,
        ended_ns: span.end_time_unix_nano,
        error,
        attributes: text_of_all(span.attributes),
        resource,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text_of_all(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    attributes.into_iter().map(|attribute| (attribute.key, text_of(attribute.value))).collect()
}

fn text_of(value: Option<AnyValue>) -> String {
    match value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(is)) => is.to_string(),
        other => format!("{other:?}"),
    }
}
