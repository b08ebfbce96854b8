//! A journal or a set of buyers in pieces: there may be millions of fields.

use bytes::Bytes;
use fred::{
    interfaces::ClientLike,
    types::{ClusterHash, CustomCommand, Value},
};

use super::{Gate, GateError};
use crate::{keys::naming, order::VoucherId};

/// Fields a page: under a millisecond of the one thread that also admits.
const PAGE: i64 = 1_000;

impl Gate {
    /// A page of a voucher's journal, from a cursor that is `0` at first: the cursor of the next page, which is `0` at the end, and
    /// fields with their notes, some perhaps twice.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn journal_page(
        &self,
        voucher: VoucherId,
        cursor: Bytes,
    ) -> Result<(Bytes, Vec<(Bytes, Bytes)>), GateError> {
        let key = self.keys.journal(voucher);
        let scan = CustomCommand::new_static("HSCAN", ClusterHash::FirstKey, false);
        let args: Vec<Value> = vec![key.clone().into(), cursor.into(), "COUNT".into(), PAGE.into()];
        let page = self.pool.next().custom::<(Bytes, Vec<Bytes>), _>(scan, args).await;
        let (next, fields) = page.map_err(|error| naming(&key, error))?;
        let pair = |pair: &[Bytes]| (pair[0].clone(), pair[1].clone());
        Ok((next, fields.chunks_exact(2).map(pair).collect()))
    }

    /// A page of the buyers of a voucher, as [`Gate::journal_page`].
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn buyers_page(
        &self,
        voucher: VoucherId,
        cursor: Bytes,
    ) -> Result<(Bytes, Vec<Bytes>), GateError> {
        let key = self.keys.buyers(voucher);
        let scan = CustomCommand::new_static("SSCAN", ClusterHash::FirstKey, false);
        let args: Vec<Value> = vec![key.clone().into(), cursor.into(), "COUNT".into(), PAGE.into()];
        Ok(self.pool.next().custom(scan, args).await.map_err(|error| naming(&key, error))?)
    }
}
