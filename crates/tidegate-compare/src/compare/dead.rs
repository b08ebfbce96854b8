//! The read of the dead letters in a comparison. Such orders take units from the stock until an operator decides.

use crate::{
    CompareError,
    redis_side::{DeadLetter, DeadOrder},
    table::{Part, Said, hash_of},
};
use std::collections::{BTreeMap, HashMap, HashSet};

use tidegate_orders::{JournalNote, UserId, order_status::LetterFact};

use super::{HOLDS, KNOWN, Pass};

/// The number of dead letters that are looked up at once.
const LOOKUP: usize = 500;

impl Pass<'_> {
    /// Reads all dead letters that hold an order, and counts those that hold units.
    pub(super) async fn read_dead(&mut self) -> Result<(), CompareError> {
        let (mut dead, counts) = (Vec::new(), &mut self.counted.counts);
        let add = |letter| match (letter, &mut *counts) {
            (DeadLetter::Order(order), _) => dead.push(order),
            (DeadLetter::Elsewhere(voucher), Some(counts)) => _ = counts.unplaced.insert(voucher),
            (DeadLetter::Unreadable(entries), Some(counts)) => counts.unreadable.add_dead(&entries),
            // A letter that seems lost is checked again.
            (DeadLetter::Event(_) | DeadLetter::Elsewhere(_) | DeadLetter::Unreadable(_), _) => {}
        };
        self.stores.redis().read_dead(self.index, self.pace, add).await?;
        dead.sort_by_key(|it| (it.place, it.order, it.user));
        dead.dedup_by_key(|it| (it.place, it.order, it.user));
        if self.part == Part::WHOLE {
            self.count_dead(&dead).await?;
        }
        dead.dedup_by_key(|it| (it.place, it.order));
        for DeadOrder { place, order, user, quantity, .. } in dead {
            let Some(sale) = self.sale(place).filter(|_| self.is_wanted(place, order)) else { continue };
            if self.is_counted && !sale.is_complete {
                continue;
            }
            let what = if sale.is_complete { hash_of(&[HOLDS, user, quantity]) } else { hash_of(&[KNOWN]) };
            self.orders.take(&Said { id: order, voucher: place, what });
        }
        Ok(())
    }

    /// Counts the dead orders that hold units: Redis took units for them, and MySQL has not ended them. A row or a
    /// refusal of another owner under the same id does not count.
    async fn count_dead(&mut self, dead: &[DeadOrder]) -> Result<(), CompareError> {
        let mysql = self.stores.mysql();
        for dead in dead.chunks(LOOKUP) {
            let ids: Vec<i64> = dead.iter().map(|it| it.order).collect();
            let rows = mysql
                .orders()
                .by_ids(&ids)
                .await?
                .into_iter()
                .map(|row| (row.order.get(), row.user, row.voucher));
            let mut ended: HashSet<(i64, i64, i64)> = rows.collect();
            let refusals = mysql.refusals().by_ids(&ids).await?.into_iter();
            ended.extend(refusals.map(|refusal| (refusal.order.get(), refusal.user, refusal.voucher)));
            let notes = self.notes_of_letters(dead).await?;
            for it in dead {
                let Some(voucher) = self.index.voucher(it.place) else { continue };
                let note = notes.get(&(it.place, it.order));
                let is_admitted = note.and_then(JournalNote::buyer).map(UserId::get) == Some(it.user);
                let is_ended = ended.contains(&(it.order, it.user, voucher.get()));
                if (it.fact == LetterFact::Order || is_admitted) && !is_ended {
                    let counts = self.counted.dead.entry(it.place).or_default();
                    (counts.0, counts.1) = (counts.0 + 1, counts.1 + it.quantity);
                }
                self.count_letter((it, voucher), note, is_ended);
            }
        }
        if let Some(counts) = &mut self.counted.counts {
            counts.sort();
        }
        Ok(())
    }

    /// Reads the journal notes of letters that died because their id was taken, as these orders may still hold units.
    /// If orders are counted, this reads the notes of all letters.
    async fn notes_of_letters(
        &self,
        dead: &[DeadOrder],
    ) -> Result<HashMap<(u32, i64), JournalNote>, CompareError> {
        let counts = self.counted.counts.is_some();
        let mut wanted: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
        for it in dead {
            if it.fact == LetterFact::IdTaken
                || counts && self.sale(it.place).is_some_and(|sale| sale.is_complete)
            {
                wanted.entry(it.place).or_default().push(it.order);
            }
        }
        let mut found = HashMap::new();
        for (place, orders) in wanted {
            let Some(voucher) = self.index.voucher(place) else { continue };
            let (notes, _) = self.stores.redis().notes(voucher, &orders).await?;
            let notes = notes.into_iter().map(|note| note.and_then(|note| JournalNote::parse(&note)));
            found.extend(
                orders.into_iter().zip(notes).filter_map(|(order, note)| Some(((place, order), note?))),
            );
        }
        Ok(found)
    }
}
