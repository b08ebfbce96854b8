//! Orders of vouchers with limits: `lua/admit_limited.lua` and `lua/release_limited.lua`. The store uses these scripts
//! after another script answers that a voucher has limits. It remembers such vouchers, each with its campaign.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use fred::{clients::Pool, error::Error, types::Value};
use tidegate_stream::Script;

use super::{
    Admission, AdmitReply, Release, ReleaseReply, ScriptError, UserAfter,
    access::RedisAccess,
    idempotency::{AdmitScript, Decided, RequestKey},
    of_order, understood,
};
use crate::{
    limits::{LimitOwner, LimitReached, RateReached},
    order::{CampaignId, VoucherId},
};

/// The maximum number of calls for one order. Between two calls, the campaign may become known, or the limits may be
/// removed.
const TRIES: usize = 3;

/// Sends calls for vouchers with limits, and remembers which vouchers have them.
#[derive(Debug)]
pub(super) struct LimitedCalls {
    access: RedisAccess,
    admit: AdmitScript,
    release: Script,
    /// Vouchers that had limits at the last call, with the campaign of each.
    known: Mutex<HashMap<VoucherId, Option<CampaignId>>>,
}

/// The reply to a call of a script for limits.
pub(super) enum LimitedReply<T> {
    /// The answer of the script.
    Answer(T),
    /// The voucher has no limits: the usual script decides.
    NoLimits,
}

impl LimitedCalls {
    pub(super) fn new(access: RedisAccess) -> Self {
        Self {
            access,
            admit: AdmitScript::admit_limited(),
            release: Script::new("release_limited", include_str!("../../../../lua/release_limited.lua")),
            known: Mutex::default(),
        }
    }

    /// Replaces `lua/admit_limited.lua` by another script.
    pub(super) fn admitting_by(self, admit: Script) -> Self {
        Self { admit: self.admit.replaced_by(admit), ..self }
    }

    /// Whether the voucher had limits at the last call.
    pub(super) fn knows(&self, voucher: VoucherId) -> bool {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&voucher)
    }

    pub(super) async fn admit(
        &self,
        pool: &Pool,
        admission: &Admission,
        key: Option<&RequestKey>,
        traceparent: Value,
    ) -> Result<LimitedReply<Decided<AdmitReply>>, ScriptError> {
        let Admission { order, user, voucher, quantity, ref subjects, .. } = *admission;
        let mut args = vec![
            order.get().into(),
            user.get().into(),
            voucher.get().into(),
            quantity.get().into(),
            traceparent,
        ];
        args.extend(subjects.iter().flat_map(|(name, value)| [name.as_str().into(), value.into()]));
        for _ in 0..TRIES {
            let campaign = self.campaign_of(voucher);
            let mut keys = vec![
                self.access.keys.limited(voucher),
                self.access.keys.buyers(voucher),
                self.access.keys.voucher(voucher),
                self.access.keys.journal(voucher),
                self.access.stream.clone(),
            ];
            let owners = [LimitOwner::Voucher(voucher)].into_iter().chain(campaign.map(LimitOwner::Campaign));
            let of_limits = owners.map(|owner| self.access.keys.limits(owner));
            keys.extend(of_limits.flat_map(|limits| [limits.rules(), limits.uses()]));
            let decided = self.admit.call(pool, order, key, keys, args.clone()).await;
            match decided.map_err(Told::of) {
                Ok(Decided { order, reply }) => {
                    let reply = admit_reply(&reply)?;
                    return Ok(LimitedReply::Answer(Decided { order, reply }));
                }
                Err(Told::NoLimits) => {
                    self.forget(voucher);
                    return Ok(LimitedReply::NoLimits);
                }
                Err(Told::Campaign(campaign)) => self.remember(voucher, Some(campaign)),
                Err(Told::NoSubject(name)) => return Err(ScriptError::NoSubject { voucher, name }),
                Err(Told::Other(error)) => return Err(of_order(order, error)),
            }
        }
        Err(changes_again_and_again("admit_limited.lua"))
    }

    /// Releases an order of a voucher with limits, even if the order was admitted without limits.
    pub(super) async fn release(&self, release: &Release) -> Result<ReleaseReply, ScriptError> {
        let Release { order, user, voucher, units, user_after, ref by } = *release;
        let mut campaign = self.campaign_of(voucher);
        let free = match user_after {
            UserAfter::Freed => 1_i64,
            UserAfter::StaysBuyer => 2,
            UserAfter::SlotIsTaken => 0,
        };
        for _ in 0..TRIES {
            let mut keys = vec![
                self.access.keys.limited(voucher),
                self.access.keys.stock(voucher),
                self.access.keys.buyers(voucher),
                self.access.keys.journal(voucher),
                self.access.keys.limits(LimitOwner::Voucher(voucher)).uses(),
            ];
            let of_campaign =
                campaign.map(|campaign| self.access.keys.limits(LimitOwner::Campaign(campaign)));
            keys.extend(of_campaign.map(|limits| limits.uses()));
            let args: Vec<Value> = vec![
                order.get().into(),
                user.get().into(),
                units.map_or(0, crate::order::Quantity::get).into(),
                free.into(),
                by.as_ref().into(),
                campaign.map_or_else(String::new, |campaign| campaign.to_string()).into(),
            ];
            match self.release.call(&self.access.pool, keys, args).await.map_err(Told::of) {
                Ok(reply) => return understood("release_limited.lua", &reply, ReleaseReply::from_code),
                // The campaign that the voucher belonged to at the admission.
                Err(Told::Campaign(then)) => campaign = Some(then),
                Err(Told::Other(error)) => return Err(of_order(order, error)),
                Err(Told::NoLimits | Told::NoSubject(_)) => break,
            }
        }
        Err(changes_again_and_again("release_limited.lua"))
    }

    /// Remembers that the voucher has limits, of its own or of a campaign.
    pub(super) fn remember(&self, voucher: VoucherId, campaign: Option<CampaignId>) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(voucher, campaign);
    }

    fn forget(&self, voucher: VoucherId) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&voucher);
    }

    fn campaign_of(&self, voucher: VoucherId) -> Option<CampaignId> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&voucher).copied().flatten()
    }
}

/// The meaning of an error of these scripts.
enum Told {
    NoLimits,
    Campaign(CampaignId),
    NoSubject(String),
    Other(Error),
}

impl Told {
    fn of(error: Error) -> Self {
        let told = |mark: &str| {
            let (_, rest) = error.details().split_once(mark)?;
            rest.split_whitespace().next().map(str::to_owned)
        };
        match (told(": CAMPAIGN ").and_then(|id| id.parse().ok()), told(": NOSUBJECT ")) {
            (Some(campaign), _) => Self::Campaign(campaign),
            (None, Some(subject)) => Self::NoSubject(subject),
            (None, None) if error.details().contains(": NOLIMITS ") => Self::NoLimits,
            (None, None) => Self::Other(error),
        }
    }
}

fn admit_reply(reply: &Value) -> Result<AdmitReply, ScriptError> {
    if let Value::Array(parts) = reply {
        let texts: Vec<String> = parts.iter().map(|part| part.as_string().unwrap_or_default()).collect();
        match &texts.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["9", name, orders, units, opens] => {
                return Ok(AdmitReply::OverLimit(LimitReached {
                    name: (*name).to_owned(),
                    orders_left: orders.parse().ok(),
                    units_left: units.parse().ok(),
                    opens_ms: opens.parse().ok(),
                }));
            }
            ["10", name, retry_ms] => {
                if let Ok(retry_ms) = retry_ms.parse() {
                    return Ok(AdmitReply::TooFast(RateReached { name: (*name).to_owned(), retry_ms }));
                }
            }
            _ => {}
        }
    }
    understood("admit_limited.lua", reply, AdmitReply::from_code)
}

fn changes_again_and_again(script: &str) -> ScriptError {
    let got = "a voucher whose campaign changed several times".to_owned();
    ScriptError::Unexpected { place: script.to_owned(), got }
}
