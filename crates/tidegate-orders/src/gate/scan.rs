//! Journals, buyers and counters in pages: there may be millions of fields.

use std::marker::PhantomData;

use bytes::Bytes;
use fred::{
    interfaces::ClientLike,
    types::{ClusterHash, CustomCommand, FromValue, Key, Value},
};

use super::{Gate, GateError};
use crate::{keys::naming, limits::LimitOwner, order::VoucherId};

/// Fields or members a page: under a millisecond of the one thread that also admits.
const PAGE: i64 = 1_000;

/// The fields of a hash with their values, or the members of a set, in pages. SCAN may return an item twice.
#[derive(Debug)]
pub struct ScanPages<'a, T> {
    gate: &'a Gate,
    command: &'static str,
    key: Key,
    /// None: all pages were read.
    cursor: Option<Bytes>,
    item: PhantomData<fn() -> T>,
}

impl<'a> ScanPages<'a, (Bytes, Bytes)> {
    /// The journal of a voucher: fields with their notes.
    #[must_use]
    pub fn of_journal(gate: &'a Gate, voucher: VoucherId) -> Self {
        Self::new(gate, "HSCAN", gate.keys.journal(voucher))
    }
}

impl<'a> ScanPages<'a, Bytes> {
    /// The buyers of a voucher.
    #[must_use]
    pub fn of_buyers(gate: &'a Gate, voucher: VoucherId) -> Self {
        Self::new(gate, "SSCAN", gate.keys.buyers(voucher))
    }
}

impl<'a> ScanPages<'a, (String, String)> {
    /// The counters of a voucher or a campaign: fields with their counts.
    #[must_use]
    pub fn of_uses(gate: &'a Gate, owner: LimitOwner) -> Self {
        Self::new(gate, "HSCAN", gate.keys.uses(owner))
    }
}

impl<'a, T: FromValue> ScanPages<'a, T> {
    pub(super) fn new(gate: &'a Gate, command: &'static str, key: Key) -> Self {
        Self { gate, command, key, cursor: Some(Bytes::from_static(b"0")), item: PhantomData }
    }

    /// The next page, which may be empty; None: all were read. After an error, it reads the same page again.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn next(&mut self) -> Result<Option<Vec<T>>, GateError> {
        let Some(cursor) = self.cursor.clone() else { return Ok(None) };
        let scan = CustomCommand::new_static(self.command, ClusterHash::FirstKey, false);
        let args: Vec<Value> = vec![self.key.clone().into(), cursor.into(), "COUNT".into(), PAGE.into()];
        let page = self.gate.pool.next().custom::<(Bytes, Vec<T>), _>(scan, args).await;
        let (next, items) = page.map_err(|error| naming(&self.key, error))?;
        self.cursor = (next != "0").then_some(next);
        Ok(Some(items))
    }
}
