//! The replacement for traces in a program without the feature `otel`.

use std::{sync::Arc, time::Duration};

use tidegate_orders::OrderHandler;
use tidegate_stream::Observer;

use crate::settings::ProcessSettings;

/// A type without values, which replaces the traces of orders in a program that was built without traces.
#[derive(Debug)]
pub enum Traces {}

impl Traces {
    /// Logs a warning if an environment variable turns traces on.
    ///
    /// # Errors
    /// Returns no error; with the feature `otel`, this function may fail.
    pub fn start(_settings: &ProcessSettings) -> anyhow::Result<Option<Self>> {
        if let Some(variable) = super::wanted_by() {
            tracing::warn!(
                variable,
                "this program was built without traces: to send traces, build it with the feature otel"
            );
        }
        Ok(None)
    }

    /// A function that never runs, because a program without traces has no value of this type.
    pub fn watch(&self, _handler: OrderHandler) -> (OrderHandler, Arc<dyn Observer>) {
        match *self {}
    }

    /// A function that never runs, because a program without traces has nothing to send.
    pub async fn finish(&self, _within: Duration) {
        match *self {}
    }
}
