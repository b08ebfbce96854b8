//! Webhooks: their state, and the results that they have not sent.

mod list;

pub use self::list::{WebhookBacklog, WebhookStatus, WebhookView, list};
