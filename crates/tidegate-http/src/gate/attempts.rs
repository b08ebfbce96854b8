//! The limits on how often a client may send requests. The gate checks them before it calls Redis. It counts in the
//! memory of this process and forgets the counts when the process ends.
//!
//! The rule is GCRA (generic cell rate algorithm), as the library implements it. The memory for the counts is ours: it
//! is bounded, whatever clients send.

mod recent;

use std::{
    hash::{BuildHasher, RandomState},
    net::{IpAddr, Ipv6Addr},
};

use governor::{
    Quota, RateLimiter,
    clock::{Clock, MonotonicClock},
};
use tidegate_orders::{Subjects, UserId, limits::SubjectName};

use self::recent::Recent;
use super::problem::{Problem, ProblemKind};
use crate::settings::{AttemptRate, AttemptSettings};

/// The name of the subject that every order has.
const USER: &str = "user";
/// The smallest network that an IPv6 subscriber has. Addresses inside it cost the subscriber nothing, so they all
/// count as one.
const IPV6_SUBSCRIBER: Ipv6Addr = Ipv6Addr::new(0xffff, 0xffff, 0xffff, 0xffff, 0, 0, 0, 0);

/// The limits on how many requests a client may send to a gate, with the counts of recent requests.
#[derive(Debug)]
pub struct Attempts {
    by_address: Option<Limiter>,
    by_subject: Vec<(SubjectName, Limiter)>,
}

impl Attempts {
    pub fn new(settings: &AttemptSettings) -> Self {
        let by_subject = settings.by_subject.iter().map(|(name, rate)| (name.clone(), Limiter::new(*rate)));
        let mut by_subject: Vec<_> = by_subject.collect();
        // The user counts first: a user that asks too often must not use up the attempts of a phone number that may
        // belong to another user.
        by_subject.sort_by_key(|(name, _)| name.as_str() != USER);
        Self { by_address: settings.by_address.map(Limiter::new), by_subject }
    }

    /// Counts a request by the address of the caller, before the gate checks the rest of the request.
    ///
    /// # Errors
    /// Fails if the address has sent too many requests.
    pub fn count_address(&self, address: IpAddr) -> Result<(), Problem> {
        let Some(limiter) = &self.by_address else { return Ok(()) };
        limiter.count(&subscriber(address).octets()).map_err(|wait_ms| too_many(None, wait_ms))
    }

    /// Counts a request by its user and by each subject that the request names, such as a device.
    ///
    /// # Errors
    /// Fails if one subject has too many requests. The subjects after it are not counted then.
    pub fn count_subjects(&self, user: UserId, subjects: &Subjects) -> Result<(), Problem> {
        for (name, limiter) in &self.by_subject {
            let user = (name.as_str() == USER).then(|| user.to_string());
            let named = || subjects.iter().find(|(named, _)| *named == name).map(|(_, value)| value);
            if let Some(value) = user.as_deref().or_else(named) {
                limiter.count(value.as_bytes()).map_err(|wait_ms| too_many(Some(name), wait_ms))?;
            }
        }
        Ok(())
    }
}

fn too_many(subject: Option<&SubjectName>, wait_ms: u64) -> Problem {
    let kind = ProblemKind::TooManyAttempts;
    let problem = match subject {
        Some(subject) => Problem::from(kind).with("subject", subject.as_str()),
        None => kind.because("too many requests came from the address of the caller"),
    };
    problem.come_again_in(wait_ms)
}

fn subscriber(address: IpAddr) -> Ipv6Addr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address & IPV6_SUBSCRIBER,
    }
}

/// One limit with its counts.
#[derive(Debug)]
struct Limiter {
    limiter: RateLimiter<u64, Recent, MonotonicClock>,
    /// The hashes are keyed with a secret of this process, so that clients cannot choose values that share a hash. A
    /// hash takes less memory than a value.
    hashing: RandomState,
}

impl Limiter {
    fn new(rate: AttemptRate) -> Self {
        Self {
            limiter: RateLimiter::new(quota(rate), Recent::new(rate.span), MonotonicClock),
            hashing: RandomState::new(),
        }
    }

    /// Counts an attempt. If there were too many, this fails with the milliseconds until the next attempt.
    fn count(&self, value: &[u8]) -> Result<(), u64> {
        self.limiter.check_key(&self.hashing.hash_one(value)).map_err(|until| {
            let wait = until.wait_time_from(self.limiter.clock().now());
            u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).saturating_add(1)
        })
    }
}

fn quota(rate: AttemptRate) -> Quota {
    let each = rate.span / rate.attempts.get();
    // None if an attempt takes no time at all, which the settings refuse. Then the quota is the largest that can be
    // counted.
    Quota::with_period(each).unwrap_or(Quota::per_second(rate.attempts)).allow_burst(rate.attempts)
}

#[cfg(test)]
mod tests {
    use std::{num::NonZeroU32, time::Duration};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn rate(attempts: u32) -> AttemptRate {
        AttemptRate { attempts: NonZeroU32::new(attempts).unwrap(), span: HOUR }
    }

    fn attempts(by_address: u32, by_subject: &[(&str, u32)]) -> Attempts {
        let by_subject = by_subject.iter().map(|(name, most)| (name.parse().unwrap(), rate(*most)));
        Attempts::new(&AttemptSettings {
            by_address: Some(rate(by_address)),
            by_subject: by_subject.collect(),
        })
    }

    #[test]
    fn an_address_has_its_attempts_whatever_others_do() {
        let attempts = attempts(2, &[]);
        let count = |address: &str| attempts.count_address(address.parse().unwrap());
        for address in ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8:0:1::1"] {
            assert!(count(address).is_ok() && count(address).is_ok(), "{address}");
            let told = count(address).unwrap_err();
            assert_eq!(
                (told.kind, told.retry_after_s),
                (ProblemKind::TooManyAttempts, Some(1800)),
                "{address}"
            );
        }
        assert!(count("2001:db8::ffff:1").is_err(), "the same subscriber");
        assert!(count("::ffff:192.0.2.1").is_err(), "the same address");
    }

    #[test]
    fn each_subject_has_its_attempts_and_the_refusal_names_it() {
        let attempts = attempts(1, &[("phone", 2), ("user", 3)]);
        let user = |id: i64| UserId::try_from(id).unwrap();
        let phone = |number: &str| Subjects::none().with("phone", number).unwrap();
        assert!(attempts.count_subjects(user(1), &phone("a")).is_ok());
        assert!(attempts.count_subjects(user(2), &phone("a")).is_ok());
        let told = attempts.count_subjects(user(3), &phone("a")).unwrap_err();
        assert_eq!(told.members["subject"], "phone");
        assert!(
            told.members["retryAfterMs"].as_u64().is_some_and(|ms| (1_799_000..=1_800_001).contains(&ms))
        );
        for _ in 0..2 {
            assert!(
                attempts.count_subjects(user(1), &Subjects::none()).is_ok(),
                "nothing is said of a phone"
            );
        }
        let told = attempts.count_subjects(user(1), &phone("b")).unwrap_err();
        assert_eq!(told.members["subject"], "user");
    }
}
