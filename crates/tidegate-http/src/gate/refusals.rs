//! The log of refusals that operators have to know about. It has a line for the first ones of each reason, and a sum
//! for the others. Thus there is no line for each request while Redis refuses all of them.

use std::{net::IpAddr, sync::Arc};

use tidegate_compare::text::error_chain;
use tidegate_orders::{
    LimitedLog,
    order_id::OrderIdError,
    scripts::{Admission, ScriptError},
};

use super::problem::{Problem, ProblemKind};

const SUM: &str =
    "more callers were refused for this reason: only the first callers of a minute have a log line";

/// The log of refused orders and refused client certificates. All connections of a gate share this log.
#[derive(Clone, Debug)]
pub struct Refusals(Arc<LimitedLog>);

impl Default for Refusals {
    fn default() -> Self {
        Self(Arc::new(LimitedLog::new(SUM)))
    }
}

impl Refusals {
    /// Logs that Redis refused an order, or sent a reply that the gate cannot read.
    pub fn order(&self, admission: &Admission, error: &ScriptError) {
        let Admission { order, voucher, .. } = admission;
        let Some(reason) = reason(error) else { return };
        if self.0.is_shown(reason) {
            let error = error_chain(&anyhow::anyhow!("{error}"));
            tracing::error!(%order, %voucher, reason, error, "Redis refused an order");
        }
    }

    /// Logs that a Redis call failed before the gate asked for the order. Returns the problem for the caller.
    pub fn not_asked(&self, error: &ScriptError) -> Problem {
        let Some(reason) = reason(error) else {
            tracing::debug!(%error, "Redis is away");
            return ProblemKind::RedisAway.into();
        };
        if self.0.is_shown(reason) {
            let error = error_chain(&anyhow::anyhow!("{error}"));
            tracing::error!(reason, error, "Redis refused a command of the gate");
        }
        ProblemKind::RedisRefused.into()
    }

    /// Logs that the gate cannot create order ids.
    pub fn no_ids(&self, error: &OrderIdError) {
        if self.0.is_shown("no_order_ids") {
            tracing::error!(%error, "the gate has no order ids to assign");
        }
    }

    /// Logs that the gate refused the certificate of a client.
    pub fn certificate(&self, caller: IpAddr, why: &str) {
        if self.0.is_shown("certificate") {
            tracing::warn!(%caller, why, "the gate refused a client certificate");
        }
    }
}

/// The word for an error that operators have to act on. None: Redis did not answer, or the caller caused the error.
fn reason(error: &ScriptError) -> Option<&'static str> {
    const WORDS: [(&str, &str); 7] = [
        ("OOM ", "out_of_memory"),
        ("NOREPLICAS ", "no_replicas"),
        ("READONLY ", "read_only"),
        ("MISCONF ", "disk_full"),
        ("NOPERM ", "no_permission"),
        ("WRONGTYPE ", "wrong_type"),
        ("BADARG ", "bad_argument"),
    ];
    match error {
        ScriptError::Refused(error) => {
            // The word is not always at the start: before Redis 7, an error from within a script begins with other
            // text.
            let known = WORDS.iter().find(|(word, _)| error.details().contains(word));
            Some(known.map_or("refused", |(_, reason)| reason))
        }
        ScriptError::Unexpected { .. } => Some("not_understood"),
        ScriptError::WrongPartition(_) => Some("wrong_partition"),
        ScriptError::Unreachable(_)
        | ScriptError::IdTaken { .. }
        | ScriptError::NoSubject { .. }
        | ScriptError::OtherQuantity { .. }
        | ScriptError::OtherRequest
        | ScriptError::Unconfirmed { .. } => None,
    }
}
