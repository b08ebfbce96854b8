//! The end of a sale for good: it is over for everybody, and later its keys are removed.

use fred::{
    interfaces::ClientLike,
    types::{ClusterHash, CustomCommand, Key, Value},
};
use futures_util::future::try_join_all;

use crate::gate::{GateError, Sales, understood};
use crate::{keys::naming, limits::LimitOwner, order::VoucherId};

/// Elements of a key that are looked at to tell its size.
const SAMPLES: i64 = 100;

/// What became of delisting a voucher in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DelistReply {
    /// Redis has neither stock nor buyers nor journal of it.
    NoSale,
    /// Its sale is over from now on.
    Delisted,
    /// It was delisted before.
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

/// What became of removing the keys of a delisted voucher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemovedKeys {
    /// There were none.
    NoKeys,
    /// They are gone.
    Removed,
    /// Refused: it is not delisted, or since another moment.
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

/// What the keys of a sale take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaleKeys {
    /// How many there are: at most four, and three more with limits.
    pub keys: u64,
    /// Bytes of memory, about.
    pub bytes: u64,
}

impl Sales {
    /// Ends the sale of a voucher for good. MySQL must have been told before.
    ///
    /// # Errors
    /// See [`GateError`]. May be asked again.
    pub async fn delist(&self, voucher: VoucherId) -> Result<DelistReply, GateError> {
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

    /// Removes all keys of a voucher that is delisted since `delisted_ms`, as Redis has it.
    ///
    /// # Errors
    /// See [`GateError`]. May be asked again.
    pub async fn remove_delisted(
        &self,
        voucher: VoucherId,
        delisted_ms: i64,
    ) -> Result<RemovedKeys, GateError> {
        let args = vec![delisted_ms.to_string().into()];
        let reply = self.remove_delisted.call(&self.access.pool, self.all_keys(voucher), args).await?;
        understood("remove_delisted.lua", &reply, RemovedKeys::from_code)
    }

    /// How much memory the keys of a sale take. Of a large one, a hundred elements say it for all.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn weigh(&self, voucher: VoucherId) -> Result<SaleKeys, GateError> {
        let client = self.access.pool.next();
        let weigh = async |key: Key| {
            let command = CustomCommand::new_static("MEMORY", ClusterHash::Random, false);
            let args: Vec<Value> = vec!["USAGE".into(), key.clone().into(), "SAMPLES".into(), SAMPLES.into()];
            let bytes: Option<u64> =
                client.custom(command, args).await.map_err(|error| naming(&key, error))?;
            Ok::<_, GateError>(bytes)
        };
        let bytes = try_join_all(self.all_keys(voucher).into_iter().map(weigh)).await?;
        let bytes: Vec<u64> = bytes.into_iter().flatten().collect();
        Ok(SaleKeys { keys: bytes.len() as u64, bytes: bytes.iter().sum() })
    }

    /// All keys of a sale, those that it has only while it has limits included.
    fn all_keys(&self, voucher: VoucherId) -> Vec<Key> {
        let (keys, owner) = (&self.access.keys, LimitOwner::Voucher(voucher));
        let of_limits = [keys.limited(voucher), keys.limits(owner).rules(), keys.limits(owner).uses()];
        self.access.keys.of_sale(voucher).into_iter().chain(of_limits).collect()
    }
}
