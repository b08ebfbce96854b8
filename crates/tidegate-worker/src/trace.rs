//! The traces of orders, each from the producer's `traceparent` to the commit. They are sent with OTLP and need the
//! feature `otel`.
//!
//! The standard variables of OpenTelemetry configure them, as in every other program of a platform.

#[cfg(not(feature = "otel"))]
mod absent;
#[cfg(feature = "otel")]
mod otlp;

#[cfg(not(feature = "otel"))]
pub use absent::Traces;
#[cfg(feature = "otel")]
pub use otlp::Traces;

/// The variables that turn traces on. The first one is for traces only, and takes precedence.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// The variable that turns traces on. None: no variable does, or another variable turns them off.
fn wanted_by() -> Option<&'static str> {
    let is_off = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        || variable("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
    ENDPOINTS.into_iter().find(|name| variable(name).is_some()).filter(|_| !is_off)
}

/// The value of a variable; an empty value counts as none.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
