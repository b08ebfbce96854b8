//! A worker process. It has one worker for each partition of the system, with its own lanes, heartbeat and breaker, so
//! that no worker waits for another partition's Redis. The workers share the sessions with MySQL and the signals.

use std::{collections::BTreeMap, sync::Arc};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tidegate_orders::scripts::SoldOut;
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

/// A process with one worker for each partition of a system, before its workers connect.
#[derive(Debug)]
pub struct Process {
    partitions: Vec<Arc<View>>,
    sold_out: Option<Arc<SoldOut>>,
    stop: CancellationToken,
}

impl Process {
    /// Creates a process with one worker for each element of `settings`. All workers end when `stop` is cancelled.
    #[must_use]
    pub fn new(settings: &[ProcessSettings], stop: &CancellationToken) -> Self {
        let view = |settings| Arc::new(View::new(settings, stop.clone(), Arc::new(PauseSwitch::default())));
        Self { partitions: settings.iter().map(view).collect(), sold_out: None, stop: stop.clone() }
    }

    /// Connects the workers to `sold_out`, the sold-out memory of a gate in the same process. The workers report to
    /// this memory when units return to a stock.
    #[must_use]
    pub fn with_sold_out(self, sold_out: Arc<SoldOut>) -> Self {
        Self { sold_out: Some(sold_out), ..self }
    }

    /// The states of the workers for other tasks, one state for each partition.
    #[must_use]
    pub fn views(&self) -> Vec<Arc<View>> {
        self.partitions.clone()
    }

    /// Runs all workers until `stop` is cancelled. Then every worker finishes its work in progress. If the Redis of a
    /// partition is unavailable, only the worker of that partition waits.
    ///
    /// # Errors
    /// Fails with the error that ended a worker early: [`crate::NameTaken`], a panic of a lane, or a refusal of Redis
    /// at the start. The other workers have stopped in good order then.
    pub async fn run_until_stopped(self, traces: Option<Arc<Traces>>) -> anyhow::Result<()> {
        let mut shared = BTreeMap::new();
        // Only one comparison runs at a time: twelve of them would take twelve times the memory.
        let comparisons = Arc::new(Semaphore::new(1));
        // The workers themselves are not tasks, because their lanes, which do the work, are tasks.
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
            // This task ends with the last worker; it is not waited for.
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

/// Runs the worker of one partition, from its start to its end.
async fn work(
    view: Arc<View>,
    (mysql, comparisons): (SharedMySql, Arc<Semaphore>),
    sold_out: Option<Arc<SoldOut>>,
    traces: Option<Arc<Traces>>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let pause_switch = Arc::clone(view.pause_switch());
    // No work is in progress yet, so a stop may cut off the start, even while it waits for Redis or the name.
    let build = on_heap(|| {
        Worker::build(view.settings(), mysql, comparisons, sold_out, pause_switch, traces.as_deref())
    });
    let Some(worker) = stop.run_until_cancelled(build).await.transpose()? else { return Ok(()) };
    view.open(worker.parts().clone());
    on_heap(|| worker.run_until_stopped(stop)).await
}
