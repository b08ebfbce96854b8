//! Reads journals, buyers and counters in pages, because there may be millions of fields.

use std::marker::PhantomData;

use bytes::Bytes;
use fred::{
    clients::Pool,
    interfaces::ClientLike,
    prelude::FredResult,
    types::{ClusterHash, CustomCommand, FromValue, Key, Value},
};

use super::{RedisStore, ScriptError, access::RedisAccess};
use crate::{keys::naming, limits::LimitOwner, order::VoucherId};

/// The fields or members in a page. A page takes less than a millisecond of the one Redis thread that also admits
/// orders.
const PAGE: i64 = 1_000;

/// A scan, in pages, of the fields and values of a Redis hash, or of the members of a set. SCAN may return an item
/// twice.
#[derive(Debug)]
pub struct ScanPages<'a, T> {
    access: &'a RedisAccess,
    command: &'static str,
    key: Key,
    /// The cursor of the next page. `None` if all pages were read.
    cursor: Option<Bytes>,
    item: PhantomData<fn() -> T>,
}

impl<'a> ScanPages<'a, (Bytes, Bytes)> {
    /// Scans the journal of a voucher, a Redis hash: its fields with the notes about orders.
    #[must_use]
    pub fn of_journal(redis: &'a RedisStore, voucher: VoucherId) -> Self {
        Self::of_journal_by(redis.access(), voucher)
    }

    /// As [`ScanPages::of_journal`], for the other parts of the store.
    pub(super) fn of_journal_by(access: &'a RedisAccess, voucher: VoucherId) -> Self {
        Self::new(access, "HSCAN", access.keys.journal(voucher))
    }
}

impl<'a> ScanPages<'a, Bytes> {
    /// Scans the users who are buyers of a voucher.
    #[must_use]
    pub fn of_buyers(redis: &'a RedisStore, voucher: VoucherId) -> Self {
        Self::new(redis.access(), "SSCAN", redis.keys().buyers(voucher))
    }
}

impl<'a> ScanPages<'a, (String, String)> {
    /// Scans the limit counters of a voucher or a campaign: their fields with their values.
    #[must_use]
    pub fn of_uses(redis: &'a RedisStore, owner: LimitOwner) -> Self {
        Self::new(redis.access(), "HSCAN", redis.keys().limits(owner).uses())
    }
}

impl<'a, T: FromValue> ScanPages<'a, T> {
    pub(super) fn new(access: &'a RedisAccess, command: &'static str, key: Key) -> Self {
        Self { access, command, key, cursor: Some(Bytes::from_static(b"0")), item: PhantomData }
    }

    /// Reads the next page, which may be empty. `None` if all pages were read. After an error, the next call reads the
    /// same page again.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn next(&mut self) -> Result<Option<Vec<T>>, ScriptError> {
        let Some(cursor) = self.cursor.clone() else { return Ok(None) };
        let scan = CustomCommand::new_static(self.command, ClusterHash::FirstKey, false);
        let args: Vec<Value> = vec![self.key.clone().into(), cursor.into(), "COUNT".into(), PAGE.into()];
        let page = self.access.pool.next().custom::<(Bytes, Vec<T>), _>(scan, args).await;
        let (next, items) = page.map_err(|error| naming(&self.key, error))?;
        self.cursor = (next != "0").then_some(next);
        Ok(Some(items))
    }
}

/// All keys that match this pattern, each once.
pub(crate) async fn scan_keys(pool: &Pool, glob: &str) -> FredResult<Vec<String>> {
    let command = CustomCommand::new_static("SCAN", ClusterHash::Random, false);
    let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
    loop {
        let args: Vec<Value> = vec![cursor.into(), "MATCH".into(), glob.into(), "COUNT".into(), 1000.into()];
        let (next, keys): (String, Vec<Value>) = pool.next().custom(command.clone(), args).await?;
        found.extend(keys.iter().filter_map(Value::as_string));
        if next == "0" {
            found.sort_unstable();
            found.dedup();
            return Ok(found);
        }
        cursor = next;
    }
}
