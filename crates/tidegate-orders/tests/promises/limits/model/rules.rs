//! The limits of a voucher and of its campaign, and how they change during a sale.

use std::collections::HashMap;

use rand::{RngExt, rngs::StdRng, seq::IndexedRandom};

use super::super::{COMMON, RULES};

const WINDOWS: [&str; 5] = ["sale", "day", "month", "2", "3"];
const SUBJECTS: [&str; 4] = ["user", "phone", "address", "*"];

/// The owner of a limit. Each owner numbers its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    Voucher,
    Campaign,
}

const OWNERS: [Owner; 2] = [Owner::Voucher, Owner::Campaign];

#[derive(Clone)]
pub struct Rule {
    pub number: u32,
    name: String,
    pub subject: String,
    window: String,
    offset_s: i64,
    /// The most orders; `i64::MAX` is no bound.
    pub orders: i64,
    pub units: i64,
}

impl Rule {
    fn parse(text: &str) -> Self {
        let words: Vec<&str> = text.split(' ').collect();
        let most = |at: usize| words[at].parse().unwrap_or(i64::MAX);
        Self {
            number: words[0].parse().expect("a number"),
            name: words[1].to_owned(),
            subject: words[2].to_owned(),
            window: words[3].to_owned(),
            offset_s: words[4].parse().expect("an offset"),
            orders: most(5),
            units: most(6),
        }
    }

    fn text(&self) -> String {
        let most = |most: i64| if most == i64::MAX { "-".to_owned() } else { most.to_string() };
        let Self { number, name, subject, window, offset_s, .. } = self;
        let (orders, units) = (most(self.orders), most(self.units));
        format!("{number} {name} {subject} {window} {offset_s} {orders} {units}")
    }

    /// The number of the window at this time. None: the limit counts single orders only.
    pub fn window_at(&self, at_ms: i64) -> Option<i64> {
        let seconds = at_ms / 1000 + self.offset_s;
        Some(match self.window.as_str() {
            "order" => return None,
            "sale" => 0,
            "day" => seconds.div_euclid(86_400),
            "month" => {
                let date = jiff::Timestamp::from_second(seconds).expect("a time");
                let date = date.to_zoned(jiff::tz::TimeZone::UTC);
                i64::from(date.year()) * 12 + i64::from(date.month()) - 1
            }
            length => (at_ms / 1000).div_euclid(length.parse().expect("seconds")),
        })
    }
}

/// The current limits, and their highest values so far.
pub struct Rules {
    rules: HashMap<Owner, Vec<Rule>>,
    /// Whether a user may have several orders.
    pub has_slots: bool,
    /// The highest number of each owner so far. No number is used again.
    numbers: HashMap<Owner, u32>,
    /// The highest values that a limit ever had, in orders and units, by owner and number.
    most: HashMap<(Owner, u32), (i64, i64)>,
}

impl Rules {
    pub fn at_first() -> Self {
        let mut all =
            Self { rules: HashMap::new(), has_slots: true, numbers: HashMap::new(), most: HashMap::new() };
        for (owner, text) in OWNERS.into_iter().zip([RULES, COMMON]) {
            let mut rules: Vec<Rule> = text.split(';').map(Rule::parse).collect();
            rules.iter_mut().for_each(|rule| rule.number = all.next_number(owner));
            all.rules.insert(owner, rules);
        }
        all.note_most();
        all
    }

    fn next_number(&mut self, owner: Owner) -> u32 {
        let number = self.numbers.entry(owner).or_default();
        *number += 1;
        *number
    }

    fn note_most(&mut self) {
        for (owner, rules) in &self.rules {
            for rule in rules {
                let (orders, units) = self.most.entry((*owner, rule.number)).or_default();
                *orders = rule.orders.max(*orders);
                *units = rule.units.max(*units);
            }
        }
    }

    pub fn most_ever(&self, owner: Owner, number: u32) -> (i64, i64) {
        self.most[&(owner, number)]
    }

    pub fn all(&self) -> impl Iterator<Item = (Owner, &Rule)> {
        OWNERS.into_iter().flat_map(|owner| self.rules[&owner].iter().map(move |rule| (owner, rule)))
    }

    pub fn text(&self, owner: Owner) -> String {
        self.rules[&owner].iter().map(Rule::text).collect::<Vec<_>>().join(";")
    }

    /// Changes a limit at random. With other numbers, it keeps its counts. With another window or subject, it gets a
    /// new number and counts from zero.
    pub fn change(&mut self, random: &mut StdRng) {
        let owner = *OWNERS.choose(random).expect("two");
        let at = random.random_range(0..self.rules[&owner].len());
        let mut rule = self.rules[&owner][at].clone();
        match random.random_range(0..10) {
            0..6 => {
                let is_order = rule.window == "order";
                rule.orders = if is_order { i64::MAX } else { random.random_range(1..=8) };
                rule.units = random.random_range(2..=12);
            }
            6 if rule.window != "order" => {
                rule.window = (*WINDOWS.choose(random).expect("one")).to_owned();
                let is_of_calendar = ["day", "month"].contains(&rule.window.as_str());
                rule.offset_s = if is_of_calendar { 3_600 * random.random_range(-11..=14) } else { 0 };
                rule.number = self.next_number(owner);
            }
            7 => {
                rule.subject = (*SUBJECTS.choose(random).expect("one")).to_owned();
                rule.number = self.next_number(owner);
            }
            8 => self.has_slots = !self.has_slots,
            // A limit that is removed and set again under its name is a new limit.
            _ => rule.number = self.next_number(owner),
        }
        self.rules.get_mut(&owner).expect("it has some")[at] = rule;
        self.note_most();
    }
}
