//! Whether the stock of a voucher is the sum of its journal: reads the journal in pieces, while the sale goes on.

use super::{Gate, GateError, Moment, ScanPages};
use crate::{
    order::VoucherId,
    records::journal::{JournalField, JournalNote, JournalSum, Sum},
};

/// How often a journal is looked at of which a look cannot tell.
const MOST_LOOKS: u32 = 3;

/// What a check of a voucher's stock found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumCheck {
    /// The journal is not complete: it says nothing of the stock.
    NotComplete,
    /// The journal holds so many fields, more than were to be read.
    TooLarge(u64),
    /// What came of it, at that moment.
    Checked(Moment, Sum),
}

impl Gate {
    /// Compares the stock of a voucher with the sum of its journal. Looks up to three times where a look cannot tell. Reads
    /// no journal of more than `most` fields; of others all, in pieces, and keeps none of it in memory.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn check_sum(&self, voucher: VoucherId, most: u64) -> Result<SumCheck, GateError> {
        let mut check = SumCheck::NotComplete;
        for _ in 0..MOST_LOOKS {
            let moment = self.moment(voucher).await?;
            if !moment.is_complete {
                return Ok(SumCheck::NotComplete);
            }
            if moment.journaled > most {
                return Ok(SumCheck::TooLarge(moment.journaled));
            }
            let sum = self.sum_since(voucher, moment).await?;
            check = SumCheck::Checked(moment, sum);
            if sum != Sum::Unsure {
                break;
            }
        }
        Ok(check)
    }

    async fn sum_since(&self, voucher: VoucherId, moment: Moment) -> Result<Sum, GateError> {
        let mut sum = JournalSum::new(moment);
        let mut pages = ScanPages::of_journal(self, voucher);
        while let Some(fields) = pages.next().await? {
            for (name, note) in &fields {
                let note = JournalNote::parse(note).unwrap_or_default();
                sum.add(JournalField::parse(&String::from_utf8_lossy(name)), &note);
            }
        }
        Ok(sum.finish(&self.moment(voucher).await?))
    }
}
