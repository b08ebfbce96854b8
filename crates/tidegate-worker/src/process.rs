//! A worker process: for each partition of the system a worker, with its own lanes, heartbeat and breaker, so that none waits for
//! another one's Redis. They share the sessions with MySQL and the signals.

use std::{collections::BTreeMap, sync::Arc};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tidegate_orders::gate::SoldOut;
use tidegate_stream::PauseSwitch;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use crate::{
    on_heap::on_heap,
    settings::ProcessSettings,
    trace::Traces,
    view::View,
    worker::{SharedMySql, Worker},
};

/// Workers for the partitions of a system, not connected yet.
#[derive(Debug)]
pub struct Process {
    partitions: Vec<Arc<View>>,
    sold_out: Option<Arc<SoldOut>>,
    stop: CancellationToken,
}

impl Process {
    /// One worker for each of `settings`. `stop` ends them all.
    #[must_use]
    pub fn new(settings: &[ProcessSettings], stop: &CancellationToken) -> Self {
        let view = |settings| Arc::new(View::new(settings, stop.clone(), Arc::new(PauseSwitch::default())));
        Self { partitions: settings.iter().map(view).collect(), sold_out: None, stop: stop.clone() }
    }

    /// As this one, but its workers tell `sold_out` what they release: for a gate of the same process.
    #[must_use]
    pub fn telling(self, sold_out: Arc<SoldOut>) -> Self {
        Self { sold_out: Some(sold_out), ..self }
    }

    /// What there is to see of each partition.
    #[must_use]
    pub fn views(&self) -> Vec<Arc<View>> {
        self.partitions.clone()
    }

    /// Works until told to stop, then finishes what is in progress in every partition. A partition whose Redis is away is waited
    /// for, while the others work.
    ///
    /// # Errors
    /// What ended one of the workers before its time ([`crate::NameTaken`], a lane that panicked, a refusal of Redis at the
    /// start): the others have stopped in good order.
    pub async fn run_until_stopped(self, traces: Option<Arc<Traces>>) -> anyhow::Result<()> {
        let mut shared = BTreeMap::new();
        // One at a time: twelve would take the memory of twelve.
        let comparisons = Arc::new(Semaphore::new(1));
        // Not tasks of their own: what is work, their lanes, are tasks.
        let mut workers = FuturesUnordered::new();
        for view in self.partitions {
            let url = view.settings().system.mysql.url.reveal().to_owned();
            let mysql = match shared.get(&url) {
                Some(mysql) => SharedMySql::clone(mysql),
                None => SharedMySql::of(&view.settings().system)?,
            };
            shared.insert(url, mysql.clone());
            let span = match view.settings().system.partition().tag() {
                Some(tag) => tracing::info_span!("partition", tag),
                None => Span::none(),
            };
            let (comparisons, sold_out) = (Arc::clone(&comparisons), self.sold_out.clone());
            let (traces, stop) = (traces.clone(), self.stop.clone());
            workers.push(work(view, (mysql, comparisons), sold_out, traces, stop).instrument(span));
        }
        for mysql in shared.into_values() {
            let stop = self.stop.clone();
            // Ends with the last worker: nobody waits for it.
            tokio::spawn(async move { stop.run_until_cancelled(mysql.watch()).await });
        }
        let mut outcome = Ok(());
        while let Some(ended) = workers.next().await {
            if let Err(error) = ended {
                self.stop.cancel();
                outcome = outcome.and(Err(error));
            }
        }
        outcome
    }
}

/// The worker of one partition, from its start to its end.
async fn work(
    view: Arc<View>,
    (mysql, comparisons): (SharedMySql, Arc<Semaphore>),
    sold_out: Option<Arc<SoldOut>>,
    traces: Option<Arc<Traces>>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let pause_switch = Arc::clone(view.pause_switch());
    // Nothing is in progress yet, however long Redis or the name is waited for.
    let build = on_heap(|| {
        Worker::build(view.settings(), mysql, comparisons, sold_out, pause_switch, traces.as_deref())
    });
    let Some(worker) = stop.run_until_cancelled(build).await.transpose()? else { return Ok(()) };
    view.open(worker.parts().clone());
    on_heap(|| worker.run_until_stopped(stop)).await
}
