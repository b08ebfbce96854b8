//! The clients that have sent requests recently, in bounded memory.

use std::{
    collections::HashMap,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use governor::{nanos::Nanos, state::StateStore};

/// The largest number of values in a generation. Two generations take about 4.5 MB for each limit.
const GENERATION: usize = 100_000;

/// The memory of recent requests for one limit: for each client, the time at which the client may send a request again.
/// If more than [`GENERATION`] clients send requests within the span of the limit, the memory may forget a client too
/// early.
#[derive(Debug)]
pub struct Recent {
    span: Duration,
    generations: Mutex<Generations>,
}

#[derive(Debug)]
struct Generations {
    began: Instant,
    young: HashMap<u64, Nanos>,
    old: HashMap<u64, Nanos>,
}

impl Recent {
    pub fn new(span: Duration) -> Self {
        let empty = Generations { began: Instant::now(), young: HashMap::new(), old: HashMap::new() };
        Self { span, generations: Mutex::new(empty) }
    }

    fn generations(&self) -> MutexGuard<'_, Generations> {
        // Each change is a single call, so a panic cannot leave a partial change behind.
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generations {
    /// Begins a new generation if it is time. After a long silence, both are dropped, because no client has asked
    /// within the span.
    fn turn_over(&mut self, span: Duration, now: Instant) {
        let age = now.saturating_duration_since(self.began);
        if age >= span || self.young.len() >= GENERATION {
            self.old = mem::take(&mut self.young);
            self.began = now;
        }
        if age >= span.saturating_mul(2) {
            self.old = HashMap::new();
        }
    }

    fn get(&self, key: u64) -> Option<Nanos> {
        self.young.get(&key).or_else(|| self.old.get(&key)).copied()
    }
}

impl StateStore for Recent {
    type Key = u64;

    fn measure_and_replace<T, F, E>(&self, key: &u64, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let mut generations = self.generations();
        generations.turn_over(self.span, Instant::now());
        let (decided, next) = decide(generations.get(*key))?;
        generations.young.insert(*key, next);
        Ok(decided)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_secs(60);

    fn put(recent: &Recent, key: u64) {
        let _decided: Result<(), ()> = recent.measure_and_replace(&key, |_| Ok(((), Nanos::new(key))));
    }

    #[test]
    fn however_many_ask_the_last_of_them_are_remembered_and_memory_has_an_end() {
        let recent = Recent::new(SPAN);
        for key in 0..1_000_000 {
            put(&recent, key);
        }
        let kept = recent.generations();
        assert!(kept.young.len() <= GENERATION && kept.old.len() <= GENERATION);
        let room = kept.young.capacity() + kept.old.capacity();
        assert!(room * size_of::<(u64, Nanos, u8)>() < 8 << 20, "{room}");
        assert!((900_001..1_000_000).all(|key| kept.get(key) == Some(Nanos::new(key))));
    }

    #[test]
    fn whoever_has_not_asked_for_a_span_is_dropped_and_who_has_stays() {
        let recent = Recent::new(SPAN);
        put(&recent, 1);
        let mut kept = recent.generations();
        let began = kept.began;
        kept.turn_over(SPAN, began + SPAN);
        assert_eq!(kept.get(1), Some(Nanos::new(1)), "it may have asked a moment ago");
        kept.young.insert(2, Nanos::new(2));
        kept.turn_over(SPAN, began + SPAN * 2);
        assert_eq!((kept.get(1), kept.get(2)), (None, Some(Nanos::new(2))));
        kept.turn_over(SPAN, began + SPAN * 5);
        assert_eq!(kept.get(2), None, "after a long silence");
        assert_eq!(kept.young.capacity() + kept.old.capacity(), 0);
    }
}
