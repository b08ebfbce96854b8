//! Forgets what is counted for limits in windows that are over, by `lua/sweep_uses.lua`.

use bytes::Bytes;
use fred::{
    interfaces::ClientLike,
    types::{ClusterHash, CustomCommand, Value},
};

use super::{Gate, GateError};
use crate::{keys::naming, limits::LimitOwner};

/// Fields a page, about, and in a call of the script at most.
const PAGE: i64 = 500;

impl Gate {
    /// A page of what is counted for a voucher or a campaign, and where the next begins; it begins and ends with `0`. Reads only.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn uses_page(
        &self,
        owner: LimitOwner,
        cursor: Bytes,
    ) -> Result<(Bytes, Vec<(String, String)>), GateError> {
        let key = self.keys.uses(owner);
        let scan = CustomCommand::new_static("HSCAN", ClusterHash::FirstKey, false);
        let args: Vec<Value> = vec![key.clone().into(), cursor.into(), "COUNT".into(), PAGE.into()];
        let page = self.pool.next().custom::<(Bytes, Vec<String>), _>(scan, args).await;
        let (next, fields) = page.map_err(|error| naming(&key, error))?;
        let pair = |pair: &[String]| (pair[0].clone(), pair[1].clone());
        Ok((next, fields.chunks_exact(2).map(pair).collect()))
    }

    /// Forgets these fields, where they still hold these values. Answers with how many.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn sweep_uses(&self, owner: LimitOwner, fields: &[(String, String)]) -> Result<u64, GateError> {
        let mut swept = 0;
        for piece in fields.chunks(PAGE as usize) {
            let args = piece.iter().flat_map(|(field, value)| [field.as_str().into(), value.as_str().into()]);
            let reply = self.sweep.call(&self.pool, vec![self.keys.uses(owner)], args.collect()).await?;
            swept += reply.as_i64().map_or(0, i64::unsigned_abs);
        }
        Ok(swept)
    }
}
