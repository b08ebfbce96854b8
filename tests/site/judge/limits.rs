//! The counters of limits: what Redis counts is what orders hold that are alive, on their way or dead.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use super::{
    Facts,
    redis::{Fields, Sale, id_of},
};

const DAY_S: i64 = 86_400;

/// So long after MySQL has noted a limit, Redis may still go by the one before.
const UNTIL_IN_FORCE_MS: i64 = 5_000;

/// A limit that counts in windows.
struct Rule<'a> {
    number: &'a str,
    name: &'a str,
    window: &'a str,
    offset_s: i64,
    orders: Option<i64>,
    units: Option<i64>,
}

/// An order that holds what it used.
struct Holder<'a> {
    voucher: i64,
    user: i64,
    quantity: i64,
    slot: i64,
    uses: &'a str,
    /// When it was admitted, by the clock of Redis, as far as that is known.
    admitted_ms: Option<i64>,
}

/// What orders hold of a window.
#[derive(Clone, Copy, Default)]
struct Tally {
    orders: i64,
    units: i64,
    /// When the last of them was admitted; None: of one, nobody knows.
    last_ms: Option<i64>,
}

/// By owner, such as `campaign:5`, and field, such as `3:8d969e`: what orders hold of each window.
type Held = BTreeMap<(String, String), BTreeMap<i64, Tally>>;

/// The campaign in the rules of a voucher.
pub(super) fn campaign_of(rules: &str) -> Option<i64> {
    rules.split([' ', ';']).nth(1)?.parse().ok()
}

fn has_slots(rules: &str) -> bool {
    rules.starts_with('1')
}

fn rules_of(rules: &str) -> impl Iterator<Item = Rule<'_>> {
    rules.split(';').skip(1).filter(|rule| !rule.is_empty()).filter_map(|rule| {
        let words: Vec<&str> = rule.split(' ').collect();
        let [number, name, _, window, offset, orders, units] = words[..] else { panic!("a rule: {rule:?}") };
        let offset_s = offset.parse().unwrap_or_else(|_| panic!("an offset: {rule:?}"));
        let most = |most: &str| {
            (most != "-").then(|| most.parse().unwrap_or_else(|_| panic!("a number or -: {rule:?}")))
        };
        let (orders, units) = (most(orders), most(units));
        let counts = !matches!(window, "order" | "rate");
        counts.then_some(Rule { number, name, window, offset_s, orders, units })
    })
}

/// Counters that are not what orders hold, and limits that were passed.
pub(super) fn miscounted(facts: &Facts) -> Vec<String> {
    let holders = facts.holders();
    let held = held(&holders);
    let mut wrong = [facts.past_the_limits(), facts.without_rules()].concat();
    for (voucher, sale) in &facts.redis.sales {
        let Some(rules) = &sale.rules else { continue };
        let owner = format!("voucher:{voucher}");
        wrong.extend(facts.of_owner(&owner, rules, &sale.uses, &held));
        if has_slots(rules) {
            wrong.extend(slots(*voucher, sale, &holders));
        }
    }
    for (campaign, it) in &facts.redis.campaigns {
        // What regions hold that nobody has read is not known.
        let is_whole = it.vouchers.iter().all(|voucher| facts.redis.sales.contains_key(voucher));
        if let Some(rules) = it.rules.as_ref().filter(|_| is_whole) {
            wrong.extend(facts.of_owner(&format!("campaign:{campaign}"), rules, &it.uses, &held));
        }
    }
    wrong
}

impl Facts {
    /// Orders that were written although their entries say nothing of limits.
    fn past_the_limits(&self) -> Vec<String> {
        let since_ms = |voucher: i64| self.mysql.vouchers.get(&voucher).and_then(|row| row.limits_since_ms);
        let rows = self.mysql.orders.iter().filter(|(_, row)| row.is_live());
        let past = rows.filter(|(id, row)| {
            let entry_ms = row.entry.as_deref().and_then(|entry| i64::try_from(id_of(entry).0).ok());
            let is_later =
                entry_ms.zip(since_ms(row.voucher)).is_some_and(|(at_ms, since_ms)| at_ms > since_ms);
            is_later && !self.mysql.uses.contains_key(id)
        });
        past.map(|(id, row)| format!("voucher {}: order {id} has come past the limits", row.voucher))
            .collect()
    }

    /// Vouchers and campaigns with limits in MySQL of which Redis knows none.
    fn without_rules(&self) -> Vec<String> {
        let sold_here = |voucher: &i64| {
            let is_listed = self.mysql.vouchers.get(voucher).is_some_and(|row| !row.is_delisted);
            self.redis.own.contains(voucher) && is_listed
        };
        let mut wrong = Vec::new();
        for owner in &self.mysql.limited {
            let (kind, id) = owner.split_once(':').expect("kind and id");
            let id: i64 = id.parse().expect("an id");
            let rules = match kind {
                "voucher" if sold_here(&id) => &self.redis.sales[&id].rules,
                "campaign" if self.mysql.regions.get(&id).is_some_and(|all| all.iter().any(sold_here)) => {
                    self.redis.campaigns.get(&id).map_or(&None, |campaign| &campaign.rules)
                }
                _ => continue,
            };
            if rules.is_none() {
                wrong.push(format!("{owner}: MySQL has limits, and Redis has no rules"));
            }
        }
        wrong
    }

    fn holders(&self) -> Vec<Holder<'_>> {
        let note = |voucher: i64, order: i64| {
            self.redis.sales.get(&voucher).and_then(|sale| sale.notes.get(&order.to_string()))
        };
        let live = self.mysql.orders.iter().filter_map(|(id, row)| {
            let (voucher, user, quantity) = (row.voucher, row.user, row.quantity);
            let noted_ms = note(voucher, *id).and_then(|note| note["timestamp"].as_i64());
            let entry_ms = row.entry.as_deref().and_then(|entry| i64::try_from(id_of(entry).0).ok());
            let uses = self.mysql.uses.get(id).map_or("", String::as_str);
            let admitted_ms = noted_ms.into_iter().chain(entry_ms).min();
            Some(Holder { voucher, user, quantity, slot: row.slot?, uses, admitted_ms })
        });
        let unwritten = self.unwritten.values().flatten().map(|ordered| Holder {
            voucher: ordered.voucher,
            user: ordered.held.user,
            quantity: ordered.held.quantity,
            slot: ordered.slot,
            uses: ordered.uses.as_deref().unwrap_or_default(),
            admitted_ms: note(ordered.voucher, ordered.order).and_then(|note| note["timestamp"].as_i64()),
        });
        // Orders that another program has ended, and that nobody has released in Redis.
        let kept = self.redis.sales.iter().flat_map(|(voucher, sale)| {
            sale.noted("admit").filter_map(|(order, note)| {
                let row = self.mysql.orders.get(&order).filter(|row| row.voucher == *voucher)?;
                (!row.is_live() && !self.unwritten.contains_key(&order)).then(|| kept(*voucher, note))?
            })
        });
        live.chain(unwritten).chain(kept).collect()
    }

    fn of_owner(&self, owner: &str, rules: &str, counted: &Fields, held: &Held) -> Vec<String> {
        let mut wrong = Vec::new();
        let nothing = BTreeMap::new();
        for rule in rules_of(rules) {
            let is_own = |field: &str| field.split_once(':').is_some_and(|(number, _)| number == rule.number);
            let of_orders = held.keys().filter(|(of, _)| of == owner).map(|(_, field)| field);
            let fields: BTreeSet<&String> =
                counted.keys().chain(of_orders).filter(|field| is_own(field)).collect();
            let now = number_of(&rule, self.redis.now_ms / 1_000);
            for field in fields {
                let windows = held.get(&(owner.to_owned(), field.clone())).unwrap_or(&nothing);
                let what = judge(&rule, now, counted.get(field).map(String::as_str), windows);
                wrong.extend(
                    what.map(|what| format!("{owner}: limit {}, counter {field}: {what}", rule.name)),
                );
                let set_ms = self.mysql.limits_set_ms.get(&(owner.to_owned(), rule.number.to_owned()));
                let in_force_ms = set_ms.map_or(0, |set_ms| set_ms + UNTIL_IN_FORCE_MS);
                for (window, tally) in windows.iter().filter(|(window, _)| **window >= now) {
                    if rule.is_passed_by(*tally) && tally.last_ms.is_some_and(|last_ms| last_ms > in_force_ms)
                    {
                        let Tally { orders, units, .. } = tally;
                        let (name, held) = (rule.name, format!("{orders} orders, {units} units"));
                        wrong
                            .push(format!("{owner}: {field} passes limit {name} in window {window}: {held}"));
                    }
                }
            }
        }
        wrong
    }
}

impl Rule<'_> {
    fn is_passed_by(&self, tally: Tally) -> bool {
        self.orders.is_some_and(|most| tally.orders > most)
            || self.units.is_some_and(|most| tally.units > most)
    }
}

fn kept(voucher: i64, note: &Json) -> Option<Holder<'_>> {
    Some(Holder {
        voucher,
        user: note["by"].as_str()?.parse().ok()?,
        quantity: -note["change"].as_i64()?,
        slot: note["slot"].as_i64().unwrap_or(1),
        uses: note["uses"].as_str().unwrap_or_default(),
        admitted_ms: note["timestamp"].as_i64(),
    })
}

/// Adds up `3,19700,8d969e`, a use of the voucher's rule 3 in window 19700, or `c5.3,19700,8d969e`, of
/// campaign 5.
fn held(holders: &[Holder<'_>]) -> Held {
    let mut held = Held::new();
    for holder in holders {
        for used in holder.uses.split(' ').filter(|used| !used.is_empty()) {
            let words: Vec<&str> = used.splitn(3, ',').collect();
            let [number, window, value] = words[..] else { panic!("a use: {used:?}") };
            let (owner, number) = match number.strip_prefix('c').and_then(|number| number.split_once('.')) {
                Some((campaign, number)) => (format!("campaign:{campaign}"), number),
                None => (format!("voucher:{}", holder.voucher), number),
            };
            let windows = held.entry((owner, format!("{number}:{value}"))).or_default();
            let is_first = !windows.contains_key(&window.parse().expect("a window"));
            let tally = windows.entry(window.parse().expect("a window")).or_default();
            (tally.orders, tally.units) = (tally.orders + 1, tally.units + holder.quantity);
            tally.last_ms = match is_first {
                true => holder.admitted_ms,
                false => tally.last_ms.zip(holder.admitted_ms).map(|(last, own)| last.max(own)),
            };
        }
    }
    held
}

/// What is wrong with a counter: `window:orders:units`. Windows before `now` are over.
fn judge(rule: &Rule<'_>, now: i64, counted: Option<&str>, held: &BTreeMap<i64, Tally>) -> Option<String> {
    let numbers: Option<Vec<i64>> =
        counted.map(|text| text.split(':').map(|number| number.parse().unwrap_or(-1)).collect());
    let stored = match numbers.as_deref() {
        None => None,
        Some([window, orders, units]) if *orders >= 0 && *units >= 0 => Some((*window, *orders, *units)),
        Some(_) => return Some(format!("{counted:?} is no count")),
    };
    let stored = stored.filter(|(window, ..)| *window >= now);
    let last = held.keys().copied().filter(|window| *window >= now).max();
    let window = last.max(stored.map(|(window, ..)| window))?;
    let counted =
        stored.filter(|(of, ..)| *of == window).map_or((0, 0), |(_, orders, units)| (orders, units));
    let tally = held.get(&window).copied().unwrap_or_default();
    let expected = (tally.orders, tally.units);
    (counted != expected).then(|| {
        let window = format!("window {window} of {}", rule.window);
        format!("orders and units in {window}: {counted:?} counted, and orders hold {expected:?}")
    })
}

/// The slots of each user of a voucher, a bit each. Who has no field holds the first slot, or none.
fn slots(voucher: i64, sale: &Sale, holders: &[Holder<'_>]) -> Vec<String> {
    let mut held: BTreeMap<i64, i64> = BTreeMap::new();
    for holder in holders.iter().filter(|holder| holder.voucher == voucher) {
        *held.entry(holder.user).or_default() |= 1 << (holder.slot - 1);
    }
    let counted = sale.uses.iter().filter_map(|(field, slots)| Some((field.strip_prefix("u:")?, slots)));
    let counted: BTreeMap<i64, i64> =
        counted.map(|(user, slots)| (user.parse().expect("a user"), slots.parse().unwrap_or(-1))).collect();
    let mut wrong = Vec::new();
    for user in held.keys().chain(counted.keys()).collect::<BTreeSet<_>>() {
        let (held, counted) = (held.get(user).copied().unwrap_or(0), counted.get(user).copied());
        if counted != Some(held) && (counted.is_some() || held > 1) {
            wrong.push(format!(
                "voucher {voucher}: slots of user {user}: {counted:?} counted, and orders hold {held}"
            ));
        }
    }
    wrong
}

/// The number of the window at this moment.
fn number_of(rule: &Rule<'_>, now_s: i64) -> i64 {
    let days = (now_s + rule.offset_s).div_euclid(DAY_S);
    match rule.window {
        "sale" => 0,
        "day" => days,
        "month" => months_by(days),
        seconds => now_s / seconds.parse::<i64>().expect("a number of seconds"),
    }
}

/// Months from the beginning of year 0 to the month of this day, which is counted from 1970-01-01.
fn months_by(days: i64) -> i64 {
    let (mut left, mut month) = (days, 1970 * 12);
    loop {
        let year = month / 12;
        let is_leap = year % 4 == 0 && year % 100 != 0 || year % 400 == 0;
        let length = match month % 12 {
            1 if is_leap => 29,
            1 => 28,
            3 | 5 | 8 | 10 => 30,
            _ => 31,
        };
        if left < length {
            return month;
        }
        (left, month) = (left - length, month + 1);
    }
}
