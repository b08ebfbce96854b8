//! The replacement for traces in a program without the feature `otel`.

use std::{sync::Arc, time::Duration};

use tidegate_orders::OrderHandler;
use tidegate_stream::Observer;

use crate::settings::ProcessSettings;

/// The traces of a program that has none.
#[derive(Debug)]
pub enum Traces {}

impl Traces {
    /// Logs a warning if a variable turns traces on.
    ///
    /// # Errors
    /// Returns no error; with the feature `otel`, this function may fail.
    pub fn start(_settings: &ProcessSettings) -> anyhow::Result<Option<Self>> {
        if let Some(variable) = super::wanted_by() {
            tracing::warn!(
                variable,
                "this program was built without traces: none are sent; build it with the feature otel"
            );
        }
        Ok(None)
    }

    /// Adds traces to the handler of a lane.
    pub fn watch(&self, _handler: OrderHandler) -> (OrderHandler, Arc<dyn Observer>) {
        match *self {}
    }

    /// Sends the remaining traces before the process ends.
    pub async fn finish(&self, _within: Duration) {
        match *self {}
    }
}
