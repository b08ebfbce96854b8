//! What must hold, whatever has happened: each order that was put in has come out once, on both sides.

use std::collections::{BTreeMap, BTreeSet};

use fred::interfaces::SetsInterface;
use sqlx::MySqlPool;
use tidegate_lab::Endpoint;

use super::{
    STREAM, Site,
    judge::mysql::MysqlFacts,
    rush::{Pages, Wanted, Way},
};

/// What MySQL says of orders. Of a row: user, voucher and quantity.
pub struct Ends {
    orders: BTreeMap<i64, (i64, i64, i64)>,
    /// Rows that keep their orders from being written.
    cancelled: BTreeMap<i64, (i64, i64, i64)>,
    /// Refusals: order id → reason.
    refused: BTreeMap<i64, String>,
}

impl Ends {
    pub async fn read(pool: &MySqlPool) -> Self {
        let facts = MysqlFacts::of_orders(pool, None).await;
        let (mut orders, mut cancelled) = (BTreeMap::new(), BTreeMap::new());
        for (id, row) in facts.orders {
            let held = (row.user, row.voucher, row.quantity);
            if row.is_live() {
                orders.insert(id, held);
            } else if row.status == 4 {
                cancelled.insert(id, held);
            }
        }
        let refused = facts.refusals.into_iter().map(|(id, refusal)| (id, refusal.reason)).collect();
        Self { orders, cancelled, refused }
    }
}

/// What came out.
struct Seen {
    ends: Ends,
    /// Order ids whose journal entry is a release.
    released: BTreeSet<i64>,
    /// Entry ids of the dead letters, in order.
    dead: Vec<String>,
    /// Users in the buyers' sets.
    buyers: BTreeSet<(i64, i64)>,
}

impl<M: Endpoint> Site<M> {
    /// Ids of the orders that were refused for good.
    pub async fn refused(&self) -> BTreeSet<i64> {
        Ends::read(&self.pool).await.refused.into_keys().collect()
    }

    /// Ids of the orders that were released.
    pub async fn released(&self) -> BTreeSet<i64> {
        self.look(&self.book.read()).await.released
    }

    /// How many orders are written or refused.
    pub async fn outcomes(&self) -> usize {
        self.orders().await.len() + self.refused().await.len()
    }

    /// Checks everything that must hold at a quiet moment.
    ///
    /// # Panics
    /// With a list of all that does not.
    pub async fn invariants(&self) {
        let pages = self.book.read();
        let seen = self.look(&pages).await;
        let mut wrong = Vec::new();
        if self.open_entries().await != Some(0) {
            wrong.push(format!("open entries: {:?}", self.open_entries().await));
        }
        wrong.extend(fates(&pages, &seen.ends));
        wrong.extend(letters(&pages, &seen));
        if pages.redis_forgot {
            wrong.extend(self.stores("").mismatches_after_a_loss(&self.vouchers().await).await);
        } else {
            wrong.extend(gifts(&pages, &seen));
            wrong.extend(self.redis_sums(&pages, &seen).await);
            wrong.extend(self.mismatches().await);
        }
        none_is(&wrong);
    }

    /// Checks what must hold at a quiet moment, whatever was put in.
    ///
    /// # Panics
    /// With a list of all that does not.
    pub async fn judge(&self) {
        none_is(&self.left_apart("", &self.vouchers().await).await);
    }

    /// As [`Site::judge`], where so many entries are open: nobody works yet, or nobody any more.
    ///
    /// # Panics
    /// With a list of all that does not hold, and where another number of entries is open.
    pub async fn judge_with_open(&self, entries: usize) {
        self.judge_except(&[format!("{STREAM} has {entries} open entries")]).await;
    }

    /// As [`Site::judge`], where a test has made something wrong on purpose: each of these texts is in a finding, and each finding
    /// has one of them.
    ///
    /// # Panics
    /// With what is missing, or else wrong.
    pub async fn judge_except(&self, expected: &[impl AsRef<str>]) {
        let expected: Vec<&str> = expected.iter().map(AsRef::as_ref).collect();
        let found = self.left_apart("", &self.vouchers().await).await;
        let missing: Vec<_> =
            expected.iter().filter(|text| !found.iter().any(|what| what.contains(**text))).collect();
        assert!(missing.is_empty(), "{missing:?} is not among {found:#?}");
        let is_expected = |what: &String| expected.iter().any(|text| what.contains(text));
        none_is(&found.into_iter().filter(|what| !is_expected(what)).collect::<Vec<_>>());
    }

    /// What does not hold at a quiet moment, whatever was put in, a sentence each.
    pub async fn mismatches(&self) -> Vec<String> {
        self.stores("").mismatches(&self.vouchers().await, &self.book.read().loaded).await
    }

    /// As [`Site::judge`], of a system with these partitions, such as `3,1,0`; none: it is one whole.
    ///
    /// # Panics
    /// With a list of all that does not hold.
    pub async fn judge_partitions(&self, tags: &str) {
        if tags.is_empty() {
            return self.judge().await;
        }
        let tags: Vec<&str> = tags.split(',').collect();
        let vouchers = self.vouchers().await;
        for (at, tag) in tags.iter().enumerate() {
            let is_own = |voucher: &&i64| usize::try_from(**voucher).expect("small") % tags.len() == at;
            let vouchers: Vec<i64> = vouchers.iter().filter(is_own).copied().collect();
            none_is(&self.left_apart(&format!("{{{tag}}}:"), &vouchers).await);
        }
    }

    /// What does not hold of a system whose names in Redis begin with this, and whether its workers have left
    /// entries open: these would excuse what is missing of their orders.
    async fn left_apart(&self, prefix: &str, vouchers: &[i64]) -> Vec<String> {
        let stores = self.stores(prefix);
        let mut wrong = stores.mismatches(vouchers, &self.book.read().loaded).await;
        if let Some(open @ 1..) = stores.open_entries().await {
            wrong.push(format!("{prefix}{STREAM} has {open} open entries"));
        }
        wrong
    }

    async fn vouchers(&self) -> Vec<i64> {
        let vouchers = "SELECT CAST(voucher_id AS SIGNED) FROM tb_seckill_voucher";
        sqlx::query_scalar(vouchers).fetch_all(&self.pool).await.expect("MySQL answers")
    }

    async fn look(&self, pages: &Pages) -> Seen {
        let mut seen = Seen {
            ends: Ends::read(&self.pool).await,
            released: BTreeSet::new(),
            dead: self.dead().await.into_iter().map(|letter| letter["dead:entry"].clone()).collect(),
            buyers: BTreeSet::new(),
        };
        seen.dead.sort_unstable();
        for voucher in pages.loaded.keys() {
            let journal = self.journal(*voucher).await.into_iter();
            let released = journal.filter(|(_, entry)| entry.contains(r#""action":"release""#));
            seen.released.extend(released.map(|(id, _)| id.parse::<i64>().expect("an order id")));
            let key = format!("seckill:order:{voucher}");
            let users: Vec<i64> = self.client.smembers(key).await.expect("Redis answers");
            seen.buyers.extend(users.into_iter().map(|user| (*voucher, user)));
        }
        seen
    }

    /// Redis has sold what it admitted, and got back what was cancelled or refused for another reason than the stock, once.
    async fn redis_sums(&self, pages: &Pages, seen: &Seen) -> Vec<String> {
        let mut wrong = Vec::new();
        for (&voucher, &loaded) in &pages.loaded {
            let of_voucher = || pages.orders.iter().filter(|(_, wanted)| wanted.voucher == voucher);
            let units = |(_, wanted): (&i64, &Wanted)| wanted.quantity;
            let sold: i64 = of_voucher().filter(|(_, wanted)| wanted.way == Way::Gate).map(units).sum();
            let is_free = |id: &i64| {
                seen.ends.cancelled.contains_key(id)
                    || seen.ends.refused.get(id).is_some_and(|reason| reason != "out_of_stock")
            };
            let back: i64 = of_voucher().filter(|(id, _)| is_free(id)).map(units).sum();
            let left = self.redis_stock(voucher).await;
            if left != Some(loaded - sold + back) {
                wrong.push(format!(
                    "voucher {voucher}: {loaded} loaded, {sold} sold, {back} released, {left:?} left in Redis"
                ));
            }
        }
        wrong
    }
}

/// # Panics
/// With the first of what does not hold.
pub fn none_is(wrong: &[String]) {
    let shown: Vec<&String> = wrong.iter().take(20).collect();
    assert!(wrong.is_empty(), "{} things are wrong, such as: {shown:#?}", wrong.len());
}

/// Each order that was put in is an order, cancelled or a refusal, and nothing else came out. What a failover may have lost is
/// alive or has left nothing: its caller was told that it is admitted, so it is not refused.
pub fn fates(pages: &Pages, ends: &Ends) -> Vec<String> {
    let mut wrong = without_an_end(pages, ends);
    let rows = ends.orders.keys().chain(ends.cancelled.keys());
    let strange = rows.filter(|id| !pages.orders.contains_key(id));
    wrong.extend(strange.map(|id| format!("order {id} was never admitted")));
    wrong
}

/// Orders that were put in and are not what they should be.
pub fn without_an_end(pages: &Pages, ends: &Ends) -> Vec<String> {
    let mut wrong = Vec::new();
    for (id, wanted) in &pages.orders {
        let row = (wanted.user, wanted.voucher, wanted.quantity);
        match (ends.orders.get(id), ends.cancelled.get(id), ends.refused.get(id)) {
            (Some(found), None, None) if *found == row => {}
            (None, None, None) if pages.may_be_lost.contains(id) => {}
            (None, Some(found), None) if *found == row && !pages.may_be_lost.contains(id) => {}
            (None, None, Some(_)) if !pages.may_be_lost.contains(id) => {}
            (order, cancelled, refused) => wrong.push(format!(
                "order {id}: {wanted:?} became {order:?}, cancelled {cancelled:?}, refused {refused:?}"
            )),
        }
    }
    wrong
}

/// What can never be written was buried, once, and nothing else was.
fn letters(pages: &Pages, seen: &Seen) -> Option<String> {
    let poison: Vec<&String> = pages.poison.iter().collect();
    let dead: Vec<&String> = seen.dead.iter().collect();
    (dead != poison).then(|| format!("buried: {dead:?}; to be buried: {poison:?}"))
}

/// What is refused or cancelled was released, an order was not; a user is barred while an order of the user stands.
fn gifts(pages: &Pages, seen: &Seen) -> Vec<String> {
    let mut wrong = Vec::new();
    for (id, wanted) in &pages.orders {
        let (refused, released) = (seen.ends.refused.get(id), seen.released.contains(id));
        let is_cancelled = seen.ends.cancelled.contains_key(id);
        let told = format!("order {id}: refused: {refused:?}, cancelled: {is_cancelled}");
        if (refused.is_some() || is_cancelled) != released {
            wrong.push(format!("{told}, released: {released}"));
        }
        let may_buy_again = is_cancelled || refused.is_some_and(|reason| reason != "user_has_order");
        let is_buyer = seen.buyers.contains(&(wanted.voucher, wanted.user));
        if wanted.way == Way::Gate && is_buyer == may_buy_again {
            wrong.push(format!("{told}, its user is a buyer: {is_buyer}"));
        }
    }
    wrong
}
