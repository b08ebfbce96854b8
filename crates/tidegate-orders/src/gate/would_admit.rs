//! What the gate would say, without asking for anything: the scripts that admit, up to their first write.

use std::sync::{Arc, LazyLock};

use tidegate_stream::Script;

use super::{
    Admission, AdmitReply, Gate, GateError, batched_admission::BatchedAdmission, idempotency,
    limited::LimitedCalls,
};

/// The line of both scripts that writes first. All checks come before it, but the one that it is itself.
const FIRST_WRITE: &str = "\nlocal marked = redis.pcall('SADD', KEYS[2], user)";

static ADMIT: LazyLock<String> = LazyLock::new(|| {
    let is_buyer = "if call('SISMEMBER', KEYS[2], user) == 1 then return refuse(2) end";
    asking(idempotency::ADMIT, is_buyer)
});

static ADMIT_LIMITED: LazyLock<String> = LazyLock::new(|| {
    let is_buyer = "if not has_slots and call('SISMEMBER', KEYS[2], user) == 1 then return refuse(2) end";
    asking(idempotency::ADMIT_LIMITED, is_buyer)
});

/// A script that makes the checks of `admit`, and then says what its first write would have found.
fn asking(admit: &str, is_buyer: &str) -> String {
    let (checks, _) = admit.split_once(FIRST_WRITE).expect("both scripts have this line");
    format!("{checks}\n{is_buyer}\nreturn refuse(0)")
}

impl Gate {
    /// What [`Gate::admit`] would answer at this moment. Nothing is changed, and no place is kept.
    ///
    /// # Errors
    /// As [`Gate::admit`].
    pub async fn would_admit(&self, admission: &Admission) -> Result<AdmitReply, GateError> {
        let (keys, stream) = (self.keys.clone(), self.stream.clone());
        let limited = LimitedCalls::new(keys.clone(), stream.clone());
        let limited = Arc::new(limited.admitting_by(Script::new("would_admit_limited", &ADMIT_LIMITED)));
        let asking = BatchedAdmission::new(self.pool.clone(), keys, stream, limited);
        let asking = asking.admitting_by(Script::new("would_admit", &ADMIT));
        Ok(asking.admit_one(&self.pool, admission, None).await?.reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_before_the_first_write_of_a_script_writes() {
        for script in [&*ADMIT, &*ADMIT_LIMITED] {
            for write in ["'SADD'", "'HSET'", "'HSETNX'", "'XADD'", "'DECRBY'", "'HDEL'", "'SREM'", "'SET'"] {
                assert!(!script.contains(write), "{write}");
            }
        }
    }
}
