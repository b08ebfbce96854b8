//! The memory that a sale takes in Redis.

use fred::{
    interfaces::ClientLike,
    types::{ClusterHash, CustomCommand, Value},
};

use crate::scripts::{Sales, ScriptError};
use crate::{keys::naming, limits::LimitOwner, order::VoucherId};

impl Sales {
    /// The memory in bytes that all keys of a voucher take in Redis. Redis estimates the size from a few members of
    /// each key, so the call costs the same for keys of any size.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn memory_bytes(&self, voucher: VoucherId) -> Result<u64, ScriptError> {
        let keys = &self.access.keys;
        let mut bytes = 0;
        let uses = keys.limits(LimitOwner::Voucher(voucher)).uses();
        let of_sale =
            [keys.stock(voucher), keys.buyers(voucher), keys.voucher(voucher), keys.journal(voucher)];
        for key in of_sale.into_iter().chain([uses]) {
            let command = CustomCommand::new_static("MEMORY", ClusterHash::Random, false);
            let args: Vec<Value> = vec!["USAGE".into(), key.clone().into()];
            let usage = self.access.pool.next().custom::<Option<u64>, _>(command, args).await;
            bytes += usage.map_err(|error| naming(&key, error))?.unwrap_or(0);
        }
        Ok(bytes)
    }
}
