//! Closes all sales, and waits until streams are empty, workers have ended and gates have stopped using the old list.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, bail};
use tidegate_compare::{Job, text::counted};
use tidegate_orders::{gate_notes, work_in_progress};
use tidegate_stream::inspect;
use tokio::time::sleep;

use super::{PartitionChange, listed_partitions::ListedPartition, report::ChangeReport};
use crate::{
    fleet_pause::FleetPause,
    webhooks::{WebhookStatus, has_sender, list},
};

const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The number of reads after which the command prints again what it waits for.
const SAY_EVERY: u32 = 50;

impl PartitionChange {
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
            if open == 0 && unsent.is_none() {
                break;
            }
            if job.is_stopped() {
                return Ok(false);
            }
            if looks % SAY_EVERY == 0 {
                let workers = self.living_workers().await?;
                job.progress.say(&match workers.len() as u64 {
                    _ if open == 0 => unsent.map(|unsent| unsent.text).unwrap_or_default(),
                    0 => format!(
                        "{} to be written, but no worker is alive: start a worker with the old list of partitions",
                        counted(open, "entry")
                    ),
                    workers => format!(
                        "waiting until {} write {}; check that the workers are not paused",
                        counted(workers, "worker"),
                        counted(open, "entry")
                    ),
                });
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
    pub(super) async fn unsent_results(&self) -> anyhow::Result<Option<UnsentResults>> {
        let (mut each, mut are_stuck) = (Vec::new(), false);
        let is_kept =
            |old: &ListedPartition| self.partitions.new.iter().any(|new| new.prefix() == old.prefix());
        for partition in self.partitions.old.iter().filter(|partition| !is_kept(partition)) {
            let (settings, redis) = (&partition.settings, &partition.redis);
            let views = list(settings, redis).await.context("Failed to read the webhooks")?;
            for view in views.into_iter().filter(|view| view.backlog.unsent() > 0) {
                let (name, state) = (&view.name, view.backlog.state());
                let has_sender = has_sender(redis, name).await.context("Failed to read the lease")?;
                are_stuck |= !has_sender || state != WebhookStatus::Sending;
                let state = if has_sender { state.word() } else { "no worker sends them" };
                let results = counted(view.backlog.unsent(), "unsent result");
                each.push(format!("{name} has {results} in {} ({state})", settings.partition()));
            }
        }
        let text = format!(
            "the new list leaves out partitions with results that webhooks have not sent: {}. Wait until workers have \
             sent them; tidegate webhooks shows why they have not. If you do not need the results, remove the webhook from \
             the configuration of the workers, restart the workers, and type tidegate webhooks --remove NAME",
            each.join(", ")
        );
        Ok(Some(UnsentResults { text, are_stuck }).filter(|_| !each.is_empty()))
    }
}

/// The results that webhooks have not sent in the partitions that the new list leaves out. After the change, no worker
/// reads these partitions.
pub(super) struct UnsentResults {
    pub(super) text: String,
    /// Whether the results stay unsent until an operator or a receiver does something.
    pub(super) are_stuck: bool,
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
