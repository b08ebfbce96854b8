//! The log lines for an outage of the collector: one at its start and one at its end. The library would log every
//! failed attempt.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use opentelemetry_sdk::{
    Resource,
    error::{OTelSdkError, OTelSdkResult},
    trace::{SpanData, SpanExporter},
};

use super::{
    client::Failure,
    permits::{LOG_EVERY, SpanPermits},
};

/// An exporter of trace spans that logs its errors instead of returning them. Spans that cannot be sent are lost.
#[derive(Debug)]
pub struct LoggingExporter<E> {
    exporter: E,
    permits: Arc<SpanPermits>,
    failure: Failure,
    trouble: Mutex<Trouble>,
}

#[derive(Debug, Default)]
struct Trouble {
    told: Option<Instant>,
    is_open: bool,
    lost: usize,
}

impl<E> LoggingExporter<E> {
    /// Creates an exporter that frees the queue permits of the spans that it sends. `failure` contains the reason for
    /// the last network failure.
    pub fn new(exporter: E, permits: Arc<SpanPermits>, failure: Failure) -> Self {
        Self { exporter, permits, failure, trouble: Mutex::default() }
    }

    fn why(&self, error: &OTelSdkError) -> String {
        let network = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        network.unwrap_or_else(|| match error {
            OTelSdkError::InternalFailure(what) => what.clone(),
            other => other.to_string(),
        })
    }

    fn tell(&self, result: OTelSdkResult, spans: usize) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(()) if trouble.is_open => {
                tracing::info!(lost = trouble.lost, "traces are sent again");
                (trouble.is_open, trouble.lost) = (false, 0);
            }
            Ok(()) => {}
            Err(error) => {
                trouble.lost += spans;
                if !trouble.is_open && trouble.told.is_none_or(|told| told.elapsed() >= LOG_EVERY) {
                    (trouble.is_open, trouble.told) = (true, Some(Instant::now()));
                    tracing::warn!(
                        error = self.why(&error),
                        "traces cannot be sent and are lost; orders are not affected"
                    );
                }
            }
        }
    }
}

impl<E: SpanExporter> SpanExporter for LoggingExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        self.permits.leave(spans);
        let result = self.exporter.export(batch).await;
        self.permits.arrive(spans);
        self.tell(result, spans);
        Ok(())
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
