//! Traces of orders, each from the producer's `traceparent` to the commit: sent over OTLP, with the feature `otel`.
//!
//! OpenTelemetry's own variables configure them, as they do in every other program of a platform.

#[cfg(not(feature = "otel"))]
mod absent;
#[cfg(feature = "otel")]
mod otlp;

#[cfg(not(feature = "otel"))]
pub use absent::Traces;
#[cfg(feature = "otel")]
pub use otlp::Traces;

/// Either of them asks for traces; the first is for traces only, and wins.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// The variable that asks for traces, unless another forbids them.
fn wanted_by() -> Option<&'static str> {
    let is_off = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        || variable("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
    ENDPOINTS.into_iter().find(|name| variable(name).is_some()).filter(|_| !is_off)
}

/// A variable's value; an empty one counts as none.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
