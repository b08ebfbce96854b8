//! The traces that OpenTelemetry's library creates and sends, in the background and from a bounded queue.

mod client;
mod exporter;
mod lane;
mod permits;
mod span;

use std::{sync::Arc, time::Duration};

use opentelemetry::{KeyValue, trace::TracerProvider};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::{
    Resource,
    resource::{EnvResourceDetector, TelemetryResourceDetector},
    trace::{BatchConfigBuilder, BatchSpanProcessor, OTEL_BSP_MAX_QUEUE_SIZE, Sampler, SdkTracerProvider},
};
use tidegate_operations::InvalidInput;
use tidegate_orders::OrderHandler;
use tidegate_stream::Observer;
use tokio::sync::oneshot;

use self::{
    client::Failure, exporter::LoggingExporter, lane::LaneTrace, permits::SpanPermits, span::OrderSpans,
};
use super::variable;
use crate::settings::ProcessSettings;

/// The largest number of spans that wait to be sent: two full batches in which every order is traced. The library's
/// default of 2048 is too small for one such batch.
const QUEUE: usize = 8192;
/// The samplers that the library knows. It silently replaces any other value.
const SAMPLERS: [&str; 6] = [
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
];
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
/// The longest wait for the last spans at a stop.
const FINISH_WITHIN: Duration = Duration::from_secs(5);

/// The code that creates OpenTelemetry traces of orders, and sends them to a collector.
#[derive(Debug)]
pub struct Traces {
    provider: SdkTracerProvider,
    spans: OrderSpans,
    permits: Arc<SpanPermits>,
    /// Whether the sampler also decides on orders without a sampled parent.
    asks_sampler: bool,
}

impl Traces {
    /// Starts to send traces if an environment variable names a collector. Orders never wait for the collector.
    ///
    /// # Errors
    /// Fails if a variable has a value that is not supported.
    pub fn start(settings: &ProcessSettings) -> anyhow::Result<Option<Self>> {
        let Some(endpoint) = super::wanted_by() else { return Ok(None) };
        let sampler = sampler()?;
        check_protocol()?;
        let (failure, builder) = (Failure::default(), SpanExporter::builder().with_http());
        let exporter =
            client::attach(builder, &variable(endpoint).unwrap_or_default(), &failure)?.build().map_err(
                |error| InvalidInput(format!("Traces cannot be sent to the URL in {endpoint}: {error}")),
            )?;
        let queue = variable(OTEL_BSP_MAX_QUEUE_SIZE).and_then(|size| size.parse().ok()).unwrap_or(QUEUE);
        let permits = Arc::new(SpanPermits::new(queue));
        let processor =
            BatchSpanProcessor::builder(LoggingExporter::new(exporter, Arc::clone(&permits), failure))
                .with_batch_config(BatchConfigBuilder::default().with_max_queue_size(queue).build())
                .build();
        let asks_sampler = sampler.is_none();
        let mut builder = SdkTracerProvider::builder()
            .with_resource(resource(&settings.worker.name))
            .with_span_processor(processor);
        if let Some(sampler) = sampler {
            builder = builder.with_sampler(sampler);
        }
        let provider = builder.build();
        // The drop of the last provider would wait for the collector, even if the process has to end at once. So it is
        // never dropped.
        std::mem::forget(provider.clone());
        let spans = OrderSpans::new(
            provider.tracer("tidegate"),
            settings.system.stream_names(),
            settings.system.keys.fields.clone(),
        );
        tracing::info!(variable = endpoint, "traces of orders are sent");
        Ok(Some(Self { provider, spans, permits, asks_sampler }))
    }

    /// Adds traces to one lane, a consumer within the worker. Returns the handler and the observer that only this lane
    /// may use.
    pub fn watch(&self, handler: OrderHandler) -> (OrderHandler, Arc<dyn Observer>) {
        let lane = Arc::new(LaneTrace::new(self.spans.clone(), Arc::clone(&self.permits), self.asks_sampler));
        (handler.traced_by(lane.clone()), lane)
    }

    /// Sends the remaining trace spans before the process ends, and takes at most `within`.
    pub async fn finish(&self, within: Duration) {
        let within = within.min(FINISH_WITHIN);
        let (done, finished) = oneshot::channel();
        let provider = self.provider.clone();
        // This is no thread of the runtime: a runtime that ends waits for its own threads.
        std::thread::spawn(move || done.send(provider.shutdown_with_timeout(within).is_ok()));
        if !finished.await.unwrap_or(false) {
            let spans = self.permits.unsent();
            tracing::warn!(spans, "the last traces were not sent before the process ended");
        }
    }
}

/// The sampler that follows the producer's decision and ignores orders without a trace. None: a variable names another
/// sampler.
fn sampler() -> Result<Option<Sampler>, InvalidInput> {
    match variable("OTEL_TRACES_SAMPLER") {
        None => Ok(Some(Sampler::ParentBased(Box::new(Sampler::AlwaysOff)))),
        Some(name) if SAMPLERS.contains(&name.as_str()) => Ok(None),
        Some(name) => {
            let known = SAMPLERS.join(", ");
            Err(InvalidInput(format!("OTEL_TRACES_SAMPLER is {name:?}, but must be one of {known}")))
        }
    }
}

fn check_protocol() -> Result<(), InvalidInput> {
    let wanted = PROTOCOLS.into_iter().find_map(|name| Some((name, variable(name)?)));
    match wanted {
        Some((name, protocol)) if protocol != "http/protobuf" => Err(InvalidInput(format!(
            "{name} is {protocol:?}, but traces are sent as http/protobuf only (most collectors listen on port 4318)"
        ))),
        _ => Ok(()),
    }
}

/// The attributes of the sender. Values from variables replace the known ones.
fn resource(worker: &str) -> Resource {
    let known = [
        KeyValue::new("service.name", "tidegate"),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("service.instance.id", worker.to_owned()),
    ];
    let resource = Resource::builder_empty().with_attributes(known);
    let resource =
        resource.with_detectors(&[Box::new(TelemetryResourceDetector), Box::new(EnvResourceDetector::new())]);
    match variable("OTEL_SERVICE_NAME") {
        Some(name) => resource.with_service_name(name).build(),
        None => resource.build(),
    }
}
