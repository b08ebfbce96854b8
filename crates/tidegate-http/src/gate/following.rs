//! The gate works with the list of partitions that the system has, whatever its settings say. While that list is changed, it admits
//! nobody and is not ready; then it goes on with the new one by itself.

use std::{
    convert::Infallible,
    mem,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use tidegate_operations::{
    System,
    partition_list::{Standing, named_list, standing},
};
use tidegate_orders::gate::SoldOut;
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    ORDER_PERMITS,
    gates::Gates,
    ordering::Ordering,
    problem::{Problem, ProblemKind},
    refusals::Refusals,
};
use crate::order_pages::{OrderPages, OrderWatch};

/// A change waits for all gates: they are to notice it soon.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Whoever is on the way may need the connections of the list before for so long.
const LEFT_AFTER: Duration = Duration::from_secs(30);
/// A note of a gate that has stopped ends by itself later.
const NOTE_WITHIN: Duration = Duration::from_millis(500);

/// All that answers for one list of partitions.
#[derive(Debug)]
pub struct Generation {
    pub gates: Arc<Gates>,
    pub ordering: Ordering,
    pub orders: OrderPages,
    closing: CancellationToken,
    watching: JoinHandle<()>,
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.closing.cancel();
        self.watching.abort();
    }
}

/// What is the same in all of them.
#[derive(Clone, Debug)]
pub struct Surroundings {
    pub sold_out: Arc<SoldOut>,
    pub refusals: Refusals,
    /// Nobody is let in any more.
    pub closing: CancellationToken,
}

impl Surroundings {
    fn generation(&self, system: &System) -> anyhow::Result<Generation> {
        let closing = self.closing.child_token();
        let gates = Arc::new(Gates::connect(system, &self.sold_out, &closing)?);
        let watch = Arc::new(OrderWatch::new(gates.stores()));
        let orders = OrderPages::new(Arc::clone(&watch), ORDER_PERMITS, closing.clone());
        let ordering = Ordering::new(Arc::clone(&gates), Arc::clone(&self.sold_out), self.refusals.clone());
        // Not until `closing`: an answer that is on its way at the stop may wait for it.
        let watching = tokio::spawn(async move { watch.run().await });
        Ok(Generation { gates, ordering, orders, closing, watching })
    }
}

/// Whether callers are admitted by the list that is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Use {
    /// No partition has told its list yet.
    NotSeen,
    /// It is that of the system.
    Open,
    /// It is not, or it is being changed: why.
    LetGo(String),
}

/// The list of partitions in use, and what answers for it.
#[derive(Debug)]
pub struct Following {
    /// As the settings say.
    given: System,
    /// Tells this gate from all others.
    name: String,
    surroundings: Surroundings,
    generation: RwLock<Arc<Generation>>,
    list_use: RwLock<Use>,
}

impl Following {
    /// Begins with the list of the settings.
    ///
    /// # Errors
    /// When the URL of MySQL is wrong, which the configuration has ruled out.
    pub fn begin(system: &System, name: String, surroundings: Surroundings) -> anyhow::Result<Self> {
        let generation = RwLock::new(Arc::new(surroundings.generation(system)?));
        Ok(Self {
            given: system.clone(),
            name,
            surroundings,
            generation,
            list_use: RwLock::new(Use::NotSeen),
        })
    }

    /// What answers now.
    pub fn now(&self) -> Arc<Generation> {
        Arc::clone(&self.generation.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What admits now.
    ///
    /// # Errors
    /// What callers hear while nobody is admitted.
    pub fn admitting(&self) -> Result<Arc<Generation>, Problem> {
        match self.list_use() {
            Use::Open => Ok(self.now()),
            Use::NotSeen => Err(ProblemKind::RedisAway.into()),
            Use::LetGo(why) => Err(ProblemKind::Paused.because(why)),
        }
    }

    /// Why nobody is admitted; None: Redis decides on that.
    pub fn not_ready(&self) -> Option<String> {
        match self.list_use() {
            Use::Open if self.now().gates.was_any_open() => None,
            Use::Open | Use::NotSeen => Some("starting: waits for Redis".to_owned()),
            Use::LetGo(why) => Some(why),
        }
    }

    /// Looks whether the list has changed, for as long as it is polled.
    pub async fn run(&self) -> Infallible {
        loop {
            let generation = self.now();
            let before = self.list_use();
            self.look(&generation).await;
            // What it has found out is looked at once more before anybody is admitted by it.
            if self.list_use() == Use::NotSeen && before != Use::NotSeen {
                continue;
            }
            tokio::select! {
                () = sleep(LOOK_EVERY) => {}
                () = generation.gates.one_more_is_reached() => {}
            }
        }
    }

    /// Nobody is admitted any more.
    pub async fn end(&self) {
        let generation = self.now();
        let _by_time = timeout(NOTE_WITHIN, generation.gates.end_work(&self.name)).await;
    }

    async fn look(&self, generation: &Arc<Generation>) {
        let gates = &generation.gates;
        let is_at_work = !matches!(self.list_use(), Use::LetGo(_));
        if is_at_work {
            // First: whoever changes the list waits for those who say that they work with it, and then they look.
            gates.note_work(&self.name).await;
        }
        match standing(&gates.kept_lists().await, gates.list()) {
            None => {}
            Some(Standing::Own) if is_at_work => self.set(Use::Open),
            Some(Standing::Own) => self.set(Use::NotSeen),
            Some(Standing::Changing(why) | Standing::Mixed(why)) => self.let_go(gates, why.to_string()).await,
            Some(Standing::Other(list, why)) => match self.system_of(&list) {
                Some(system) => self.go_on(&system, &list).await,
                None => {
                    let why = format!(
                        "{why}; this gate cannot change its list while it runs: set stream.partitions to that list and \
                         restart it"
                    );
                    self.let_go(gates, why).await;
                }
            },
        }
    }

    /// The system with another list. None: it has more than a list says, or is not all of it.
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
                "the gate admits no orders: its list of partitions is not the system's, or is being changed"
            );
            self.set(Use::LetGo(why));
        }
        gates.end_work(&self.name).await;
    }

    async fn go_on(&self, system: &System, list: &[String]) {
        let before = self.now();
        before.gates.end_work(&self.name).await;
        let next = match self.surroundings.generation(system) {
            Ok(next) => Arc::new(next),
            Err(error) => return self.let_go(&before.gates, format!("{error:#}")).await,
        };
        tracing::warn!(
            before = named_list(before.gates.list()),
            now = named_list(list),
            "the gate goes on with the list of partitions that the system has: set stream.partitions to it"
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

/// Ends what answered for a list when the last answer is given.
async fn leave(generation: Arc<Generation>) {
    // Who watches an order comes again.
    generation.closing.cancel();
    let is_left = async {
        while Arc::strong_count(&generation) > 1 {
            sleep(LOOK_EVERY).await;
        }
    };
    let _in_time = timeout(LEFT_AFTER, is_left).await;
    generation.gates.close().await;
}
