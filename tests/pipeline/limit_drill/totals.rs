//! The uses of live orders in MySQL, compared with the highest values of the limits of this sale.

use std::collections::BTreeMap;

use sqlx::Row as _;

use crate::fixture::Fixture;

/// Orders and units by key and field of Redis, and by window.
type Counters = BTreeMap<(String, String), BTreeMap<u64, (u64, u64)>>;

/// The uses of live orders.
#[derive(Default)]
struct Held {
    counters: Counters,
    /// The slots of a voucher's users, as bits.
    slots: BTreeMap<(i64, i64), u64>,
}

impl Held {
    async fn read(fixture: &Fixture) -> Self {
        let sql = "SELECT CAST(o.voucher_id AS SIGNED), CAST(o.user_id AS SIGNED), CAST(o.quantity AS SIGNED), \
                   CAST(o.slot AS SIGNED), CONVERT(u.uses USING utf8mb4) FROM tb_voucher_order o \
                   JOIN tidegate_limit_use u ON u.order_id = o.id WHERE o.slot IS NOT NULL";
        let mut held = Self::default();
        for row in sqlx::query(sql).fetch_all(&fixture.pool).await.expect("MySQL answers") {
            let [voucher, user, quantity, slot]: [i64; 4] = std::array::from_fn(|at| row.get(at));
            let slots = held.slots.entry((voucher, user)).or_default();
            assert_eq!(
                *slots & (1 << (slot - 1)),
                0,
                "user {user} has two orders in slot {slot} of {voucher}"
            );
            *slots |= 1 << (slot - 1);
            let uses: String = row.get(4);
            uses.split(' ')
                .filter(|used| !used.is_empty())
                .for_each(|used| held.add(voucher, used, quantity));
        }
        held
    }

    /// Adds a use: `3,19700,a` of the voucher, or `c5.3,19700,a` of the campaign.
    fn add(&mut self, voucher: i64, used: &str, quantity: i64) {
        let [number, window, value] =
            <[&str; 3]>::try_from(used.split(',').collect::<Vec<_>>()).expect("three");
        let (owner, number) = match number.strip_prefix('c').and_then(|number| number.split_once('.')) {
            Some((campaign, number)) => (format!("campaign:{campaign}"), number),
            None => (format!("voucher:{voucher}"), number),
        };
        let windows = self.counters.entry((owner, format!("{number}:{value}"))).or_default();
        let (orders, units) = windows.entry(window.parse().expect("a window")).or_default();
        *orders += 1;
        *units += quantity.unsigned_abs();
    }
}

/// Checks that no subject is over a limit, and that users hold several orders only if a limit allows it.
pub async fn nobody_has_too_much(fixture: &Fixture) {
    let held = Held::read(fixture).await;
    nobody_is_over_a_limit(&held.counters);
    let several = held.slots.iter().filter(|((voucher, _), slots)| *voucher != 101 && **slots > 1);
    assert_eq!(several.count(), 0, "one order for each user, where no limit says otherwise");
}

/// Compares the counters with the highest values of each limit.
fn nobody_is_over_a_limit(counters: &Counters) {
    const NONE: u64 = u64::MAX;
    for ((owner, field), windows) in counters {
        let (number, _) = field.split_once(':').expect("number and subject");
        let (most_orders, most_units) = match (owner.as_str(), number) {
            ("campaign:5", "1") => (24, 40),
            ("campaign:5", "2") => (15, NONE),
            ("campaign:5", "3") => (NONE, 300),
            ("voucher:101", "1") => (6, NONE),
            ("voucher:102", "1") => (3, NONE),
            _ => panic!("{owner} has no limit {number}"),
        };
        for (window, (orders, units)) in windows {
            assert!(
                *orders <= most_orders && *units <= most_units,
                "{owner} {field} in {window}: {orders} orders, {units} units"
            );
        }
    }
}
