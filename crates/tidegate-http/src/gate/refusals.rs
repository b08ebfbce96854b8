//! Logs what callers are refused for a reason that operators have to see: the first of each reason, and the others as a sum. While
//! Redis refuses everybody, there is no line for each caller.

use std::{net::IpAddr, sync::Arc};

use tidegate_compare::text::error_chain;
use tidegate_orders::{
    LimitedLog,
    gate::{Admission, GateError},
    order_id::OrderIdError,
};

use super::problem::{Problem, ProblemKind};

const SUM: &str = "more callers were refused for this reason: the first of this minute have a line each";

/// The log of all callers of a gate.
#[derive(Clone, Debug)]
pub struct Refusals(Arc<LimitedLog>);

impl Default for Refusals {
    fn default() -> Self {
        Self(Arc::new(LimitedLog::new(SUM)))
    }
}

impl Refusals {
    /// Redis refused an order, or answered what nobody understands.
    pub fn order(&self, admission: &Admission, error: &GateError) {
        let Admission { order, voucher, .. } = admission;
        let Some(reason) = reason(error) else { return };
        if self.0.is_shown(reason) {
            let error = error_chain(&anyhow::anyhow!("{error}"));
            tracing::error!(%order, %voucher, reason, error, "Redis refused an order");
        }
    }

    /// What came before the order was asked for failed. Answers with what the caller hears.
    pub fn not_asked(&self, error: &GateError) -> Problem {
        let Some(reason) = reason(error) else {
            tracing::debug!(%error, "Redis is away");
            return ProblemKind::RedisAway.into();
        };
        if self.0.is_shown(reason) {
            let error = error_chain(&anyhow::anyhow!("{error}"));
            tracing::error!(reason, error, "Redis refused a caller of the gate");
        }
        ProblemKind::RedisRefused.into()
    }

    /// No order ids can be made.
    pub fn no_ids(&self, error: &OrderIdError) {
        if self.0.is_shown("no_order_ids") {
            tracing::error!(%error, "the gate has no order ids");
        }
    }

    /// A caller showed a certificate that is no good.
    pub fn certificate(&self, caller: IpAddr, why: &str) {
        if self.0.is_shown("certificate") {
            tracing::warn!(%caller, why, "a certificate of a caller is refused");
        }
    }
}

/// In a word, if it is an operator's concern. None: Redis did not answer, or the error is the caller's own.
fn reason(error: &GateError) -> Option<&'static str> {
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
        GateError::Refused(error) => {
            // Not at the start: before Redis 7, an error from within a script has a text before it.
            let known = WORDS.iter().find(|(word, _)| error.details().contains(word));
            Some(known.map_or("refused", |(_, reason)| reason))
        }
        GateError::Unexpected { .. } => Some("not_understood"),
        GateError::WrongPartition(_) => Some("wrong_partition"),
        GateError::Unreachable(_)
        | GateError::IdTaken { .. }
        | GateError::NoSubject { .. }
        | GateError::OtherQuantity { .. }
        | GateError::OtherRequest
        | GateError::Unconfirmed { .. } => None,
    }
}
