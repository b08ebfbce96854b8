//! What Redis counts, beside what live orders hold in MySQL: added up here, by nothing of the program.

use std::collections::BTreeMap;

use fred::interfaces::HashesInterface;
use sqlx::Row as _;

use super::REGIONS;
use crate::site::Site;

/// Orders and units, by key and field of Redis, and by window.
type Counters = BTreeMap<(String, String), BTreeMap<u64, (u64, u64)>>;

/// What live orders hold.
#[derive(Default)]
struct Held {
    counters: Counters,
    /// Of the users of a voucher, a bit for each slot.
    slots: BTreeMap<(i64, i64), u64>,
}

impl Held {
    async fn read(site: &Site) -> Self {
        let sql = "SELECT CAST(o.voucher_id AS SIGNED), CAST(o.user_id AS SIGNED), CAST(o.quantity AS SIGNED), \
                   CAST(o.slot AS SIGNED), CONVERT(u.uses USING utf8mb4) FROM tb_voucher_order o \
                   JOIN tidegate_limit_use u ON u.order_id = o.id WHERE o.slot IS NOT NULL";
        let mut held = Self::default();
        for row in sqlx::query(sql).fetch_all(&site.pool).await.expect("MySQL answers") {
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

    /// `3,19700,a` of the voucher, or `c5.3,19700,a` of the campaign.
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

/// What Redis counts: window, orders, units. Rates have one number, and are nobody's.
async fn counted(site: &Site, owner: &str) -> BTreeMap<String, Vec<u64>> {
    let key = format!("seckill:uses:{owner}");
    let fields: BTreeMap<String, String> = site.client.hgetall(key).await.expect("Redis answers");
    let numbers = |text: String| text.split(':').map(|number| number.parse().expect("a number")).collect();
    fields.into_iter().map(|(field, text)| (field, numbers(text))).collect()
}

/// That what is counted is what live orders hold, and nobody is over a limit.
pub async fn agree(site: &Site) {
    let held = Held::read(site).await;
    let owners = REGIONS.map(|voucher| format!("voucher:{voucher}"));
    for owner in owners.iter().map(String::as_str).chain(["campaign:5"]) {
        let counted = counted(site, owner).await;
        for (field, numbers) in &counted {
            let in_window = |window: &u64| {
                let windows = held.counters.get(&(owner.to_owned(), field.clone()));
                windows.and_then(|windows| windows.get(window)).copied().unwrap_or_default()
            };
            match &numbers[..] {
                [window, orders, units] => {
                    assert_eq!((*orders, *units), in_window(window), "{owner} {field} in {window}");
                }
                [number] if field.starts_with("u:") => {
                    let voucher = owner.trim_start_matches("voucher:").parse().expect("a voucher");
                    let user = field["u:".len()..].parse().expect("a user");
                    assert_eq!(Some(number), held.slots.get(&(voucher, user)), "{owner}: slots of {user}");
                }
                _ => assert_eq!(owner, "voucher:103", "a rate: {field} {numbers:?}"),
            }
        }
        // Windows of seconds are over one after the other; those of a month, a day and the sale are counted to their end.
        let own = held.counters.iter().filter(|((of, _), _)| of == owner);
        for ((_, field), windows) in
            own.filter(|((_, field), _)| owner != "campaign:5" || !field.starts_with("2:"))
        {
            let last = windows.keys().next_back();
            assert_eq!(counted.get(field).map(|numbers| &numbers[0]), last, "{owner} {field} is counted");
        }
    }
    nobody_is_over_a_limit(&held.counters);
    let several = held.slots.iter().filter(|((voucher, _), slots)| *voucher != 101 && **slots > 1);
    assert_eq!(several.count(), 0, "one order for each user, where no limit says otherwise");
}

/// By the highest numbers that each limit had.
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
