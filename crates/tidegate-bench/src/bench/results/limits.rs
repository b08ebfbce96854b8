//! The results about the cost of limits.

use serde::{Deserialize, Serialize};

use super::Calls;

/// The results of bare scripts, in one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LimitsResults {
    /// Orders that are admitted, without limits.
    pub without: Calls,
    /// Orders that are admitted, under three limits.
    pub three: Calls,
    /// Orders that the first limit refuses.
    pub refused_by_limit: Calls,
    /// Orders that are refused without limits, because no units are left.
    pub sold_out: Calls,
}

impl LimitsResults {
    /// Redis' time of an admission under three limits, as a multiple of one without.
    pub fn three_against_none(&self) -> f64 {
        self.three.redis_cpu_us.median / self.without.redis_cpu_us.median
    }

    /// Redis' time of a refusal by a limit, as a multiple of one because no units are left.
    pub fn refusal_against_sold_out(&self) -> f64 {
        self.refused_by_limit.redis_cpu_us.median / self.sold_out.redis_cpu_us.median
    }
}
