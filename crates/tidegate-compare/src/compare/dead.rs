//! What a pass reads of the dead letters: orders that hold their units until an operator decides.

use crate::{
    CompareError,
    redis_side::{DeadLetter, DeadOrder},
    table::{Part, Said, hash_of},
};
use std::collections::{BTreeMap, HashSet};

use tidegate_orders::{JournalNote, order_status::LetterFact};

use super::{HOLDS, KNOWN, Pass};

/// Dead letters that are looked up at once.
const LOOKUP: usize = 500;

impl Pass<'_> {
    /// Reads all dead letters that hold an order, and counts those that hold units.
    pub(super) async fn read_dead(&mut self) -> Result<(), CompareError> {
        let mut dead = Vec::new();
        let add = |letter| match letter {
            DeadLetter::Order(order) => dead.push(order),
            // Where it seems lost it is looked at again.
            DeadLetter::Event(_) => {}
        };
        self.stores.redis().read_dead(self.places, self.pace, add).await?;
        dead.sort_by_key(|it| (it.place, it.order, it.user));
        dead.dedup_by_key(|it| (it.place, it.order, it.user));
        if self.part == Part::WHOLE {
            self.count_dead(&dead).await?;
        }
        dead.dedup_by_key(|it| (it.place, it.order));
        for DeadOrder { place, order, user, quantity, .. } in dead {
            let Some(sale) = self.sale(place).filter(|_| self.is_wanted(place, order)) else { continue };
            let what = if sale.is_complete { hash_of(&[HOLDS, user, quantity]) } else { hash_of(&[KNOWN]) };
            self.orders.take(&Said { id: order, voucher: place, what });
        }
        Ok(())
    }

    /// Counts the dead orders that hold units: Redis took units for them, and MySQL has not ended them. A row or a refusal of
    /// another owner under the same id says nothing about them.
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
            let admitted = self.admitted_under_taken_ids(dead).await?;
            for it in dead {
                let Some(voucher) = self.places.voucher(it.place) else { continue };
                let took_units =
                    it.fact == LetterFact::Order || admitted.contains(&(it.place, it.order, it.user));
                if took_units && !ended.contains(&(it.order, it.user, voucher.get())) {
                    let counts = self.counted.dead.entry(it.place).or_default();
                    (counts.0, counts.1) = (counts.0 + 1, counts.1 + it.quantity);
                }
            }
        }
        Ok(())
    }

    /// Which of the letters that died of a taken id hold units all the same: the journal says that their user was admitted. They
    /// are given as place, order and user.
    async fn admitted_under_taken_ids(
        &self,
        dead: &[DeadOrder],
    ) -> Result<HashSet<(u32, i64, i64)>, CompareError> {
        let mut taken: BTreeMap<u32, Vec<&DeadOrder>> = BTreeMap::new();
        for it in dead.iter().filter(|it| it.fact == LetterFact::IdTaken) {
            taken.entry(it.place).or_default().push(it);
        }
        let mut admitted = HashSet::new();
        for (place, letters) in taken {
            let Some(voucher) = self.places.voucher(place) else { continue };
            let orders: Vec<i64> = letters.iter().map(|it| it.order).collect();
            let (notes, _) = self.stores.redis().notes(voucher, &orders).await?;
            for (it, note) in letters.iter().zip(notes) {
                let note = note.and_then(|note| JournalNote::parse(&note)).filter(JournalNote::is_admission);
                if note.and_then(|note| note.by?.parse().ok()) == Some(it.user) {
                    admitted.insert((place, it.order, it.user));
                }
            }
        }
        Ok(admitted)
    }
}
