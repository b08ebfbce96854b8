//! What must hold, whatever has happened: each order that was put in has come out once, on both sides.

use std::collections::{BTreeMap, BTreeSet};

use fred::interfaces::SetsInterface;
use sqlx::Row;
use tidegate_lab::Endpoint;
use tidegate_operations::audit::audit;
use tidegate_stream::StreamNames;

use super::{
    DEAD, GROUP, OrderRow, STREAM, Site, keys,
    rush::{Pages, SHORT, Wanted, Way},
};

/// What came out.
struct Seen {
    orders: BTreeMap<i64, (i64, i64, i64)>,
    /// Rows that keep their orders from being written.
    cancelled: BTreeMap<i64, (i64, i64, i64)>,
    /// Refusals: order id → reason.
    refused: BTreeMap<i64, String>,
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
        self.look(&self.book.read()).await.refused.into_keys().collect()
    }

    /// Ids of the orders that were given back.
    pub async fn given_back(&self) -> BTreeSet<i64> {
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
        wrong.extend(fates(&pages, &seen));
        wrong.extend(letters(&pages, &seen));
        wrong.extend(self.mysql_sums().await);
        if !pages.redis_forgot {
            wrong.extend(gifts(&pages, &seen));
            wrong.extend(self.redis_sums(&pages, &seen).await);
            wrong.extend(self.audit_failures().await);
        }
        let shown: Vec<&String> = wrong.iter().take(20).collect();
        assert!(wrong.is_empty(), "{} things are wrong, such as: {shown:#?}", wrong.len());
    }

    async fn look(&self, pages: &Pages) -> Seen {
        let by_id = |rows: Vec<OrderRow>| {
            rows.into_iter().map(|row| (row.id, (row.user, row.voucher, row.quantity))).collect()
        };
        let sql = "SELECT order_id, reason FROM tidegate_refusal";
        let refused = sqlx::query(sql).fetch_all(&self.pool).await.expect("MySQL answers");
        let mut seen = Seen {
            orders: by_id(self.live_orders().await),
            cancelled: by_id(self.cancelled_orders().await),
            refused: refused.iter().map(|row| (row.get(0), row.get(1))).collect(),
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

    /// What the program's own audit finds, but for what Redis offers too much of [`SHORT`]: that is what it is for.
    pub async fn audit_failures(&self) -> Vec<String> {
        let names = StreamNames { stream: STREAM.into(), dead: DEAD.into(), group: GROUP.into() };
        let report = audit(&self.connections, &self.pool, &keys(), &names, None).await.expect("both answer");
        let is_meant = format!("voucher {SHORT}: Redis offers");
        let failures = report.failures().into_iter().filter(|failure| !failure.starts_with(&is_meant));
        failures.map(|failure| format!("audit: {failure}")).collect()
    }

    /// No user has two live orders in a slot; what was sold and what is left make what there was.
    async fn mysql_sums(&self) -> Vec<String> {
        let doubled = "SELECT COUNT(*) FROM (SELECT 1 FROM tb_voucher_order WHERE slot IS NOT NULL \
                       GROUP BY voucher_id, user_id, slot HAVING COUNT(*) > 1) doubled";
        let doubled: i64 = sqlx::query_scalar(doubled).fetch_one(&self.pool).await.expect("MySQL answers");
        let stocks = "SELECT CAST(v.voucher_id AS SIGNED), CAST(v.initial_stock AS SIGNED), CAST(v.stock AS SIGNED), \
                      CAST(COALESCE(SUM(o.quantity), 0) AS SIGNED) FROM tb_seckill_voucher v \
                      LEFT JOIN tb_voucher_order o ON o.voucher_id = v.voucher_id AND o.slot IS NOT NULL \
                      GROUP BY v.voucher_id, v.initial_stock, v.stock";
        let rows = sqlx::query(stocks).fetch_all(&self.pool).await.expect("MySQL answers");
        let mut wrong = Vec::new();
        if doubled > 0 {
            wrong.push(format!("{doubled} users have two orders in a slot"));
        }
        for row in rows {
            let [voucher, initial, stock, sold]: [i64; 4] = std::array::from_fn(|at| row.get(at));
            if stock < 0 || stock != initial - sold {
                wrong
                    .push(format!("voucher {voucher}: {initial} loaded, {sold} sold, {stock} left in MySQL"));
            }
        }
        wrong
    }

    /// Redis has sold what it admitted, and got back what was cancelled or refused for another reason than the stock, once.
    async fn redis_sums(&self, pages: &Pages, seen: &Seen) -> Vec<String> {
        let mut wrong = Vec::new();
        for (&voucher, &loaded) in &pages.loaded {
            let of_voucher = || pages.orders.iter().filter(|(_, wanted)| wanted.voucher == voucher);
            let units = |(_, wanted): (&i64, &Wanted)| wanted.quantity;
            let sold: i64 = of_voucher().filter(|(_, wanted)| wanted.way == Way::Gate).map(units).sum();
            let is_free = |id: &i64| {
                seen.cancelled.contains_key(id)
                    || seen.refused.get(id).is_some_and(|reason| reason != "out_of_stock")
            };
            let back: i64 = of_voucher().filter(|(id, _)| is_free(id)).map(units).sum();
            let left = self.redis_stock(voucher).await;
            if left != Some(loaded - sold + back) {
                wrong.push(format!(
                    "voucher {voucher}: {loaded} loaded, {sold} sold, {back} given back, {left:?} left in Redis"
                ));
            }
        }
        wrong
    }
}

/// Each order that was put in is an order, cancelled or a refusal, and nothing else came out.
fn fates(pages: &Pages, seen: &Seen) -> Vec<String> {
    let mut wrong = Vec::new();
    for (id, wanted) in &pages.orders {
        let row = (wanted.user, wanted.voucher, wanted.quantity);
        match (seen.orders.get(id), seen.cancelled.get(id), seen.refused.get(id)) {
            (Some(found), None, None) | (None, Some(found), None) if *found == row => {}
            (None, None, Some(_)) => {}
            (order, cancelled, refused) => wrong.push(format!(
                "order {id}: {wanted:?} became {order:?}, cancelled {cancelled:?}, refused {refused:?}"
            )),
        }
    }
    let rows = seen.orders.keys().chain(seen.cancelled.keys());
    let strange = rows.filter(|id| !pages.orders.contains_key(id));
    wrong.extend(strange.map(|id| format!("order {id} was never admitted")));
    wrong
}

/// What can never be written was buried, once, and nothing else was.
fn letters(pages: &Pages, seen: &Seen) -> Option<String> {
    let poison: Vec<&String> = pages.poison.iter().collect();
    let dead: Vec<&String> = seen.dead.iter().collect();
    (dead != poison).then(|| format!("buried: {dead:?}; to be buried: {poison:?}"))
}

/// What is refused or cancelled was given back, an order was not; a user is barred while an order of the user stands.
fn gifts(pages: &Pages, seen: &Seen) -> Vec<String> {
    let mut wrong = Vec::new();
    for (id, wanted) in &pages.orders {
        let (refused, released) = (seen.refused.get(id), seen.released.contains(id));
        let is_cancelled = seen.cancelled.contains_key(id);
        let told = format!("order {id}: refused: {refused:?}, cancelled: {is_cancelled}");
        if (refused.is_some() || is_cancelled) != released {
            wrong.push(format!("{told}, given back: {released}"));
        }
        let may_buy_again = is_cancelled || refused.is_some_and(|reason| reason != "user_has_order");
        let is_buyer = seen.buyers.contains(&(wanted.voucher, wanted.user));
        if wanted.way == Way::Gate && is_buyer == may_buy_again {
            wrong.push(format!("{told}, its user is a buyer: {is_buyer}"));
        }
    }
    wrong
}
