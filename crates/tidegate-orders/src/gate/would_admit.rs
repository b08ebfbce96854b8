//! What the gate would say, without asking for anything: `lua/would_admit.lua` and `lua/would_admit_limited.lua`, the checks of the
//! scripts that admit.

use std::sync::Arc;

use tidegate_stream::Script;

use super::{
    Admission, AdmitReply, Gate, GateError, batched_admission::BatchedAdmission, limited::LimitedCalls,
};

const WOULD_ADMIT: &str = include_str!("../../../../lua/would_admit.lua");
const WOULD_ADMIT_LIMITED: &str = include_str!("../../../../lua/would_admit_limited.lua");

impl Gate {
    /// What [`Gate::admit`] would answer at this moment. Nothing is changed, and no place is kept.
    ///
    /// # Errors
    /// As [`Gate::admit`].
    pub async fn would_admit(&self, admission: &Admission) -> Result<AdmitReply, GateError> {
        let (keys, stream) = (self.keys.clone(), self.stream.clone());
        let limited = LimitedCalls::new(keys.clone(), stream.clone());
        let limited = Arc::new(limited.admitting_by(Script::new("would_admit_limited", WOULD_ADMIT_LIMITED)));
        let asking = BatchedAdmission::new(self.pool.clone(), keys, stream, limited);
        let asking = asking.admitting_by(Script::new("would_admit", WOULD_ADMIT));
        Ok(asking.admit_one(&self.pool, admission, None).await?.reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_script_writes() {
        for script in [WOULD_ADMIT, WOULD_ADMIT_LIMITED] {
            for write in ["'SADD'", "'HSET'", "'HSETNX'", "'XADD'", "'DECRBY'", "'HDEL'", "'SREM'", "'SET'"] {
                assert!(!script.contains(write), "{write}");
            }
        }
    }
}
