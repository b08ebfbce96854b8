//! Deletes the counters of limits in windows that are over, by `lua/sweep_uses.lua`.

use crate::limits::LimitOwner;
use crate::scripts::{SaleLimits, ScriptError};

/// The maximum number of fields in a call of the script.
const PIECE: usize = 500;

impl SaleLimits {
    /// Deletes the given limit counters, each only if it still has the given value. Returns the number of deleted
    /// counters.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn sweep_uses(
        &self,
        owner: LimitOwner,
        fields: &[(String, String)],
    ) -> Result<u64, ScriptError> {
        let mut swept = 0;
        for piece in fields.chunks(PIECE) {
            let args = piece.iter().flat_map(|(field, value)| [field.as_str().into(), value.as_str().into()]);
            let reply = self
                .sweep
                .call(&self.access.pool, vec![self.access.keys.limits(owner).uses()], args.collect())
                .await?;
            swept += reply.as_i64().map_or(0, i64::unsigned_abs);
        }
        Ok(swept)
    }
}
