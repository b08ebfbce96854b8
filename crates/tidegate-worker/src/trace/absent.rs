//! A program that was built without traces.

use std::{sync::Arc, time::Duration};

use tidegate_orders::OrderHandler;
use tidegate_stream::Observer;

use crate::settings::ProcessSettings;

/// There are none.
#[derive(Debug)]
pub enum Traces {}

impl Traces {
    /// Says so, where some are wanted.
    ///
    /// # Errors
    /// None; others have some.
    pub fn start(_settings: &ProcessSettings) -> anyhow::Result<Option<Self>> {
        if let Some(variable) = super::wanted_by() {
            tracing::warn!(
                variable,
                "this program was built without traces: none are sent; build it with the feature otel"
            );
        }
        Ok(None)
    }

    /// Lets a lane's work be traced.
    pub fn watch(&self, _handler: OrderHandler) -> (OrderHandler, Arc<dyn Observer>) {
        match *self {}
    }

    /// Sends what is left.
    pub async fn finish(&self, _within: Duration) {
        match *self {}
    }
}
