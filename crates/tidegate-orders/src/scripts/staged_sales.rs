//! Fills new keys for a sale, next to those on sale, and puts them in their place in one step.

use fred::{
    interfaces::{ClientLike, HashesInterface},
    types::{ClusterHash, CustomCommand, Key, Value},
};
use futures_util::future::{join_all, try_join_all};
use tidegate_stream::{EntryId, Script};

use super::{SaleWindow, ScriptError, access::RedisAccess, sales::bound_text, scan_keys, understood};
use crate::{
    keys::{Keys, naming, staged},
    order::{OrderId, UserId, VoucherId},
    records::journal::COMPLETE,
    wire::FieldNames,
};

/// The seconds after which staged keys expire, unless they are cut over.
const KEPT_S: i64 = 3_600;
/// The maximum number of entries that the script adds. Redis serves no other client meanwhile, for some milliseconds.
const MOST_ENTRIES: i64 = 500;
/// The maximum number of fields or members in one command.
const PIECE: usize = 500;

/// The new keys for a voucher that a rebuild has filled so far, and that have not replaced the old keys yet.
#[derive(Debug)]
pub struct StagedSale {
    voucher: VoucherId,
    id: String,
    buyers: Key,
    journal: Key,
    /// The members and fields in the staged keys, by the answers of Redis.
    members: u64,
    fields: u64,
}

/// The new values of a rebuilt sale in Redis, such as stock and times. Buyers and journal (notes about orders) are
/// written separately.
#[derive(Clone, Debug)]
pub struct NewSale {
    /// The number of units that the voucher has left after the stream entry `last`.
    pub stock: i64,
    /// The id of the last stream entry that the rebuild has counted.
    pub last: EntryId,
    /// The time window of the sale.
    pub window: SaleWindow,
    /// Whether the voucher has limits, and therefore has its stock in the key for vouchers with limits.
    pub has_limits: bool,
    /// The note about the last change of the stock, as text that was read from Redis. `None` if there was no note.
    pub change: Option<String>,
}

/// The reply to a call in which the new keys of a rebuilt sale replace its old keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CutOverReply {
    /// The new keys are in place, and sell.
    Done,
    /// Refused: more entries came into the stream. Read them and try again.
    EntriesCame,
    /// Refused: the note of the last stock change is another one, because units are being added or taken.
    OtherNote,
    /// Refused: some of the staged data is missing.
    Incomplete,
}

impl CutOverReply {
    const fn from_code(code: i64) -> Option<Self> {
        Some(match code {
            0 => Self::Done,
            1 => Self::EntriesCame,
            2 => Self::OtherNote,
            3 => Self::Incomplete,
            _ => return None,
        })
    }
}

/// Makes an id for a rebuild of a sale. No other rebuild has the same id.
#[must_use]
pub fn rebuild_id() -> String {
    // No digit at the end, so that no staged key looks like the key of a voucher.
    format!("{:016x}x", rand::random::<u64>())
}

impl StagedSale {
    /// Creates the new keys of a rebuilt sale, still empty. `id` must be different for every rebuild.
    #[must_use]
    pub fn new(keys: &Keys, voucher: VoucherId, id: &str) -> Self {
        Self {
            voucher,
            id: id.to_owned(),
            buyers: staged(&keys.buyers(voucher), id),
            journal: staged(&keys.journal(voucher), id),
            members: 0,
            fields: 0,
        }
    }
}

/// Access to the new keys that a rebuild of a sale fills, and that then replace the old keys of the sale.
#[derive(Clone, Debug)]
pub struct StagedSales {
    access: RedisAccess,
    cut_over: Script,
}

impl StagedSales {
    pub(super) fn new(access: &RedisAccess) -> Self {
        Self {
            access: access.clone(),
            cut_over: Script::new("cut_over", include_str!("../../../../lua/cut_over.lua")),
        }
    }

    /// Writes notes about orders into the new journal of a rebuilt sale, and marks their users as buyers. Replaces
    /// existing notes, and does not report which notes existed.
    ///
    /// # Errors
    /// See [`ScriptError`]. Then the rebuild must start again, because it is unknown how much was written.
    pub async fn stage(
        &self,
        staged: &mut StagedSale,
        notes: &[(OrderId, String)],
        buyers: &[UserId],
    ) -> Result<(), ScriptError> {
        let notes: Vec<(Value, Value)> =
            notes.iter().map(|(order, note)| (order.to_string().into(), note.as_str().into())).collect();
        self.stage_fields(staged, &notes).await?;
        self.stage_buyers(staged, buyers).await
    }

    /// Writes the stock changes that belong to no order into the new journal (a Redis hash) of a rebuilt sale.
    ///
    /// # Errors
    /// As [`StagedSales::stage`].
    pub async fn stage_sale(
        &self,
        staged: &mut StagedSale,
        notes: &[(&str, String)],
    ) -> Result<(), ScriptError> {
        let notes: Vec<(Value, Value)> =
            notes.iter().map(|(field, note)| ((*field).into(), note.as_str().into())).collect();
        self.stage_fields(staged, &notes).await
    }

    /// Writes notes about orders into the new journal (a Redis hash) of a rebuilt sale, only for orders without a note.
    /// Returns for each order, in the given sequence, whether its note is new.
    ///
    /// # Errors
    /// As [`StagedSales::stage`].
    pub async fn stage_new(
        &self,
        staged: &mut StagedSale,
        notes: &[(OrderId, String)],
    ) -> Result<Vec<bool>, ScriptError> {
        let client = self.access.pool.next();
        let mut all = Vec::with_capacity(notes.len());
        for piece in notes.chunks(PIECE) {
            let set = async |(order, note): &(OrderId, String)| {
                client.hsetnx::<bool, _, _, _>(&staged.journal, order.to_string(), note.as_str()).await
            };
            all.extend(try_join_all(piece.iter().map(set)).await?);
        }
        staged.fields += all.iter().filter(|is_new| **is_new).count() as u64;
        Ok(all)
    }

    /// Marks users as buyers in the new set of buyers of a rebuilt sale.
    ///
    /// # Errors
    /// As [`StagedSales::stage`].
    pub async fn stage_buyers(&self, staged: &mut StagedSale, buyers: &[UserId]) -> Result<(), ScriptError> {
        for piece in buyers.chunks(PIECE) {
            let key = staged.buyers.clone();
            let args = piece.iter().map(|user| Value::from(user.to_string()));
            staged.members += self.write_staged("SADD", key, args).await?;
        }
        Ok(())
    }

    /// Returns for each given order whether the new journal of the rebuilt sale still has no note about it.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn unstaged(&self, staged: &StagedSale, orders: &[OrderId]) -> Result<Vec<bool>, ScriptError> {
        if orders.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<String> = orders.iter().map(OrderId::to_string).collect();
        let notes: Vec<Value> = self.access.pool.hmget(&staged.journal, names).await?;
        Ok(notes.iter().map(Value::is_null).collect())
    }

    async fn stage_fields(
        &self,
        staged: &mut StagedSale,
        notes: &[(Value, Value)],
    ) -> Result<(), ScriptError> {
        for piece in notes.chunks(PIECE) {
            let key = staged.journal.clone();
            let args = piece.iter().flat_map(|(field, note)| [field.clone(), note.clone()]);
            staged.fields += self.write_staged("HSET", key, args).await?;
        }
        Ok(())
    }

    /// Runs a command that answers how many elements are new, and sets the expiry of its key.
    async fn write_staged(
        &self,
        command: &'static str,
        key: Key,
        args: impl Iterator<Item = Value>,
    ) -> Result<u64, ScriptError> {
        let client = self.access.pool.next();
        let custom = |command| CustomCommand::new_static(command, ClusterHash::FirstKey, false);
        let args: Vec<Value> = std::iter::once(Value::from(key.clone())).chain(args).collect();
        let ends: Vec<Value> = vec![key.into(), KEPT_S.into()];
        let (written, kept) = tokio::join!(
            client.custom::<u64, _>(custom(command), args),
            client.custom::<Value, _>(custom("EXPIRE"), ends)
        );
        let _one = kept?;
        Ok(written?)
    }

    /// Reads the note about the last change of a voucher's stock as text, without parsing it. `None` if there is no
    /// note.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn read_change_text(&self, voucher: VoucherId) -> Result<Option<String>, ScriptError> {
        let key = self.access.keys.voucher(voucher);
        Ok(self.access.pool.hget(&key, "change").await.map_err(|error| naming(&key, error))?)
    }

    /// Replaces the old keys of a sale by the new keys that a rebuild has filled. In the same step, adds the orders
    /// that came into the stream after [`NewSale::last`]. A paused sale stays paused.
    ///
    /// # Errors
    /// See [`ScriptError`]. The call may be repeated.
    pub async fn cut_over(&self, staged: &StagedSale, new: &NewSale) -> Result<CutOverReply, ScriptError> {
        let (keys, voucher) = (&self.access.keys, staged.voucher);
        let (stock, other_name) = match new.has_limits {
            true => (keys.limited(voucher), keys.stock(voucher)),
            false => (keys.stock(voucher), keys.limited(voucher)),
        };
        let all_keys = vec![
            stock,
            keys.buyers(voucher),
            keys.voucher(voucher),
            keys.journal(voucher),
            self.access.stream.clone(),
            staged.buyers.clone(),
            staged.journal.clone(),
            other_name,
        ];
        let mut args: Vec<Value> = vec![
            new.last.to_string().into(),
            MOST_ENTRIES.to_string().into(),
            new.stock.to_string().into(),
            voucher.to_string().into(),
            staged.members.to_string().into(),
            staged.fields.to_string().into(),
            new.change.clone().unwrap_or_default().into(),
            bound_text(new.window.begin).into(),
            bound_text(new.window.end).into(),
        ];
        for FieldNames { id, user, voucher, quantity, .. } in [keys.fields(), &FieldNames::default()] {
            args.extend([id, user, voucher, quantity].map(|name| Value::from(name.as_str())));
        }
        let reply = self.cut_over.call(&self.access.pool, all_keys, args).await?;
        let reply = understood("cut_over.lua", &reply, CutOverReply::from_code)?;
        // If a reply was lost, the client sends the command again. Then the staged keys are gone because it was done
        // before.
        if reply == CutOverReply::Incomplete && self.is_made_complete_by(voucher, &staged.id).await? {
            return Ok(CutOverReply::Done);
        }
        Ok(reply)
    }

    async fn is_made_complete_by(&self, voucher: VoucherId, id: &str) -> Result<bool, ScriptError> {
        let key = self.access.keys.journal(voucher);
        let note: Option<String> =
            self.access.pool.hget(&key, COMPLETE).await.map_err(|error| naming(&key, error))?;
        Ok(note.is_some_and(|note| note.contains(&format!("\"id\":\"{id}\""))))
    }

    /// Removes new keys that rebuilds have filled and that never replaced the old keys of a sale, for all vouchers.
    /// Scans all keys.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn remove_staged(&self) -> Result<usize, ScriptError> {
        let mut found = Vec::new();
        for pattern in [self.access.keys.all_buyers(), self.access.keys.journals()] {
            found.extend(scan_keys(&self.access.pool, &pattern.staged_glob()).await?);
        }
        let unlink = CustomCommand::new_static("UNLINK", ClusterHash::FirstKey, false);
        let gone = found.iter().map(async |key| {
            self.access.pool.next().custom::<Value, _>(unlink.clone(), vec![Value::from(key.as_str())]).await
        });
        for reply in join_all(gone).await {
            let _count = reply?;
        }
        Ok(found.len())
    }
}
