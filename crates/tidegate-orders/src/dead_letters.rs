//! Dead letters: how to read them, and each way in which an operator ends one.
//!
//! Every call is one script that does nothing if the letter is already gone. So if two operators act, or the client
//! sends a call twice, the letter is ended once. The second caller gets the reply that the letter is gone.

use fred::{
    error::Error,
    types::{Key, Value},
};
use tidegate_stream::{Entry, EntryId, Letter, Script, StreamError};

use crate::{
    Order, Uses,
    scripts::{RedisStore, Release, ReleaseReply, ScriptError, UserAfter, of_order, understood},
    wire::{FieldNames, USES, WireError},
};

/// The maximum number of fields in a dead letter that a script can put back into the stream. Lua can pass about 8,000
/// values to a command, and the history of the letter takes some of these values.
pub const MOST_FIELDS: usize = 3_890;

/// The reply to a request to put a dead letter back into the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequeueReply {
    /// The entry is back in the stream, under this id.
    Requeued(EntryId),
    /// The letter does not exist any more.
    Gone,
    /// Refused: the order was released, so no worker may write it. The letter stays.
    Released,
}

/// The reply to a request to cancel a dead letter: to return the units of its order to the stock, and delete the
/// letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelReply {
    /// The letter is deleted, with this reply to the release of its order.
    Cancelled(ReleaseReply),
    /// The letter does not exist any more.
    Gone,
}

/// The reply to a request to delete a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReply {
    /// The letter is deleted by this call.
    Dropped,
    /// The letter does not exist any more.
    Gone,
    /// Refused: by the journal, the order took units that were not released. The letter stays.
    HoldsUnits,
}

/// The order in a dead letter. `None` if the letter holds no order, or if another program than Tidegate wrote the
/// letter.
#[must_use]
pub fn buried_order(fields: &FieldNames, letter: &Letter) -> Option<Order> {
    letter.burial.as_ref()?;
    fields.decode(&letter.entry()).ok()
}

/// Access to the dead letters of a stream: reads them, puts them back into the stream, cancels their orders, or deletes
/// them.
#[derive(Clone, Debug)]
pub struct DeadLetters {
    redis: RedisStore,
    requeue: Script,
    cancel: Script,
    drop: Script,
}

impl DeadLetters {
    /// Creates access to the dead letters in the Redis of `store`, a [`RedisStore`].
    #[must_use]
    pub fn new(redis: RedisStore) -> Self {
        Self {
            redis,
            requeue: Script::new("requeue", include_str!("../../../lua/requeue.lua")),
            cancel: Script::new("cancel", include_str!("../../../lua/cancel.lua")),
            drop: Script::new("drop", include_str!("../../../lua/drop.lua")),
        }
    }

    /// The name of the stream that holds the dead letters.
    #[must_use]
    pub fn stream_name(&self) -> &str {
        &self.redis.inspector().names().dead
    }

    /// Counts the dead letters in the stream.
    ///
    /// # Errors
    /// If Redis does not answer, or the key holds no stream.
    pub async fn count(&self) -> Result<u64, StreamError> {
        self.redis.inspector().length(&self.redis.inspector().names().dead).await
    }

    /// The id of the newest dead letter, or [`EntryId::MIN`] if there is no dead letter.
    ///
    /// # Errors
    /// As [`DeadLetters::count`].
    pub async fn last_id(&self) -> Result<EntryId, StreamError> {
        self.redis.inspector().last_id(&self.redis.inspector().names().dead).await
    }

    /// Reads up to `count` dead letters, oldest first, with ids greater than the first given id, up to and including
    /// the second given id.
    ///
    /// # Errors
    /// As [`DeadLetters::count`].
    pub async fn page(&self, range: (EntryId, EntryId), count: u16) -> Result<Vec<Letter>, StreamError> {
        let entries = self.redis.inspector().page(&self.redis.inspector().names().dead, range, count).await?;
        Ok(entries.into_iter().map(Letter::parse).collect())
    }

    /// Reads the dead letter with the given id. The result is `None` if no letter has this id.
    ///
    /// # Errors
    /// As [`DeadLetters::count`].
    pub async fn find(&self, id: EntryId) -> Result<Option<Letter>, StreamError> {
        Ok(self.redis.inspector().entry(&self.redis.inspector().names().dead, id).await?.map(Letter::parse))
    }

    /// Puts a dead letter back into the stream, with its history.
    ///
    /// # Errors
    /// See [`ScriptError`]. The letter is either back in the stream or still in place, never both and never neither.
    pub async fn requeue(&self, letter: &Letter) -> Result<RequeueReply, ScriptError> {
        let order = self.order_of(letter).ok();
        let mut keys = self.streams();
        keys.extend(order.as_ref().map(|order| self.redis.keys().journal(order.voucher)));
        let mut args: Vec<Value> = vec![letter.id.to_string().into(), id_of(order.as_ref()).into()];
        for (name, value) in letter.carried() {
            args.extend([Value::Bytes(name), Value::Bytes(value)]);
        }
        let reply = self.requeue.call(self.redis.pool(), keys, args).await?;
        let added = reply.as_bytes().and_then(|text| str::from_utf8(text).ok()?.parse().ok());
        let code = |code| match code {
            0 => Some(RequeueReply::Gone),
            1 => Some(RequeueReply::Released),
            _ => None,
        };
        added.map_or_else(|| understood("requeue.lua", &reply, code), |id| Ok(RequeueReply::Requeued(id)))
    }

    /// Releases the order of a dead letter (returns its units to the stock), and deletes the letter. Before this call,
    /// MySQL must record that the order may not be written: see [`crate::Ledger::cancel_unwritten`].
    ///
    /// # Errors
    /// See [`ScriptError`]. Either the order is released and the letter deleted, or nothing was changed.
    pub async fn cancel(
        &self,
        letter: &Letter,
        order: &Order,
        user_after: UserAfter,
    ) -> Result<CancelReply, ScriptError> {
        let Order { id, user, voucher, quantity, .. } = order;
        let mut keys = self.streams();
        keys.extend([
            self.redis.keys().stock(*voucher),
            self.redis.keys().buyers(*voucher),
            self.redis.keys().journal(*voucher),
        ]);
        let frees = if user_after == UserAfter::Freed { 1 } else { 0 };
        let mut args: Vec<Value> = vec![
            letter.id.to_string().into(),
            id.get().into(),
            user.get().into(),
            quantity.get().into(),
            frees.into(),
            "operator:dead_cancel".into(),
        ];
        args.extend(self.old_entries(letter).await?);
        let reply = match self.cancel.call(self.redis.pool(), keys, args).await {
            Err(error) if error.details().contains(": LIMITED ") => {
                return self.cancel_limited(letter, order, user_after).await;
            }
            reply => reply.map_err(|error| of_order(*id, error))?,
        };
        understood("cancel.lua", &reply, |code| match code {
            0 => Some(CancelReply::Gone),
            1 => Some(CancelReply::Cancelled(ReleaseReply::Released)),
            2 => Some(CancelReply::Cancelled(ReleaseReply::ReleasedWithoutStock)),
            3 => Some(CancelReply::Cancelled(ReleaseReply::ReleasedBefore)),
            4 => Some(CancelReply::Cancelled(ReleaseReply::NotAdmitted)),
            5 => Some(CancelReply::Cancelled(ReleaseReply::NoSale)),
            _ => None,
        })
    }

    /// As [`DeadLetters::cancel`], for an order of a voucher with limits: in two steps. Each step can be repeated.
    async fn cancel_limited(
        &self,
        letter: &Letter,
        order: &Order,
        user_after: UserAfter,
    ) -> Result<CancelReply, ScriptError> {
        let Order { id, user, voucher, quantity, .. } = order;
        let release = Release {
            order: *id,
            user: *user,
            voucher: *voucher,
            units: Some(*quantity),
            user_after,
            by: "operator:dead_cancel".into(),
        };
        let released = self.redis.releases().release(&release).await?;
        Ok(match self.delete(letter, None).await? {
            DropReply::Gone if released == ReleaseReply::ReleasedBefore => CancelReply::Gone,
            _ => CancelReply::Cancelled(released),
        })
    }

    /// Deletes a dead letter whose order has no units to return to the stock.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn drop(&self, letter: &Letter) -> Result<DropReply, ScriptError> {
        self.delete(letter, self.order_of(letter).ok()).await
    }

    /// Deletes the dead letter of an order that is written in MySQL. The row in MySQL says how many units the order
    /// took.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn drop_written(&self, letter: &Letter) -> Result<DropReply, ScriptError> {
        self.delete(letter, None).await
    }

    /// Deletes a letter, unless the journal holds units that this order took.
    async fn delete(&self, letter: &Letter, order: Option<Order>) -> Result<DropReply, ScriptError> {
        let mut keys = self.streams();
        keys.extend(order.as_ref().map(|order| self.redis.keys().journal(order.voucher)));
        let user = order.as_ref().map_or_else(String::new, |order| order.user.to_string());
        let mut args: Vec<Value> =
            vec![letter.id.to_string().into(), id_of(order.as_ref()).into(), user.into()];
        // Only the letter's own entries, with or without a history: a forged letter must not delete the entry of
        // another order.
        args.extend(self.old_entries(letter).await?);
        let reply = self.drop.call(self.redis.pool(), keys, args).await?;
        understood("drop.lua", &reply, |code| match code {
            0 => Some(DropReply::Gone),
            1 => Some(DropReply::Dropped),
            2 => Some(DropReply::HoldsUnits),
            _ => None,
        })
    }

    /// Decodes the order that a dead letter holds.
    ///
    /// # Errors
    /// If the letter holds no order; the error says why.
    pub fn order_of(&self, letter: &Letter) -> Result<Order, WireError> {
        self.fields().decode(&letter.entry())
    }

    /// The names of the fields from which the orders in dead letters are decoded.
    #[must_use]
    pub fn fields(&self) -> &FieldNames {
        self.redis.keys().fields()
    }

    fn streams(&self) -> Vec<Key> {
        let names = self.redis.inspector().names();
        vec![names.dead.as_str().into(), names.stream.as_str().into()]
    }

    /// The ids of the entries that this letter was before, as far as they still exist in the stream and match the
    /// letter.
    async fn old_entries(&self, letter: &Letter) -> Result<Vec<Value>, ScriptError> {
        let mut own = Vec::new();
        let before = without_uses(letter);
        let is_own =
            |entry: &Entry| letter.is_of(entry) || before.as_ref().is_some_and(|before| before.is_of(entry));
        for id in letter.entries() {
            let entry = self
                .redis
                .inspector()
                .entry(&self.redis.inspector().names().stream, id)
                .await
                .map_err(unread)?;
            own.extend(entry.filter(is_own).map(|entry| entry.id.to_string().into()));
        }
        Ok(own)
    }
}

/// Adds a field to the fields of a dead letter: the limits that the letter's order counts against. The entry then has
/// this field when the letter is put back into the stream.
#[must_use]
pub fn with_uses(letter: &Letter, uses: &Uses) -> Letter {
    let mut with_uses = letter.clone();
    with_uses.fields.push((USES.into(), uses.to_string().into()));
    with_uses
}

/// The letter without the note of [`with_uses`] that its order used no limits. `None` if the letter has no such note.
fn without_uses(letter: &Letter) -> Option<Letter> {
    let ((name, value), fields) = letter.fields.split_last()?;
    (name == USES && value.is_empty()).then(|| Letter { fields: fields.to_vec(), ..letter.clone() })
}

fn id_of(order: Option<&Order>) -> String {
    order.map_or_else(String::new, |order| order.id.to_string())
}

fn unread(error: StreamError) -> ScriptError {
    match error {
        StreamError::Redis(error) => Error::from(error).into(),
        error => ScriptError::Unexpected { place: "the stream".to_owned(), got: error.to_string() },
    }
}
