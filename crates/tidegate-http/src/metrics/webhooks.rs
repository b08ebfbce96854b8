//! The metrics of webhooks.

use std::sync::Arc;

use super::{
    catalog,
    families::{Families, number},
};
use crate::webhooks::{Attempt, WebhookState};

/// Adds the metrics of all webhooks. Values that come from Redis are missing until Redis has answered.
pub(super) fn add(families: &mut Families, states: &[Arc<WebhookState>]) {
    for state in states {
        families.begin_partition(state.tag.as_deref());
        let name = state.name.as_str();
        let attempts = Attempt::ALL.map(|result| ([name, result.word()], number(state.attempts(result))));
        families.each(&catalog::WEBHOOK_ATTEMPTS, attempts);
        let flag = |is_so| number(u64::from(is_so));
        families.each(&catalog::WEBHOOK_RETRIES, [([name], number(state.retries()))]);
        families.each(&catalog::WEBHOOK_SENDER, [([name], flag(state.is_sender()))]);
        if let Some(backlog) = state.backlog() {
            families.each(&catalog::WEBHOOK_PENDING, [([name], number(backlog.pending))]);
            families.each(&catalog::WEBHOOK_OLDEST, [([name], backlog.oldest_unsent_s.unwrap_or_default())]);
            families.each(&catalog::WEBHOOK_LOST, [([name], number(backlog.lost))]);
            families.each(&catalog::WEBHOOK_PAUSED, [([name], flag(backlog.pause.is_some()))]);
        }
    }
}
