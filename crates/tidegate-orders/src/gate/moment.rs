//! What a comparison of a voucher begins with: its stock, and the time at which that was its stock.

use std::time::Duration;

use fred::{
    interfaces::ClientLike,
    types::{ClusterHash, CustomCommand, Value},
};

use super::{Gate, GateError};
use crate::{
    order::VoucherId,
    records::journal::{Moment, Purged},
};

/// How often the clock is looked at, a millisecond apart: after that it was set back, and the sum will be unsure.
const MOST_TRIES: u32 = 100;

impl Gate {
    /// Reads a voucher at one moment, by `lua/moment.lua`, and returns when the millisecond of the moment is over: the journal
    /// then holds all movements of that millisecond. Changes nothing. It costs Redis the same, however large the journal.
    ///
    /// # Errors
    /// See [`GateError`]. A key of another type is [`GateError::Refused`], a stock that is no number [`GateError::Unexpected`].
    pub async fn moment(&self, voucher: VoucherId) -> Result<Moment, GateError> {
        let keys = vec![
            self.keys.stock(voucher),
            self.keys.journal(voucher),
            self.stream.clone(),
            self.keys.limited(voucher),
        ];
        let reply = self.moment.call(&self.pool, keys, Vec::new()).await?;
        let moment = read(&reply).ok_or_else(|| GateError::Unexpected {
            place: format!("the stock or the stream of voucher {voucher}"),
            got: format!("{reply:?}"),
        })?;
        for _ in 0..MOST_TRIES {
            if self.clock_ms().await? > moment.at_ms {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(moment)
    }

    /// The clock of Redis, in Unix milliseconds.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn clock_ms(&self) -> Result<i64, GateError> {
        let time = CustomCommand::new_static("TIME", ClusterHash::Random, false);
        let (seconds, micros): (i64, i64) = self.pool.next().custom(time, Vec::<Value>::new()).await?;
        Ok(seconds * 1000 + micros / 1000)
    }
}

fn read(reply: &Value) -> Option<Moment> {
    let Value::Array(parts) = reply else { return None };
    let [stock, at_ms, stream_end, is_complete, journaled, purged] = parts.as_slice() else { return None };
    let stock = if stock.is_null() { None } else { Some(text(stock)?.parse().ok()?) };
    Some(Moment {
        stock,
        at_ms: at_ms.as_i64()?,
        stream_end: text(stream_end)?.parse().ok()?,
        is_complete: is_complete.as_i64()? == 1,
        journaled: journaled.as_u64()?,
        purged: purged.as_bytes().and_then(Purged::parse),
    })
}

fn text(value: &Value) -> Option<&str> {
    str::from_utf8(value.as_bytes()?).ok()
}

#[cfg(test)]
mod tests {
    use tidegate_stream::EntryId;

    use super::*;

    #[test]
    fn a_reply_is_read_and_a_stock_that_is_no_number_is_not() {
        let reply = |stock: Value| {
            Value::Array(vec![
                stock,
                1_718_000_000_000_i64.into(),
                "5-1".into(),
                1.into(),
                3.into(),
                Value::Null,
            ])
        };
        let moment = read(&reply("-2".into())).unwrap();
        assert_eq!((moment.stock, moment.at_ms, moment.journaled), (Some(-2), 1_718_000_000_000, 3));
        assert_eq!((moment.stream_end, moment.is_complete), (EntryId { ms: 5, seq: 1 }, true));
        assert_eq!(read(&reply(Value::Null)).unwrap().stock, None);
        assert_eq!(read(&reply("ten".into())), None);
        assert_eq!(read(&1.into()), None);
    }
}
