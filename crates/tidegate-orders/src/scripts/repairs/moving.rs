//! Moves a closed sale to another partition: copies it in pieces, imports it in one step, and removes the old one in
//! another step. Each step may be repeated, and in between the sale is complete on at least one side.

use fred::{
    interfaces::{ClientLike, HashesInterface, KeysInterface, SetsInterface},
    types::{ClusterHash, CustomCommand, Key, Value},
};

use crate::scripts::{Repairs, ScanPages, ScriptError, rebuild_id, sales::flag, understood};
use crate::{
    keys::{Keys, naming, staged},
    order::VoucherId,
};

/// The seconds after which a copy expires, unless it is imported.
const KEPT_S: i64 = 3_600;
const MOVING: &str = "moving";
const GONE: &str = "gone";

/// The sizes of a sale's keys in Redis, and whether the sale is closed for a move to another partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SaleSize {
    /// The number of units left in Redis. `None` if Redis has no stock of the voucher.
    pub stock: Option<String>,
    /// The number of users who got an order for the voucher in Redis.
    pub buyers: u64,
    /// The number of fields in the voucher's journal, the Redis hash that notes changes of its stock.
    pub journal: u64,
    /// Whether the sale is closed for a move, and is still in this partition.
    pub is_closed: bool,
    /// Whether the sale has moved to another partition.
    pub is_gone: bool,
}

/// The reply to a call that imports a sale from another partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImportReply {
    /// The sale is imported, and still closed.
    Imported,
    /// Refused: a part of the copy is missing.
    Incomplete,
    /// Refused: a sale of this voucher is open in the target partition.
    IsOpen,
}

impl ImportReply {
    const fn from_code(code: i64) -> Option<Self> {
        Some(match code {
            0 => Self::Imported,
            1 => Self::Incomplete,
            2 => Self::IsOpen,
            _ => return None,
        })
    }
}

/// The reply to a call that removes the keys of a sale after its move to another partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemoveMovedReply {
    /// An earlier call removed the sale.
    GoneBefore,
    /// The sale is removed by this call.
    Gone,
    /// Refused: the sale is not closed.
    NotClosed,
}

impl RemoveMovedReply {
    const fn from_code(code: i64) -> Option<Self> {
        Some(match code {
            0 => Self::GoneBefore,
            1 => Self::Gone,
            2 => Self::NotClosed,
            _ => return None,
        })
    }
}

impl Repairs {
    /// Closes a sale: pauses it until [`Repairs::reopen`] is called. Returns whether this call closed the sale.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn close(&self, voucher: VoucherId) -> Result<bool, ScriptError> {
        let reply =
            self.close.call(&self.access.pool, vec![self.access.keys.voucher(voucher)], Vec::new()).await?;
        understood("close.lua", &reply, flag)
    }

    /// Opens a closed sale again. If the sale was paused before it was closed, it stays paused. Returns whether the
    /// sale was closed.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn reopen(&self, voucher: VoucherId) -> Result<bool, ScriptError> {
        let reply =
            self.reopen.call(&self.access.pool, vec![self.access.keys.voucher(voucher)], Vec::new()).await?;
        understood("reopen.lua", &reply, flag)
    }

    /// Reads the size of a sale's keys in Redis.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn sale_size(&self, voucher: VoucherId) -> Result<SaleSize, ScriptError> {
        let (stock, buyers) = (self.access.keys.stock(voucher), self.access.keys.buyers(voucher));
        let (sale, journal) = (self.access.keys.voucher(voucher), self.access.keys.journal(voucher));
        let moving: Option<String> =
            self.access.pool.hget(&sale, MOVING).await.map_err(|error| naming(&sale, error))?;
        Ok(SaleSize {
            stock: self.access.pool.get(&stock).await.map_err(|error| naming(&stock, error))?,
            buyers: self.access.pool.scard(&buyers).await.map_err(|error| naming(&buyers, error))?,
            journal: self.access.pool.hlen(&journal).await.map_err(|error| naming(&journal, error))?,
            is_closed: moving.as_ref().is_some_and(|moving| moving != GONE),
            is_gone: moving.is_some_and(|moving| moving == GONE),
        })
    }

    /// Copies a closed sale to another partition. If an earlier copy left keys in that partition, the new copy replaces
    /// them. No other program may write to the sale in either partition during the call.
    ///
    /// # Errors
    /// See [`ScriptError`]. The call may be repeated.
    pub async fn copy_to(&self, there: &Self, voucher: VoucherId) -> Result<ImportReply, ScriptError> {
        let id = rebuild_id();
        let stock: Option<String> = self.access.pool.get(self.access.keys.stock(voucher)).await?;
        let members = there.copied(self, "SSCAN", "SADD", |keys| keys.buyers(voucher), &id).await?;
        let fields = there.copied(self, "HSCAN", "HSET", |keys| keys.voucher(voucher), &id).await?;
        let notes = there.copied(self, "HSCAN", "HSET", |keys| keys.journal(voucher), &id).await?;
        let places = [
            there.access.keys.buyers(voucher),
            there.access.keys.voucher(voucher),
            there.access.keys.journal(voucher),
        ];
        let mut keys = there.access.keys.of_sale(voucher);
        keys.extend(places.iter().map(|key| staged(key, &id)));
        let counts = [members, fields, notes].map(|count| Value::from(count.to_string()));
        let args = [Value::from(stock.unwrap_or_default())].into_iter().chain(counts).collect();
        let reply = there.import_sale.call(&there.access.pool, keys, args).await?;
        understood("import_sale.lua", &reply, ImportReply::from_code)
    }

    /// Removes the keys of a closed sale from this partition, after another partition has imported the sale.
    ///
    /// # Errors
    /// See [`ScriptError`]. The call may be repeated.
    pub async fn remove_moved(&self, voucher: VoucherId) -> Result<RemoveMovedReply, ScriptError> {
        let reply = self
            .remove_moved_sale
            .call(&self.access.pool, self.access.keys.of_sale(voucher), Vec::new())
            .await?;
        understood("remove_moved_sale.lua", &reply, RemoveMovedReply::from_code)
    }

    /// Copies a set or a hash from the partition `from` to a staged key here. Returns how many elements the copy must
    /// have.
    async fn copied(
        &self,
        from: &Self,
        scan: &'static str,
        add: &'static str,
        key: impl Fn(&Keys) -> Key,
        id: &str,
    ) -> Result<u64, ScriptError> {
        let (source, staged) = (key(&from.access.keys), staged(&key(&self.access.keys), id));
        let custom = |command| CustomCommand::new_static(command, ClusterHash::FirstKey, false);
        let mut pages = ScanPages::<Value>::new(&from.access, scan, source.clone());
        while let Some(elements) = pages.next().await? {
            if elements.is_empty() {
                continue;
            }
            let own = [Value::from(staged.clone())];
            let args = own.into_iter().chain(elements).collect::<Vec<_>>();
            let _new: u64 = self.access.pool.next().custom(custom(add), args).await?;
            let ends: Vec<Value> = vec![staged.clone().into(), KEPT_S.into()];
            let _one: u64 = self.access.pool.next().custom(custom("EXPIRE"), ends).await?;
        }
        let size = if scan == "SSCAN" { "SCARD" } else { "HLEN" };
        let size = from.access.pool.next().custom(custom(size), vec![Value::from(source.clone())]).await;
        Ok(size.map_err(|error| naming(&source, error))?)
    }
}
