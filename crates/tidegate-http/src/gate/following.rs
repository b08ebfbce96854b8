//! The following of the system's list of partitions. The gate works with the list that the system has, whatever its
//! settings say. While an operator changes that list, the gate admits no orders and is not ready; then it continues
//! with the new list by itself.

use std::{
    convert::Infallible,
    mem,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use tidegate_operations::{
    System,
    partition_list::{ListStatus, list_status, named_list},
};
use tidegate_orders::scripts::SoldOut;
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    ORDER_PERMITS,
    gates::Gates,
    offers::Offers,
    ordering::Ordering,
    problem::{Problem, ProblemKind},
    refusals::Refusals,
};
use crate::{
    order_pages::{OrderPages, OrderWatch},
    results::{ResultPages, SharedResults},
};

/// The pause between two checks of the list. A change of the list waits for all gates, so they have to notice it soon.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The time for which requests in progress may still need the connections of the previous list.
const LEFT_AFTER: Duration = Duration::from_secs(30);
/// The time for deleting the note of this gate when it stops. If that fails, the note expires by itself.
const NOTE_WITHIN: Duration = Duration::from_millis(500);

/// The connections, order pages and order processing of the gate for one version of the partition list.
#[derive(Debug)]
pub struct Generation {
    pub gates: Arc<Gates>,
    pub ordering: Ordering,
    pub orders: OrderPages,
    pub offers: Offers,
    pub results: ResultPages,
    closing: CancellationToken,
    watching: JoinHandle<()>,
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.closing.cancel();
        self.watching.abort();
    }
}

/// The data that the gate keeps when the list of partitions changes.
#[derive(Clone, Debug)]
pub struct SharedParts {
    pub sold_out: Arc<SoldOut>,
    pub refusals: Refusals,
    pub results: SharedResults,
    /// The time for which the gate reuses what it has read about a voucher.
    pub offers_fresh_for: Duration,
    /// The token that is cancelled when the gate accepts no more connections.
    pub closing: CancellationToken,
}

impl SharedParts {
    fn generation(&self, system: &System) -> anyhow::Result<Generation> {
        let closing = self.closing.child_token();
        let gates = Arc::new(Gates::connect(system, &self.sold_out, &closing)?);
        let watch = Arc::new(OrderWatch::new(gates.stores()));
        let orders = OrderPages::new(Arc::clone(&watch), ORDER_PERMITS, closing.clone());
        let ordering = Ordering::new(Arc::clone(&gates), Arc::clone(&self.sold_out), self.refusals.clone());
        let offers = Offers::new(Arc::clone(&gates), self.refusals.clone(), self.offers_fresh_for);
        // The watch does not end at `closing`: a request that is in progress at the stop may still wait for its
        // answer.
        let watching = tokio::spawn(async move { watch.run().await });
        let results = ResultPages::new(system, self.results.clone(), closing.clone());
        Ok(Generation { gates, ordering, orders, offers, results, closing, watching })
    }
}

/// Whether the gate admits orders with the list that it uses.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Use {
    /// No partition has answered with its list yet.
    NotSeen,
    /// The gate uses the list of the system.
    Open,
    /// The list is not that of the system, or it is being changed; with the reason.
    LetGo(String),
}

/// The part of the gate that follows changes of the partition list, and keeps the connections for the present list.
#[derive(Debug)]
pub struct Following {
    /// The system as the settings describe it.
    given: System,
    /// The name of this gate, which no other gate has.
    name: String,
    shared: SharedParts,
    generation: RwLock<Arc<Generation>>,
    list_use: RwLock<Use>,
}

impl Following {
    /// Connects the gate with the list of partitions in the settings.
    ///
    /// # Errors
    /// Fails if the URL of MySQL is invalid, which the check of the configuration rules out.
    pub fn begin(system: &System, name: String, shared: SharedParts) -> anyhow::Result<Self> {
        let generation = RwLock::new(Arc::new(shared.generation(system)?));
        Ok(Self { given: system.clone(), name, shared, generation, list_use: RwLock::new(Use::NotSeen) })
    }

    /// The [`Generation`] that answers requests: the connections and pages for the present list of partitions.
    pub fn now(&self) -> Arc<Generation> {
        Arc::clone(&self.generation.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The [`Generation`] (connections and pages) for the present list of partitions. Returns a problem instead if the
    /// gate may not admit orders now.
    ///
    /// # Errors
    /// Fails with the answer for callers while the gate admits no orders.
    pub fn admitting(&self) -> Result<Arc<Generation>, Problem> {
        match self.list_use() {
            Use::Open => Ok(self.now()),
            Use::NotSeen => Err(ProblemKind::RedisAway.into()),
            Use::LetGo(why) => Err(ProblemKind::Paused.because(why)),
        }
    }

    /// The reason why the gate admits no orders at present. None: the gate admits orders.
    pub fn not_ready(&self) -> Option<String> {
        match self.list_use() {
            Use::Open if self.now().gates.was_any_open() => None,
            Use::Open | Use::NotSeen => Some("starting: waiting for Redis".to_owned()),
            Use::LetGo(why) => Some(why),
        }
    }

    /// Checks repeatedly whether the list of partitions has changed, without end.
    pub async fn run(&self) -> Infallible {
        loop {
            let generation = self.now();
            let before = self.list_use();
            self.look(&generation).await;
            // The gate checks a list that it has just found once more before it admits orders with it.
            if self.list_use() == Use::NotSeen && before != Use::NotSeen {
                continue;
            }
            tokio::select! {
                () = sleep(LOOK_EVERY) => {}
                () = generation.gates.one_more_is_reached() => {}
            }
        }
    }

    /// Deletes the note in Redis which says that this gate uses its list of partitions. The gate calls this function
    /// when it stops.
    pub async fn end(&self) {
        let generation = self.now();
        let _by_time = timeout(NOTE_WITHIN, generation.gates.end_work(&self.name)).await;
    }

    async fn look(&self, generation: &Arc<Generation>) {
        let gates = &generation.gates;
        let is_at_work = !matches!(self.list_use(), Use::LetGo(_));
        if is_at_work {
            // The note comes first: a command that changes the list waits for the gates that have a note, and each
            // gate checks the list after its note.
            gates.note_work(&self.name).await;
        }
        match list_status(&gates.stored_lists().await, gates.list()) {
            None => {}
            Some(ListStatus::Own) if is_at_work => self.set(Use::Open),
            Some(ListStatus::Own) => self.set(Use::NotSeen),
            Some(ListStatus::Changing(why) | ListStatus::Mixed(why)) => {
                self.let_go(gates, why.to_string()).await
            }
            Some(ListStatus::Other(list, why)) => match self.system_of(&list) {
                Some(system) => self.go_on(&system, &list).await,
                None => {
                    let why = format!(
                        "{why}; this gate cannot change its list of partitions at run time: set stream.partitions to \
                         the system's list, and restart the gate"
                    );
                    self.let_go(gates, why).await;
                }
            },
        }
    }

    /// Creates the system with another list of partitions. None: the settings have more than a list can say, or they
    /// do not have the whole system.
    fn system_of(&self, list: &[String]) -> Option<System> {
        let given = self.given.common();
        let is_whole = self.given.partitions().len() == given.partition().tags().len().max(1);
        let is_possible = !list.is_empty() || !self.given.is_on_cluster();
        let is_one_mysql = given.mysql.shard_tags.is_empty();
        (is_whole && is_possible && is_one_mysql).then(|| self.given.with_tags(list))
    }

    async fn let_go(&self, gates: &Gates, why: String) {
        if self.list_use() != Use::LetGo(why.clone()) {
            tracing::warn!(
                why,
                "the gate admits no orders: its list of partitions is not the system's list, or is being changed"
            );
            self.set(Use::LetGo(why));
        }
        gates.end_work(&self.name).await;
    }

    async fn go_on(&self, system: &System, list: &[String]) {
        let before = self.now();
        before.gates.end_work(&self.name).await;
        let next = match self.shared.generation(system) {
            Ok(next) => Arc::new(next),
            Err(error) => return self.let_go(&before.gates, format!("{error:#}")).await,
        };
        tracing::warn!(
            before = named_list(before.gates.list()),
            now = named_list(list),
            "the gate continues with the system's list of partitions: set stream.partitions to the list in the field `now`"
        );
        self.set(Use::NotSeen);
        let generation = &mut *self.generation.write().unwrap_or_else(PoisonError::into_inner);
        drop(mem::replace(generation, next));
        tokio::spawn(leave(before));
    }

    fn list_use(&self) -> Use {
        self.list_use.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, list_use: Use) {
        *self.list_use.write().unwrap_or_else(PoisonError::into_inner) = list_use;
    }
}

/// Closes the connections of a previous list after its last answer.
async fn leave(generation: Arc<Generation>) {
    // Clients that watch an order connect again.
    generation.closing.cancel();
    let is_left = async {
        while Arc::strong_count(&generation) > 1 {
            sleep(LOOK_EVERY).await;
        }
    };
    let _in_time = timeout(LEFT_AFTER, is_left).await;
    generation.results.close().await;
    generation.gates.close().await;
}
