//! A handler that remembers, waits and fails as a test wants.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use tidegate_stream::{Cause, DeadLetterReason, Entry, EntryId, Handled, Handler, Outage, Outcome};
use tokio::sync::watch;

use super::DEADLINE;

/// A batch that was begun.
#[derive(Clone, Debug)]
pub struct Begun {
    pub ids: Vec<EntryId>,
    pub at: Instant,
}

/// Remembers every batch that it was given, in order.
pub struct RecordingHandler {
    batches: watch::Sender<Vec<Begun>>,
    /// While it is shut, batches wait within the handler.
    door_is_open: watch::Sender<bool>,
    store_works: watch::Sender<bool>,
    received: Mutex<Vec<EntryId>>,
    burials: Mutex<Vec<(EntryId, &'static str)>>,
    decide: Box<dyn Fn(&Entry) -> Outcome + Send + Sync>,
}

impl RecordingHandler {
    pub fn new(decide: impl Fn(&Entry) -> Outcome + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            batches: watch::Sender::default(),
            door_is_open: watch::Sender::new(true),
            store_works: watch::Sender::new(true),
            received: Mutex::default(),
            burials: Mutex::default(),
            decide: Box::new(decide),
        })
    }

    /// Everything can be done.
    pub fn done() -> Arc<Self> {
        Self::new(|_| Outcome::Done)
    }

    pub fn shut_door(&self) {
        self.door_is_open.send_replace(false);
    }

    pub fn open_door(&self) {
        self.door_is_open.send_replace(true);
    }

    pub fn set_store(&self, works: bool) {
        self.store_works.send_replace(works);
    }

    /// New entries that came, handed over yet or not.
    pub fn received(&self) -> Vec<EntryId> {
        self.received.lock().unwrap().clone()
    }

    /// What it was told of entries that it was not handed.
    pub fn burials(&self) -> Vec<(EntryId, &'static str)> {
        self.burials.lock().unwrap().clone()
    }

    pub fn batches(&self) -> Vec<Begun> {
        self.batches.borrow().clone()
    }

    /// Ids in the order in which they were handed over; as often as they were.
    pub fn ids(&self) -> Vec<EntryId> {
        self.batches.borrow().iter().flat_map(|batch| batch.ids.clone()).collect()
    }

    pub fn sizes(&self) -> Vec<usize> {
        self.batches.borrow().iter().map(|batch| batch.ids.len()).collect()
    }

    /// Waits until so many entries, repetitions included, were handed over.
    pub async fn until_seen(&self, entries: usize) {
        let enough =
            |batches: &Vec<Begun>| batches.iter().map(|batch| batch.ids.len()).sum::<usize>() >= entries;
        let mut batches = self.batches.subscribe();
        let seen = tokio::time::timeout(DEADLINE, batches.wait_for(enough)).await;
        assert!(
            seen.is_ok(),
            "{entries} entries were to be seen in time; batches of {:?} were",
            self.sizes()
        );
    }
}

impl Handler for RecordingHandler {
    async fn handle(&self, batch: &[Entry]) -> Result<Handled, Outage> {
        let ids = batch.iter().map(|entry| entry.id).collect();
        self.batches.send_modify(|batches| batches.push(Begun { ids, at: Instant::now() }));
        let _ = self.door_is_open.subscribe().wait_for(|is_open| *is_open).await;
        if !*self.store_works.borrow() {
            return Err(Outage::new("store", "away"));
        }
        Ok(batch.iter().map(&self.decide).collect())
    }

    fn received(&self, entries: &[Entry]) {
        self.received.lock().unwrap().extend(entries.iter().map(|entry| entry.id));
    }

    async fn before_burial(&self, entry: EntryId, why: &DeadLetterReason) -> Result<(), Outage> {
        if !*self.store_works.borrow() {
            return Err(Outage::new("store", "away"));
        }
        self.burials.lock().unwrap().push((entry, why.reason));
        Ok(())
    }
}

/// The number that [`Rig::add`](super::Rig::add) gave to an entry.
pub fn number(entry: &Entry) -> usize {
    str::from_utf8(&entry.fields[0].1).unwrap().parse().unwrap()
}

/// It waits for something, all for the same.
pub fn set_aside() -> Outcome {
    set_aside_for(0)
}

pub fn set_aside_for(key: u64) -> Outcome {
    Outcome::SetAside(Cause::new("door", key))
}

pub fn dead(error: &str) -> Outcome {
    Outcome::Dead(DeadLetterReason { reason: "no_good", error: error.to_owned() })
}
