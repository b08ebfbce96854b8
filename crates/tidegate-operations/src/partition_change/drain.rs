//! Waits until webhooks have the results of removed partitions, and closes all sales. Then waits until streams are
//! empty, webhooks have the last of these results, workers have ended and gates have stopped using the old list.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use tidegate_compare::{Job, text::counted};
use tidegate_orders::{Partition, gate_notes, work_in_progress};
use tidegate_stream::inspect;
use tokio::time::sleep;

use super::{PartitionChange, listed_partitions::ListedPartition, report::ChangeReport};
use crate::{
    fleet_pause::FleetPause,
    webhooks::{WebhookStatus, WebhookView, has_sender, list},
};

const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The number of reads after which the command prints again what it waits for.
const SAY_EVERY: u32 = 50;

impl PartitionChange {
    /// Waits until webhooks have sent the present results of partitions that the new list leaves out, however many these
    /// are. Sales stay open, so that only the few results that came since remain for [`Self::drain`]. False: it was
    /// stopped before.
    pub(super) async fn wait_for_backlog(&self, job: &Job) -> anyhow::Result<bool> {
        let start = Instant::now();
        for looks in 0_u32.. {
            let unsent = self.unsent_results().await?;
            if unsent.oldest_s <= start.elapsed().as_secs_f64() {
                break;
            }
            if job.is_stopped() {
                return Ok(false);
            }
            if looks % SAY_EVERY == 0 {
                job.progress.say(&format!("sales are still open, because {}", unsent.text()));
            }
            sleep(LOOK_EVERY).await;
        }
        Ok(true)
    }

    /// Closes the sale of every voucher.
    pub(super) async fn close(&self, report: &mut ChangeReport) -> anyhow::Result<()> {
        for partition in &self.partitions.old {
            for voucher in partition.vouchers().await? {
                report.closed += u64::from(partition.redis.repairs().close(voucher).await?);
            }
        }
        Ok(())
    }

    /// Restores every sale to its state before the change, in its new partition.
    pub(super) async fn reopen(&self, report: &mut ChangeReport) -> anyhow::Result<()> {
        for partition in &self.partitions.new {
            for voucher in partition.vouchers().await? {
                report.opened += u64::from(partition.redis.repairs().reopen(voucher).await?);
            }
        }
        Ok(())
    }

    /// Waits until workers have written all entries of the streams, and have sent the results of partitions that the new
    /// list leaves out. False: it was stopped before.
    pub(super) async fn drain(&self, job: &Job) -> anyhow::Result<bool> {
        for looks in 0_u32.. {
            let open = self.open_entries().await?;
            let unsent = self.unsent_results().await?;
            if open == 0 && unsent.count == 0 {
                break;
            }
            if job.is_stopped() {
                return Ok(false);
            }
            if looks % SAY_EVERY == 0 {
                let workers = self.living_workers().await?;
                let why = match workers.len() as u64 {
                    _ if open == 0 => unsent.text(),
                    0 => format!(
                        "{} to be written, but no worker is alive: start a worker with the old list of partitions",
                        counted(open, "entry")
                    ),
                    workers => format!(
                        "waiting until {} write {}; check that the workers are not paused",
                        counted(workers, "worker"),
                        counted(open, "entry")
                    ),
                };
                job.progress.say(&format!(
                    "sales are closed: {why}. To open them without the change, stop this command, and type tidegate \
                     partitions change --to '{}'",
                    self.lists().0.join(",")
                ));
            }
            sleep(LOOK_EVERY).await;
        }
        match self.dead_letters().await? {
            0 => Ok(true),
            letters => bail!("{}", dead_letters_stay(letters)),
        }
    }

    /// Waits until no worker lives and no gate uses the old list. False: it was stopped before.
    pub(super) async fn wait_for_processes(&self, job: &Job) -> anyhow::Result<bool> {
        for looks in 0_u32.. {
            let (workers, gates) = (self.living_workers().await?, self.working_gates().await?);
            if workers.is_empty() && gates.is_empty() {
                break;
            }
            if job.is_stopped() {
                return Ok(false);
            }
            if looks % SAY_EVERY == 0 {
                for (names, what) in
                    [(workers, "workers have ended"), (gates, "gates have stopped using the old list")]
                {
                    if !names.is_empty() {
                        let names: Vec<_> = names.into_iter().collect();
                        job.progress.say(&format!("waiting until these {what}: {}", names.join(", ")));
                    }
                }
            }
            sleep(LOOK_EVERY).await;
        }
        Ok(true)
    }

    /// Counts the entries of all streams of the old list that are not acknowledged.
    pub(super) async fn open_entries(&self) -> anyhow::Result<u64> {
        let mut open = 0;
        for partition in &self.partitions.old {
            open += open_entries(partition).await?;
        }
        Ok(open)
    }

    pub(super) async fn living_workers(&self) -> anyhow::Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for partition in &self.partitions.old {
            names.extend(work_in_progress::read_all(&partition.redis).await?.into_keys());
        }
        Ok(names)
    }

    /// Returns the gates over HTTP that use the old list.
    pub(super) async fn working_gates(&self) -> anyhow::Result<BTreeSet<String>> {
        let (from, _) = self.lists();
        let mut names = BTreeSet::new();
        for partition in &self.partitions.old {
            let gates = gate_notes::read_all(&partition.redis).await?;
            names.extend(gates.into_iter().filter(|(_, list)| *list == from).map(|(name, _)| name));
        }
        Ok(names)
    }

    pub(super) async fn are_workers_paused(&self) -> anyhow::Result<bool> {
        for partition in &self.partitions.old {
            if FleetPause::read(&partition.redis).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) async fn dead_letters(&self) -> anyhow::Result<u64> {
        let mut letters = 0;
        for partition in &self.partitions.old {
            letters += inspect(&partition.redis, &partition.settings.stream_names()).await?.dead;
        }
        Ok(letters)
    }

    /// Reads which webhooks have not sent all results of the partitions that the new list leaves out. A webhook that is
    /// not in the settings of this process may be in those of the workers.
    pub(super) async fn unsent_results(&self) -> anyhow::Result<UnsentResults> {
        let mut unsent = UnsentResults::default();
        let is_kept =
            |old: &ListedPartition| self.partitions.new.iter().any(|new| new.prefix() == old.prefix());
        for partition in self.partitions.old.iter().filter(|partition| !is_kept(partition)) {
            let (settings, redis) = (&partition.settings, &partition.redis);
            let views = list(settings, redis).await.context("Failed to read the webhooks")?;
            for view in views.iter().filter(|view| view.backlog.unsent() > 0) {
                let has_sender = has_sender(redis, &view.name).await.context("Failed to read the lease")?;
                unsent.add(view, has_sender, settings.partition());
            }
        }
        Ok(unsent)
    }
}

/// The results that webhooks have not sent in the partitions that the new list leaves out. After the change, no worker
/// reads these partitions.
#[derive(Default)]
pub(super) struct UnsentResults {
    /// The number of the results. A result counts once for each webhook.
    pub(super) count: u64,
    /// Whether some results stay unsent until an operator or a receiver does something.
    pub(super) are_stuck: bool,
    /// The age of the oldest result, in seconds.
    oldest_s: f64,
    webhooks: Vec<String>,
}

impl UnsentResults {
    fn add(&mut self, webhook: &WebhookView, has_sender: bool, partition: &Partition) {
        let WebhookView { name, backlog, .. } = webhook;
        let (is_stuck, state) = match backlog.state() {
            WebhookStatus::Paused => (true, "paused: resume it"),
            _ if !has_sender => (true, "no worker sends: start a worker"),
            WebhookStatus::Retrying => (true, "retrying: repair the receiver"),
            _ => (false, "sending"),
        };
        let results = counted(backlog.unsent(), "unsent result");
        let system = if partition.tag().is_some() { "" } else { " system" };
        self.webhooks.push(format!("{name} has {results} in {partition}{system} ({state})"));
        self.count += backlog.unsent();
        self.are_stuck |= is_stuck;
        // The age is unknown if the consumer group was lost: then all results that are kept are sent again.
        self.oldest_s = self.oldest_s.max(backlog.oldest_unsent_s.unwrap_or(f64::INFINITY));
    }

    pub(super) fn text(&self) -> String {
        format!(
            "webhooks have unsent results in partitions that the new list leaves out: {}. If you do not need the \
             results, remove the webhook from the configuration of the workers, restart the workers, and type \
             tidegate webhooks --remove NAME",
            self.webhooks.join(", ")
        )
    }
}

async fn open_entries(partition: &ListedPartition) -> anyhow::Result<u64> {
    let status = inspect(&partition.redis, &partition.settings.stream_names()).await?;
    Ok(match status.group {
        Some(group) => group.pending + group.undelivered.number(),
        None => status.length,
    })
}

/// Explains why nothing moves while there are dead letters.
pub(super) fn dead_letters_stay(letters: u64) -> String {
    format!(
        "there {} {} in the old partitions, and the change moves no dead letters: with the old list of partitions, \
         first requeue, cancel or drop all dead letters (tidegate dead list)",
        if letters == 1 { "is" } else { "are" },
        counted(letters, "dead letter")
    )
}

#[cfg(test)]
mod tests {
    use tidegate_orders::webhook_notes::WebhookPause;

    use super::*;
    use crate::webhooks::WebhookBacklog;

    #[test]
    fn the_text_about_unsent_results_names_what_ends_the_wait() {
        let pause = WebhookPause { by: "worker w".into(), reason: "410".into(), at_ms: 1 };
        let [whole, one] = [vec![], vec!["3".to_owned()]].map(|tags| Partition::all(&tags).remove(0));
        // A worker gives up the lease of a paused webhook.
        for (pause, has_sender, partition, is_stuck, expected) in [
            (
                Some(pause),
                false,
                &whole,
                true,
                "shop has 2 unsent results in the whole system (paused: resume it)",
            ),
            (None, false, &one, true, "shop has 2 unsent results in {3} (no worker sends: start a worker)"),
            (None, true, &one, false, "shop has 2 unsent results in {3} (sending)"),
        ] {
            let backlog = WebhookBacklog { pause, unread: 2, has_group: true, ..WebhookBacklog::default() };
            let state = WebhookStatus::Sending;
            let webhook = WebhookView { name: "shop".into(), url: None, kinds: vec![], state, backlog };
            let mut unsent = UnsentResults::default();
            unsent.add(&webhook, has_sender, partition);
            assert_eq!((unsent.count, unsent.are_stuck), (2, is_stuck));
            assert_eq!(unsent.oldest_s, f64::INFINITY, "of unknown age, so sales stay open for them");
            assert!(unsent.text().contains(&format!("leaves out: {expected}. If")), "{}", unsent.text());
        }
    }
}
