//! What became of one order: what both sides hold of it, with times. Reads only.
//!
//! An order id tells neither voucher nor entry. So whatever names them is followed: the row or refusal in MySQL, dead
//! letters, the journals of vouchers, the time within the id. Only where all that leads nowhere, the stream is searched,
//! from its end on and within a limit.

mod mysql_side;
mod redis_side;

use std::{collections::BTreeSet, fmt::Display, time::Duration};

use serde::Serialize;
use sqlx::MySqlPool;
use tidegate_stream::{Entry, EntryId, Letter, readable};

pub use mysql_side::{Decided, OrderRow, RefusalRow, decided, find_refusal, find_row, refusals_of, rows_of};
pub use redis_side::{
    EntryFacts, EntryState, JournalFacts, LetterFacts, LockFacts, Searched, Trail, Wanted, carries, letter,
    wanted,
};

use crate::{
    order::{OrderId, UserId, VoucherId},
    order_id::{self, EPOCH_SECONDS},
    sale,
    vouchers::{self, VoucherError},
};

/// Vouchers of MySQL that are looked through, those with the highest ids, where nothing tells which one is meant.
pub const VOUCHER_LIMIT: u32 = 1_000;

/// Around the time in the journal: the script that wrote it added the entry, too.
const BESIDE_JOURNAL_MS: (u64, u64) = (1_000, 10_000);
/// Around the time in the order id: its clock may differ, and the id may have waited for its order.
const BESIDE_ID_MS: (u64, u64) = (60_000, 600_000);

/// Which order, and what is known of it beforehand.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// The order.
    pub order: OrderId,
    /// Its voucher.
    pub voucher: Option<VoucherId>,
    /// Its user.
    pub user: Option<UserId>,
    /// Its entry.
    pub entry: Option<EntryId>,
    /// Entries of each stream that are looked at, at most.
    pub budget: u64,
}

/// Everything that was found of one order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Story {
    /// The clock of Redis, in Unix milliseconds.
    pub now_ms: u64,
    /// The time within its id, in Unix milliseconds, if it has one.
    pub made_ms: Option<u64>,
    /// Its row.
    pub row: Option<OrderRow>,
    /// Its refusal.
    pub refusal: Option<RefusalRow>,
    /// What journals say.
    pub journal: Vec<JournalFacts>,
    /// Entries that carry it, the latest first.
    pub entries: Vec<EntryFacts>,
    /// Entries that are named somewhere, but are neither in the stream nor pending.
    pub trimmed: Vec<String>,
    /// Dead letters that carry it, the latest first.
    pub letters: Vec<LetterFacts>,
    /// Vouchers whose buyers its user is one of, among those that the order may be for.
    pub buyer_of: Vec<VoucherId>,
    /// The lock of its user, where it is in flight.
    pub lock: Option<LockFacts>,
    /// How far it was searched.
    pub searched: Search,
    /// What could not be read.
    pub errors: Vec<String>,
}

/// How far was searched for an order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Search {
    /// MySQL was asked.
    pub mysql: bool,
    /// The stream.
    pub stream: Searched,
    /// The stream of dead letters.
    pub dead: Searched,
    /// Journals that were looked into.
    pub journals: u64,
    /// These were those of all vouchers, or of the one that is meant.
    pub all_journals: bool,
}

/// The stores, as far as they can be reached.
#[derive(Clone, Copy, Debug)]
pub struct Stores<'a> {
    /// Redis.
    pub redis: Option<&'a Trail<'a>>,
    /// MySQL.
    pub mysql: Option<&'a MySqlPool>,
    /// How long a statement of MySQL may take.
    pub patience: Duration,
}

impl Stores<'_> {
    /// Follows an order through both stores. What cannot be read stands in [`Story::errors`]. `seen` is told how many
    /// entries were searched.
    pub async fn tell(&self, question: &Question, seen: impl Fn(u64) + Copy) -> Story {
        let mut story = Story::default();
        self.read_mysql(question.order, &mut story).await;
        if let Some(trail) = self.redis {
            self.follow(trail, question, &mut story, seen).await;
            if !story.is_explained() {
                // It may have moved on while we looked: away from Redis, into MySQL or the dead letters.
                self.read_mysql(question.order, &mut story).await;
                read_letters(trail, question, &mut story, seen).await;
            }
        }
        story.made_ms = story.made_ms.filter(|made_ms| is_likely(*made_ms, story.earliest_ms()));
        story
    }

    async fn read_mysql(&self, order: OrderId, story: &mut Story) {
        let Some(mysql) = self.mysql else { return };
        let both = async { tokio::try_join!(find_row(mysql, order), find_refusal(mysql, order)) };
        match self.in_time(both).await {
            Ok((row, refusal)) => {
                (story.row, story.refusal, story.searched.mysql) = (row, refusal, true);
            }
            Err(error) => story.fail("MySQL", error),
        }
    }

    async fn in_time<T>(&self, read: impl Future<Output = Result<T, VoucherError>>) -> Result<T, String> {
        match tokio::time::timeout(self.patience, read).await {
            Ok(read) => read.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {} ms", self.patience.as_millis())),
        }
    }

    async fn follow(
        &self,
        trail: &Trail<'_>,
        question: &Question,
        story: &mut Story,
        seen: impl Fn(u64) + Copy,
    ) {
        match tidegate_stream::server_time_ms(trail.pool).await {
            Ok(now_ms) => story.now_ms = now_ms,
            Err(error) => return story.fail("Redis", error),
        }
        story.made_ms = made_ms(question.order, story.now_ms);
        read_letters(trail, question, story, seen).await;
        self.read_journals(trail, question, story).await;
        read_named_entries(trail, question, story).await;
        search_stream(trail, question, story, seen).await;
        read_user(trail, question, story).await;
    }

    async fn read_journals(&self, trail: &Trail<'_>, question: &Question, story: &mut Story) {
        let mut known = story.vouchers(question);
        if !known.is_empty() {
            story.searched.all_journals = true;
            return look_into(trail, &known, question, story).await;
        }
        // These first: it is most often for one of them, and all keys of Redis take longer.
        if let Some(mysql) = self.mysql {
            match self.in_time(vouchers::latest(mysql, VOUCHER_LIMIT)).await {
                Ok(rows) => known = rows.iter().map(|row| row.voucher).collect(),
                Err(error) => story.fail("MySQL", error),
            }
        }
        look_into(trail, &known, question, story).await;
        story.searched.all_journals = !story.journal.is_empty() && known.len() < VOUCHER_LIMIT as usize;
        if story.searched.all_journals {
            return;
        }
        match sale::find_journaled(trail.pool, trail.keys, |_| {}).await {
            Ok(journaled) => {
                let others = journaled.into_iter().filter(|voucher| !known.contains(voucher)).collect();
                look_into(trail, &others, question, story).await;
                story.searched.all_journals = true;
            }
            Err(error) => story.fail("the keys", error),
        }
    }
}

impl Story {
    /// Something tells where it ended, or that it is on its way.
    #[must_use]
    pub fn is_explained(&self) -> bool {
        self.row.is_some() || self.refusal.is_some() || self.entries.iter().any(|entry| entry.state.is_open())
    }

    /// Nothing was found of it.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.row.is_none()
            && self.refusal.is_none()
            && self.journal.is_empty()
            && self.entries.is_empty()
            && self.letters.is_empty()
    }

    /// When it was first heard of: entries and journals have the time of Redis.
    fn earliest_ms(&self) -> Option<u64> {
        let admitted = self.journal.iter().filter(|journal| journal.is_admission());
        let admitted = admitted.filter_map(|journal| u64::try_from(journal.at_ms?).ok());
        let named = self.row.iter().filter_map(|row| row.entry.as_ref());
        let named = named.chain(self.letters.iter().filter_map(|letter| letter.entry.as_ref()));
        let named = named.filter_map(|entry| Some(entry.parse::<EntryId>().ok()?.ms));
        admitted.chain(named).chain(self.entries.iter().map(|entry| entry.id.ms)).min()
    }

    /// Vouchers that it is for, after all that is known.
    fn vouchers(&self, question: &Question) -> BTreeSet<VoucherId> {
        let mysql = self.row.iter().map(|row| row.voucher);
        let mysql = mysql.chain(self.refusal.iter().map(|refusal| refusal.voucher));
        let mut vouchers: BTreeSet<VoucherId> =
            mysql.filter_map(|voucher| VoucherId::try_from(voucher).ok()).collect();
        vouchers.extend(question.voucher);
        vouchers.extend(self.letters.iter().filter_map(|letter| letter.wanted.voucher));
        vouchers.extend(self.journal.iter().map(|journal| journal.voucher));
        let wanted = self.entries.iter().filter_map(|entry| entry.wanted.as_ref());
        vouchers.extend(wanted.filter_map(|wanted| wanted.voucher));
        vouchers
    }

    /// Its user, after all that is known.
    #[must_use]
    pub fn user(&self, question: &Question) -> Option<UserId> {
        let mysql = self.row.as_ref().map(|row| row.user).or(self.refusal.as_ref().map(|it| it.user));
        let admitted = self.journal.iter().filter(|journal| journal.is_admission());
        let entries = self.entries.iter().filter_map(|entry| entry.wanted.as_ref());
        let letters = self.letters.iter().map(|letter| &letter.wanted);
        question
            .user
            .or_else(|| entries.chain(letters).find_map(|wanted| wanted.user))
            .or_else(|| mysql.and_then(|user| UserId::try_from(user).ok()))
            .or_else(|| admitted.filter_map(|journal| journal.by.as_deref()?.parse().ok()).next())
    }

    fn fail(&mut self, what: &str, error: impl Display) {
        let error = format!("{what}: {}", readable(&error.to_string()));
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }
}

/// A time within an id is none where the order was first heard of at quite another one: many numbers look like our ids.
fn is_likely(made_ms: u64, earliest_ms: Option<u64>) -> bool {
    let (before, after) = BESIDE_ID_MS;
    earliest_ms.is_none_or(|ms| (made_ms.saturating_sub(before)..=made_ms + after).contains(&ms))
}

/// When an order was made, if its id is one of ours.
fn made_ms(order: OrderId, now_ms: u64) -> Option<u64> {
    let (seconds, sequence) = order_id::decompose(order);
    let ms = u64::try_from((EPOCH_SECONDS + seconds) * 1_000).ok()?;
    (seconds > 0 && sequence > 0 && ms <= now_ms + BESIDE_ID_MS.0).then_some(ms)
}

async fn read_letters(trail: &Trail<'_>, question: &Question, story: &mut Story, seen: impl Fn(u64) + Copy) {
    let names = trail.survey.names();
    // A second time, only what has come since.
    let after = story.letters.first().map_or(EntryId::MIN, |letter| letter.id.next());
    let mut budget = question.budget;
    let is_meant =
        |entry: &Entry| carries(trail.keys.fields(), &Letter::parse(entry.clone()).entry(), question.order);
    let all = (after, EntryId::MAX);
    match trail.search(&names.dead, all, &mut budget, is_meant, seen).await {
        Ok((found, searched)) => {
            story.letters.splice(
                ..0,
                found.into_iter().map(|entry| letter(trail.keys.fields(), &Letter::parse(entry))),
            );
            let before = &mut story.searched.dead;
            *before = Searched { entries: before.entries + searched.entries, ..searched };
        }
        Err(error) => story.fail("the dead letters", error),
    }
}

async fn look_into(
    trail: &Trail<'_>,
    vouchers: &BTreeSet<VoucherId>,
    question: &Question,
    story: &mut Story,
) {
    story.searched.journals += vouchers.len() as u64;
    let vouchers: Vec<VoucherId> = vouchers.iter().copied().collect();
    match trail.journals(&vouchers, question.order).await {
        Ok(journal) => story.journal.extend(journal),
        Err(error) => story.fail("the journals", error),
    }
}

/// The entries that something names.
async fn read_named_entries(trail: &Trail<'_>, question: &Question, story: &mut Story) {
    let letters = story.letters.iter().filter_map(|letter| letter.entry.as_deref());
    let row = story.row.as_ref().and_then(|row| row.entry.as_deref());
    let refusal = story.refusal.as_ref().map(|refusal| refusal.entry.as_str());
    let named = letters.chain(row).chain(refusal).filter_map(|id| id.parse().ok());
    let named: BTreeSet<EntryId> = named.chain(question.entry).collect();
    for id in named.into_iter().rev() {
        match trail.entry(id).await {
            Ok(Some(facts)) => story.entries.push(facts),
            Ok(None) => story.trimmed.push(id.to_string()),
            Err(error) => story.fail("the stream", error),
        }
    }
}

/// Looks where it should be, then everywhere, as long as nothing explains what became of the order.
async fn search_stream(trail: &Trail<'_>, question: &Question, story: &mut Story, seen: impl Fn(u64) + Copy) {
    let around = |ms: u64, (before, after): (u64, u64)| {
        (EntryId { ms: ms.saturating_sub(before), seq: 0 }, EntryId { ms: ms.saturating_add(after), seq: 0 })
    };
    let admitted = story.journal.iter().filter(|journal| journal.is_admission());
    let admitted = admitted.filter_map(|journal| u64::try_from(journal.at_ms?).ok());
    let mut places: Vec<_> = admitted.map(|ms| around(ms, BESIDE_JOURNAL_MS)).collect();
    places.extend(story.made_ms.map(|ms| around(ms, BESIDE_ID_MS)));
    places.push((EntryId::MIN, EntryId::MAX));

    let stream = trail.survey.names().stream.clone();
    // Half of it for where it should be, at most: what is said of the search is how far it came from the end on.
    let mut budget = question.budget / 2;
    let is_meant = |entry: &Entry| carries(trail.keys.fields(), entry, question.order);
    story.searched.stream.complete = true;
    for place in places {
        if story.is_explained() {
            return;
        }
        if place.0 == EntryId::MIN {
            budget = question.budget - story.searched.stream.entries;
        }
        let (found, searched) = match trail.search(&stream, place, &mut budget, is_meant, seen).await {
            Ok(found) => found,
            Err(error) => return story.fail("the stream", error),
        };
        let entries = story.searched.stream.entries + searched.entries;
        story.searched.stream = Searched { entries, ..searched };
        for entry in found {
            if story.entries.iter().any(|known| known.id == entry.id) {
                continue;
            }
            match trail.facts(entry.id, Some(wanted(trail.keys.fields(), &entry))).await {
                Ok(facts) => story.entries.push(facts),
                Err(error) => return story.fail("the stream", error),
            }
        }
    }
}

/// The user's place among the buyers, and what keeps an order from being written.
async fn read_user(trail: &Trail<'_>, question: &Question, story: &mut Story) {
    let Some(user) = story.user(question) else { return };
    let vouchers: Vec<VoucherId> = story.vouchers(question).into_iter().collect();
    match trail.bought(&vouchers, user).await {
        Ok(bought) => story.buyer_of = bought,
        Err(error) => story.fail("the buyers", error),
    }
    if story.entries.iter().any(|entry| entry.state.is_open()) {
        match trail.lock(user).await {
            Ok(lock) => story.lock = lock,
            Err(error) => story.fail("the lock", error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_ours_tells_when_it_was_made_and_others_do_not() {
        let now_ms = 1_800_000_000_000;
        let seconds = 1_790_000_000 - EPOCH_SECONDS;
        let ours = order_id::compose(seconds, 7).unwrap();
        assert_eq!(made_ms(ours, now_ms), Some(1_790_000_000_000));
        for other in [1, 1_001, i64::MAX] {
            assert_eq!(made_ms(other.try_into().unwrap(), now_ms), None, "{other}");
        }
    }
}
