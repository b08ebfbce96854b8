//! What limits cost.

use serde::{Deserialize, Serialize};

use super::Calls;

/// Bare scripts, in one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LimitsResults {
    /// Admitted, without limits.
    pub without: Calls,
    /// Admitted, under three limits.
    pub three: Calls,
    /// Refused by the first of them.
    pub refused_by_limit: Calls,
    /// Refused without limits, because nothing is left.
    pub sold_out: Calls,
}

impl LimitsResults {
    /// Redis' time of an admission under three limits, against one without.
    pub fn three_against_none(&self) -> f64 {
        self.three.redis_cpu_us.median / self.without.redis_cpu_us.median
    }

    /// Redis' time of a refusal by a limit, against one because nothing is left.
    pub fn refusal_against_sold_out(&self) -> f64 {
        self.refused_by_limit.redis_cpu_us.median / self.sold_out.redis_cpu_us.median
    }
}
