//! Ends a sale for good: it is over for all users, and later its keys are removed.

use fred::{
    interfaces::ClientLike,
    types::{ClusterHash, CustomCommand, Key, Value},
};
use futures_util::future::try_join_all;

use crate::scripts::{Sales, ScriptError, understood};
use crate::{keys::naming, limits::LimitOwner, order::VoucherId};

/// The number of elements that Redis samples to estimate the size of a key.
const SAMPLES: i64 = 100;

/// The reply to a call that delists a voucher in Redis: ends its sale permanently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DelistReply {
    /// Redis has neither stock nor buyers nor journal of this voucher.
    NoSale,
    /// The sale is over from now on.
    Delisted,
    /// The voucher was already delisted.
    DelistedBefore,
}

impl DelistReply {
    const fn from_code(code: i64) -> Option<Self> {
        Some(match code {
            0 => Self::NoSale,
            1 => Self::Delisted,
            2 => Self::DelistedBefore,
            _ => return None,
        })
    }
}

/// The reply to a call that removes the keys of a delisted voucher, whose sale has ended permanently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemovedKeys {
    /// There were no keys to remove.
    NoKeys,
    /// The keys are removed by this call.
    Removed,
    /// Refused: the voucher is not delisted, or it was delisted at another time.
    NotDelisted,
    /// Refused: a change of its stock is unfinished.
    BeingAdjusted,
}

impl RemovedKeys {
    const fn from_code(code: i64) -> Option<Self> {
        Some(match code {
            0 => Self::NoKeys,
            1 => Self::Removed,
            2 => Self::NotDelisted,
            3 => Self::BeingAdjusted,
            _ => return None,
        })
    }
}

/// The number of the keys of a sale in Redis, and the memory that they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaleKeys {
    /// The number of the sale's keys: at most four, or at most seven if the voucher has limits.
    pub keys: u64,
    /// The memory that the sale's keys take, in bytes, as Redis estimates it.
    pub bytes: u64,
}

impl Sales {
    /// Delists a voucher in Redis: ends its sale permanently. The voucher must already be delisted in MySQL.
    ///
    /// # Errors
    /// See [`ScriptError`]. The call may be repeated.
    pub async fn delist(&self, voucher: VoucherId) -> Result<DelistReply, ScriptError> {
        let keys = self
            .access
            .keys
            .of_sale(voucher)
            .into_iter()
            .chain([self.access.keys.limited(voucher)])
            .collect();
        let reply = self.delist.call(&self.access.pool, keys, Vec::new()).await?;
        understood("delist.lua", &reply, DelistReply::from_code)
    }

    /// Removes all keys of a voucher, if the voucher was delisted in Redis (its sale ended permanently) at the time
    /// `delisted_ms`.
    ///
    /// # Errors
    /// See [`ScriptError`]. The call may be repeated.
    pub async fn remove_delisted(
        &self,
        voucher: VoucherId,
        delisted_ms: i64,
    ) -> Result<RemovedKeys, ScriptError> {
        let args = vec![delisted_ms.to_string().into()];
        let reply = self.remove_delisted.call(&self.access.pool, self.all_keys(voucher), args).await?;
        understood("remove_delisted.lua", &reply, RemovedKeys::from_code)
    }

    /// Reads how much memory the keys of a sale take. For a large key, Redis estimates the size from a hundred of its
    /// elements.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn weigh(&self, voucher: VoucherId) -> Result<SaleKeys, ScriptError> {
        let client = self.access.pool.next();
        let weigh = async |key: Key| {
            let command = CustomCommand::new_static("MEMORY", ClusterHash::Random, false);
            let args: Vec<Value> = vec!["USAGE".into(), key.clone().into(), "SAMPLES".into(), SAMPLES.into()];
            let bytes: Option<u64> =
                client.custom(command, args).await.map_err(|error| naming(&key, error))?;
            Ok::<_, ScriptError>(bytes)
        };
        let bytes = try_join_all(self.all_keys(voucher).into_iter().map(weigh)).await?;
        let bytes: Vec<u64> = bytes.into_iter().flatten().collect();
        Ok(SaleKeys { keys: bytes.len() as u64, bytes: bytes.iter().sum() })
    }

    /// All keys of a sale, including those that it has only while it has limits.
    fn all_keys(&self, voucher: VoucherId) -> Vec<Key> {
        let (keys, owner) = (&self.access.keys, LimitOwner::Voucher(voucher));
        let of_limits = [keys.limited(voucher), keys.limits(owner).rules(), keys.limits(owner).uses()];
        self.access.keys.of_sale(voucher).into_iter().chain(of_limits).collect()
    }
}
