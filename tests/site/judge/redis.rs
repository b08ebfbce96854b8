//! What Redis holds of a fleet, read by commands and understood by a parser of the tests' own.

use std::collections::{BTreeMap, BTreeSet};

use fred::{
    interfaces::{ClientLike, HashesInterface, KeysInterface, SetsInterface, StreamsInterface},
    types::{ClusterHash, CustomCommand, FromValue, Value},
};
use serde_json::Value as Json;

use super::super::{DEAD, GROUP, STREAM, stores::Stores};

/// Fields of a hash, or of an entry: value by name.
pub type Fields = BTreeMap<String, String>;

/// So many entries are read at once.
const PAGE: u64 = 5_000;

/// The stream, its dead letters and the keys of some vouchers.
pub struct RedisFacts {
    pub entries: Vec<Entry>,
    /// In the order of the stream of dead letters.
    pub letters: Vec<Letter>,
    pub sales: BTreeMap<i64, Sale>,
    /// The vouchers that are sold here. Of the others, entries may be left from before they went to another
    /// partition.
    pub own: BTreeSet<i64>,
    /// By campaign.
    pub campaigns: BTreeMap<i64, Campaign>,
    /// What keeps the streams from being judged: they cannot be read, or no group tells what is settled.
    pub unreadable: Vec<String>,
    /// By the clock of Redis, after everything else was read.
    pub now_ms: i64,
}

/// An entry of the stream.
pub struct Entry {
    pub id: String,
    /// It is pending, or nobody has read it.
    pub is_open: bool,
    pub message: Message,
    /// The entries that it was before, if it was put back out of the dead letters.
    pub earlier: Vec<String>,
}

/// A dead letter.
pub struct Letter {
    /// The entry that was buried; None: somebody else wrote this letter.
    pub entry: Option<String>,
    /// The entries that it was before that.
    pub earlier: Vec<String>,
    pub message: Message,
}

/// What an entry says.
#[derive(Clone, Debug)]
pub enum Message {
    Order(Ordered),
    Event(Happened),
    /// It is neither. With the fields of an order or an event, it has to be buried.
    Other {
        must_be_buried: bool,
    },
}

/// An order, as its entry says it.
#[derive(Clone, Debug)]
pub struct Ordered {
    pub order: i64,
    pub voucher: i64,
    pub held: Held,
    pub slot: i64,
    pub uses: Option<String>,
}

/// User and units of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    pub user: i64,
    pub quantity: i64,
}

/// What an entry says of an order of before.
#[derive(Clone, Debug)]
pub struct Happened {
    pub event: String,
    pub order: i64,
    pub reference: Option<String>,
}

/// The keys of a voucher.
#[derive(Default)]
pub struct Sale {
    pub stock: Option<i64>,
    pub buyers: BTreeSet<i64>,
    /// The journal.
    pub notes: BTreeMap<String, Json>,
    /// Somebody is adding units or taking them: one store has them already.
    pub is_changing: bool,
    /// The rules of its limits.
    pub rules: Option<String>,
    /// What is counted for its limits.
    pub uses: Fields,
    /// Keys that hold something else than they should, and what Redis said of them.
    pub unreadable: Vec<String>,
}

/// The keys of a campaign.
#[derive(Default)]
pub struct Campaign {
    pub rules: Option<String>,
    pub uses: Fields,
    /// The vouchers of its regions.
    pub vouchers: BTreeSet<i64>,
}

impl Sale {
    /// The notes of orders that the journal holds as admitted, or as released.
    pub fn noted<'a>(&'a self, action: &'a str) -> impl Iterator<Item = (i64, &'a Json)> {
        self.notes.iter().filter_map(move |(field, note)| {
            let order = field.parse().ok().filter(|_| note["action"] == action)?;
            Some((order, note))
        })
    }

    pub fn is_released(&self, order: i64) -> bool {
        self.notes.get(&order.to_string()).is_some_and(|note| note["action"] == "release")
    }

    pub fn is_complete(&self) -> bool {
        self.notes.contains_key("#complete")
    }
}

impl Message {
    fn of(fields: &[(String, String)]) -> Self {
        let get =
            |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str());
        let id = |name: &str| get(name).and_then(positive);
        let known = ["id", "userId", "voucherId", "event", "orderId"];
        let must_be_buried = fields.len() >= 3 || known.iter().any(|name| get(name).is_some());
        let other = Self::Other { must_be_buried };
        let (Some(user), Some(voucher)) = (id("userId"), id("voucherId")) else { return other };
        if let Some(event) = get("event") {
            let Some(order) = id("orderId") else { return other };
            let reference = get("ref").map(str::to_owned);
            return Self::Event(Happened { event: event.to_owned(), order, reference });
        }
        let (quantity, slot) =
            (get("quantity").map_or(Some(1), positive), get("slot").map_or(Some(1), positive));
        let (Some(order), Some(quantity), Some(slot)) = (id("id"), quantity, slot) else { return other };
        let uses = get("uses").map(str::to_owned);
        Self::Order(Ordered { order, voucher, held: Held { user, quantity }, slot, uses })
    }
}

fn positive(text: &str) -> Option<i64> {
    text.parse().ok().filter(|number| *number > 0)
}

/// The entries of the history that one carries which was put back.
fn earlier(fields: &[(String, String)]) -> Vec<String> {
    let history = fields.iter().rev().find(|(name, _)| name == "dead:history");
    let burials: Option<Json> = history.and_then(|(_, text)| serde_json::from_str(text).ok());
    let burials = burials.as_ref().and_then(Json::as_array).into_iter().flatten();
    burials.filter_map(|burial| burial["entry"].as_str().map(str::to_owned)).collect()
}

impl Stores<'_> {
    /// Reads what Redis holds of these vouchers, and of those that its entries and dead letters name.
    pub(super) async fn read_redis(&self, vouchers: &[i64]) -> RedisFacts {
        let mut unreadable = Vec::new();
        let (entries, letters) = (self.entries(&mut unreadable).await, self.letters(&mut unreadable).await);
        let orders = entries.iter().map(|entry| &entry.message).chain(letters.iter().map(|it| &it.message));
        let named = orders.filter_map(|message| match message {
            Message::Order(ordered) => Some(ordered.voucher),
            _ => None,
        });
        let own: BTreeSet<i64> = vouchers.iter().copied().collect();
        let vouchers: BTreeSet<i64> = own.iter().copied().chain(named).collect();
        let (mut sales, mut campaigns) = (BTreeMap::new(), BTreeMap::new());
        for voucher in vouchers {
            let sale = self.sale(voucher).await;
            if let Some(campaign) = sale.rules.as_deref().and_then(super::limits::campaign_of)
                && !campaigns.contains_key(&campaign)
            {
                campaigns.insert(campaign, self.campaign(campaign).await);
            }
            sales.insert(voucher, sale);
        }
        let time: Vec<i64> = self.ask(&["TIME"]).await.expect("Redis answers");
        let now_ms = time[0] * 1_000 + time[1] / 1_000;
        RedisFacts { entries, letters, sales, own, campaigns, unreadable, now_ms }
    }

    async fn ask<T: FromValue>(&self, words: &[&str]) -> Result<T, fred::error::Error> {
        let command = CustomCommand::new(words[0], ClusterHash::Random, false);
        let args: Vec<String> = words[1..].iter().map(ToString::to_string).collect();
        self.client.custom::<Value, _>(command, args).await?.convert()
    }

    /// All entries of a stream, page by page, in texts.
    async fn pages(
        &self,
        stream: &str,
        unreadable: &mut Vec<String>,
    ) -> Vec<(String, Vec<(String, String)>)> {
        let mut all: Vec<(String, Vec<(String, String)>)> = Vec::new();
        loop {
            let after = all.last().map_or("-".to_owned(), |(id, _)| format!("({id}"));
            let page = self.client.xrange(stream, after, "+", Some(PAGE)).await;
            let page: Vec<(String, Vec<(Value, Value)>)> = read(stream, page, unreadable);
            let is_last = page.len() < usize::try_from(PAGE).expect("small");
            let text = |value: Value| value.as_str_lossy().unwrap_or_default().into_owned();
            all.extend(page.into_iter().map(|(id, fields)| {
                (id, fields.into_iter().map(|(name, value)| (text(name), text(value))).collect())
            }));
            if is_last {
                return all;
            }
        }
    }

    async fn entries(&self, unreadable: &mut Vec<String>) -> Vec<Entry> {
        let stream = self.name(STREAM);
        let group = read(&stream, self.read_group().await, unreadable);
        let last = group.map(|group| id_of(&group["last-delivered-id"].as_str().expect("an id")));
        let pending: Vec<(String, String, i64, i64)> = match last {
            Some(_) => {
                let all = ("-", "+", 1_000_000_u64);
                read(&stream, self.client.xpending(&stream, GROUP, all).await, unreadable)
            }
            None => Vec::new(),
        };
        let pending: BTreeSet<String> = pending.into_iter().map(|(id, ..)| id).collect();
        let entries = self.pages(&stream, unreadable).await;
        if last.is_none() && !entries.is_empty() {
            unreadable.push(format!("{stream} has {} entries, and no group {GROUP}", entries.len()));
        }
        let entry = |(id, fields): (String, Vec<(String, String)>)| Entry {
            is_open: pending.contains(&id) || last.is_none_or(|last| id_of(&id) > last),
            id,
            message: Message::of(&fields),
            earlier: earlier(&fields),
        };
        entries.into_iter().map(entry).collect()
    }

    async fn letters(&self, unreadable: &mut Vec<String>) -> Vec<Letter> {
        let letters = self.pages(&self.name(DEAD), unreadable).await.into_iter();
        let letter = |(_, mut fields): (String, Vec<(String, String)>)| {
            let entry = fields.iter().rev().find(|(name, _)| name == "dead:entry").map(|(_, id)| id.clone());
            if let Some((_, packed)) = fields.first().filter(|(name, _)| name == "dead:fields").cloned() {
                let packed: Vec<String> = serde_json::from_str(&packed).unwrap_or_default();
                let pairs = packed.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
                fields.splice(..1, pairs);
            }
            Letter { entry, earlier: earlier(&fields), message: Message::of(&fields) }
        };
        letters.map(letter).collect()
    }

    async fn sale(&self, voucher: i64) -> Sale {
        let key = |name: &str| self.name(&format!("seckill:{name}:{voucher}"));
        let mut sale = Sale::default();
        let unreadable = &mut sale.unreadable;
        let [stock, limited, order, journal, limits, uses] =
            ["stock", "limited", "order", "journal", "limits:voucher", "uses:voucher"].map(key);
        let client = self.client;
        let plain: Option<i64> = read(&stock, client.get(&stock).await, unreadable);
        let other: Option<i64> = read(&limited, client.get(&limited).await, unreadable);
        let buyers: Vec<i64> = read(&order, client.smembers(&order).await, unreadable);
        let notes: Fields = read(&journal, client.hgetall(&journal).await, unreadable);
        if let Some((plain, other)) = plain.zip(other) {
            unreadable.push(format!("it has two stocks, {stock} of {plain} and {limited} of {other}"));
        }
        let change: Option<String> = client.hget(key("voucher"), "change").await.expect("Redis answers");
        sale.is_changing = change.is_some_and(|change| change.contains(r#""state":"open""#));
        sale.rules = client.hget(&limits, "rules").await.expect("Redis answers");
        sale.uses = client.hgetall(&uses).await.expect("Redis answers");
        sale.stock = plain.or(other);
        sale.buyers = buyers.into_iter().collect();
        for (field, note) in notes {
            let parsed = serde_json::from_str(&note).unwrap_or_else(|error| {
                unreadable.push(format!("{journal}: the note {note:?} of {field}: {error}"));
                Json::Null
            });
            sale.notes.insert(field, parsed);
        }
        sale
    }

    async fn campaign(&self, campaign: i64) -> Campaign {
        let key = |name: &str| self.name(&format!("seckill:{name}:campaign:{campaign}"));
        let limits: Fields = self.client.hgetall(key("limits")).await.expect("Redis answers");
        let regions = limits.iter().filter(|(name, _)| name.starts_with("region:"));
        Campaign {
            vouchers: regions.filter_map(|(_, voucher)| voucher.parse().ok()).collect(),
            rules: limits.get("rules").cloned(),
            uses: self.client.hgetall(key("uses")).await.expect("Redis answers"),
        }
    }
}

/// What Redis answered for a key. Its error is noted.
fn read<T: Default>(key: &str, reply: Result<T, fred::error::Error>, unreadable: &mut Vec<String>) -> T {
    reply.unwrap_or_else(|error| {
        unreadable.push(format!("{key}: {error}"));
        T::default()
    })
}

/// An entry id as numbers that can be compared.
pub fn id_of(id: &str) -> (u64, u64) {
    let (ms, seq) = id.split_once('-').unwrap_or((id, "0"));
    (ms.parse().unwrap_or(0), seq.parse().unwrap_or(0))
}
