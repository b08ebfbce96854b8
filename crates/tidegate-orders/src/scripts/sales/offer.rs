//! The offer of a voucher: what a buyer may know about its sale.

use fred::{
    interfaces::{ClientLike, HashesInterface, KeysInterface},
    types::{ClusterHash, CustomCommand, Value},
};
use jiff::Timestamp;

use super::{BEGIN_MS, DELISTED, END_MS, PAUSE, Pause, STATE, SaleWindow, Sales, number, window};
use crate::{
    keys::naming,
    limits::{LimitOwner, RuleSet},
    order::VoucherId,
    scripts::{ScriptError, sale_limits::RULES},
};

/// The field of the busy mark: `until <ms>` or `from <ms>`.
const BUSY_MARK: &str = "brake";

/// The offer of a voucher at one moment, by the clock of Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The state of the sale.
    pub state: OfferState,
    /// The number of units that the voucher has left. `None` if no stock is loaded.
    pub stock: Option<i64>,
    /// The time window of the sale.
    pub window: SaleWindow,
    /// The limits of the voucher, without the common limits of its campaign.
    pub rules: RuleSet,
}

/// The state of a sale, as a buyer meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OfferState {
    /// The voucher can be bought.
    OnSale,
    /// Workers are too far behind, so orders are refused for a while.
    Busy,
    /// An operator has paused the sale.
    Paused,
    /// The sale has not begun.
    NotBegun,
    /// The voucher has no unit left.
    SoldOut,
    /// The time of the sale is over.
    Over,
    /// The sale has ended for ever.
    Delisted,
}

impl OfferState {
    /// All states of a sale, the best for a buyer first.
    pub const ALL: [Self; 7] =
        [Self::OnSale, Self::Busy, Self::Paused, Self::NotBegun, Self::SoldOut, Self::Over, Self::Delisted];

    /// The word for this state of a sale in answers.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::OnSale => "on_sale",
            Self::Busy => "busy",
            Self::Paused => "paused",
            Self::NotBegun => "not_begun",
            Self::SoldOut => "sold_out",
            Self::Over => "over",
            Self::Delisted => "delisted",
        }
    }
}

/// The facts that decide the state of a sale.
#[derive(Clone, Copy, Debug)]
struct Facts {
    stock: Option<i64>,
    window: SaleWindow,
    is_paused: bool,
    is_delisted: bool,
    is_busy: bool,
    now: Timestamp,
}

impl Facts {
    /// The state in which the scripts find the sale: they check in this sequence. `None` if the voucher is not loaded.
    fn state(&self) -> Option<OfferState> {
        let Self { stock, window, now, .. } = *self;
        Some(match stock {
            _ if self.is_delisted => OfferState::Delisted,
            Some(..=0) => OfferState::SoldOut,
            _ if self.is_paused => OfferState::Paused,
            None => return None,
            _ if window.begin.is_some_and(|begin| now < begin) => OfferState::NotBegun,
            _ if window.end.is_some_and(|end| now >= end) => OfferState::Over,
            _ if self.is_busy => OfferState::Busy,
            Some(_) => OfferState::OnSale,
        })
    }
}

impl Sales {
    /// Reads the offer of a voucher, in one round trip. `None` if the voucher is not loaded.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn read_offer(&self, voucher: VoucherId) -> Result<Option<Offer>, ScriptError> {
        let keys = &self.access.keys;
        let (plain_key, limited_key, sale_key) =
            (keys.stock(voucher), keys.limited(voucher), keys.voucher(voucher));
        let rules_key = keys.limits(LimitOwner::Voucher(voucher)).rules();
        let client = self.access.pool.next();
        let fields = vec![BEGIN_MS, END_MS, STATE, PAUSE, DELISTED, BUSY_MARK];
        let clock = CustomCommand::new_static("TIME", ClusterHash::Random, false);
        let (plain, limited, sale, rules, time) = tokio::join!(
            client.get::<Option<String>, _>(&plain_key),
            client.get::<Option<String>, _>(&limited_key),
            client.hmget::<Vec<Option<String>>, _, _>(&sale_key, fields),
            client.hget::<Option<String>, _, _>(&rules_key, RULES),
            client.custom::<Vec<String>, Value>(clock, vec![]),
        );
        let plain = plain.map_err(|error| naming(&plain_key, error))?;
        let limited = limited.map_err(|error| naming(&limited_key, error))?;
        let sale = sale.map_err(|error| naming(&sale_key, error))?;
        let rules = rules.map_err(|error| naming(&rules_key, error))?;
        let now = moment(&time?);
        let [begin, end, state, pause, delisted, busy] = <[_; 6]>::try_from(sale).unwrap_or_default();
        let (stock_key, stock) = if limited.is_some() { (limited_key, limited) } else { (plain_key, plain) };
        let stock = number(|| stock_key.as_str_lossy().into_owned(), stock)?;
        let window = window(&sale_key, begin, end)?;
        let facts = Facts {
            stock,
            window,
            is_paused: Pause::from_fields(state.as_deref(), pause.as_deref()).is_paused(),
            is_delisted: delisted.is_some(),
            is_busy: busy.is_some_and(|mark| is_busy(&mark, now.as_millisecond())),
            now,
        };
        let rules = rules.and_then(|rules| RuleSet::parse(&rules)).unwrap_or_default();
        Ok(facts.state().map(|state| Offer { state, stock, window, rules }))
    }
}

/// The time that the command TIME returned: seconds and microseconds.
fn moment(time: &[String]) -> Timestamp {
    let part = |at: usize| time.get(at).and_then(|part| part.parse::<i64>().ok()).unwrap_or_default();
    Timestamp::from_millisecond(part(0) * 1000 + part(1) / 1000).unwrap_or_default()
}

/// Whether a busy mark holds now, as the scripts decide it (lua/include/busy.lua).
fn is_busy(mark: &str, now_ms: i64) -> bool {
    let Some((word, ms)) = mark.split_once(' ') else { return false };
    ms.parse::<i64>().is_ok_and(|ms| (word == "until") == (now_ms < ms))
}
