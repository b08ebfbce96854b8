//! Webhooks: their state, and the changes that operators make to them.

mod change;
mod list;

pub(crate) use self::list::has_sender;
pub use self::{
    change::{WebhookAction, WebhookChange, WebhookChangePlan, WebhookChangeReport, WebhookRefusal},
    list::{WebhookBacklog, WebhookStatus, WebhookView, list},
};
