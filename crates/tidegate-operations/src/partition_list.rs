//! The list of a system's partitions, which each partition stores. With another list, vouchers would belong to other
//! partitions, so a process with another list does not start. While the list is changed, each partition stores the step
//! of the change.

use std::{collections::BTreeSet, time::Duration};

use anyhow::Context;
use fred::{interfaces::KeysInterface, types::SetOptions};
use serde::{Deserialize, Serialize};
use tidegate_orders::RedisStore;
use tidegate_stream::RedisError;
use tokio::time::sleep;

use crate::{change::InvalidInput, settings::SystemSettings};

/// The time between two reads of the list: workers must notice a change within some seconds.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The list of partitions that Redis stores: no list, a list, or a change from one list to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredList {
    /// No process has stored a list yet.
    Nothing,
    /// The tags of all partitions; empty: the system has no partitions.
    Settled(Vec<String>),
    /// The list is being changed.
    Changing(ListChange),
}

/// A change from one partition list to another, with its current step.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct ListChange {
    /// The tags of the partition list before the change.
    pub from: Vec<String>,
    /// The tags of the partition list after the change.
    pub to: Vec<String>,
    /// The current step of the change of the list.
    pub step: ChangeStep,
}

/// A step of a change of the partition list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeStep {
    /// Sales are closed. Workers with the old list write the entries of their streams, and send the results of removed
    /// partitions to webhooks.
    Draining,
    /// The workers with the old list end, and no process starts.
    Stopping,
    /// The keys of vouchers move to their new partitions.
    Moving,
    /// All keys are in their new partitions, and sales are opened.
    Opening,
}

impl ChangeStep {
    /// Returns the name of a step in the change of the partition list.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Draining => "draining",
            Self::Stopping => "stopping",
            Self::Moving => "moving",
            Self::Opening => "opening",
        }
    }
}

impl StoredList {
    /// Reads the partition list that is stored in the Redis of this partition.
    ///
    /// # Errors
    /// If Redis does not answer, or the key does not hold a list.
    pub async fn read(redis: &RedisStore) -> anyhow::Result<Self> {
        let key = redis.keys().partition_list().tags();
        let text: Option<String> = redis
            .pool()
            .get(&key)
            .await
            .with_context(|| format!("Failed to read the list of partitions ({})", key.as_str_lossy()))?;
        Self::parse(text.as_deref())
            .with_context(|| format!("the key {} does not hold a list of partitions", key.as_str_lossy()))
    }

    /// Writes this partition list to the Redis of the partition, and replaces the list that was stored before.
    ///
    /// # Errors
    /// If Redis does not answer or refuses.
    pub async fn write(&self, redis: &RedisStore) -> anyhow::Result<()> {
        let key = redis.keys().partition_list().tags();
        let kept: Result<(), _> = match self.text() {
            Some(text) => redis.pool().set(&key, text, None, None, false).await,
            None => redis.pool().del(&key).await,
        };
        kept.with_context(|| format!("Failed to store the list of partitions ({})", key.as_str_lossy()))
    }

    fn parse(text: Option<&str>) -> anyhow::Result<Self> {
        Ok(match text {
            None => Self::Nothing,
            Some("") => Self::Settled(Vec::new()),
            Some(text) if text.starts_with('{') => Self::Changing(serde_json::from_str(text)?),
            Some(text) => Self::Settled(text.split(',').map(str::to_owned).collect()),
        })
    }

    fn text(&self) -> Option<String> {
        match self {
            Self::Nothing => None,
            Self::Settled(tags) => Some(tags.join(",")),
            Self::Changing(change) => Some(serde_json::to_string(change).expect("words are JSON")),
        }
    }

    /// Returns why a process with this list must not start or continue.
    fn refusal(&self, own: &[String]) -> Option<InvalidInput> {
        let named = named_list;
        match self {
            Self::Nothing => None,
            Self::Settled(tags) if tags == own => None,
            Self::Settled(tags) => Some(InvalidInput(format!(
                "the system has the partitions {}, but stream.partitions is {}: this process would use wrong partitions. \
                 Set stream.partitions to the partitions of the system",
                named(tags),
                named(own)
            ))),
            Self::Changing(ListChange { from, step: ChangeStep::Draining, .. }) if from == own => None,
            Self::Changing(ListChange { from, to, .. }) => Some(InvalidInput(format!(
                "the partitions of the system are being changed from {} to {}: no process may run until the change is \
                 complete. See docs/partitions-change.md",
                named(from),
                named(to)
            ))),
        }
    }
}

/// The result of comparing the partition list in a process's settings with the lists in Redis.
#[derive(Debug)]
pub enum ListStatus {
    /// The system has the same list as the process.
    Own,
    /// The list is being changed, and no process works until the change is done; the text explains it.
    Changing(InvalidInput),
    /// The system has this other list; the text explains that the process's list is not the system's.
    Other(Vec<String>, InvalidInput),
    /// Partitions store different lists, which no step of a change does; the text names them.
    Mixed(InvalidInput),
}

/// Compares the partition list in the settings with the lists that all partitions store in Redis. None: no partition
/// answered.
#[must_use]
pub fn list_status(kept: &[StoredList], own: &[String]) -> Option<ListStatus> {
    kept.first()?;
    let refusals: Vec<(&StoredList, InvalidInput)> =
        kept.iter().filter_map(|it| Some((it, it.refusal(own)?))).collect();
    let is_changing = |kept: &StoredList| matches!(kept, StoredList::Changing(_));
    let changing = refusals.iter().position(|(kept, _)| is_changing(kept));
    let settled = |kept: &StoredList| match kept {
        StoredList::Settled(tags) => Some(tags.clone()),
        _ => None,
    };
    let lists: BTreeSet<Vec<String>> = kept.iter().filter_map(settled).collect();
    let first = refusals.into_iter().nth(changing.unwrap_or(0));
    Some(match first {
        None => ListStatus::Own,
        Some((StoredList::Changing(_), why)) => ListStatus::Changing(why),
        Some(_) if lists.len() > 1 => {
            let lists: Vec<String> = lists.iter().map(|tags| named_list(tags)).collect();
            ListStatus::Mixed(InvalidInput(format!(
                "the partitions store different lists of partitions: {}. Run tidegate partitions show",
                lists.join("; ")
            )))
        }
        Some((kept, why)) => ListStatus::Other(settled(kept).unwrap_or_default(), why),
    })
}

/// Formats a list of partition tags for people.
#[must_use]
pub fn named_list(tags: &[String]) -> String {
    if tags.is_empty() { "none (one whole)".to_owned() } else { tags.join(",") }
}

/// Stores the partition list of the settings in Redis if Redis has no list, and compares the list in Redis with the
/// settings. A system without partitions stores no list.
///
/// # Errors
/// [`InvalidInput`] if the lists differ; or an error if Redis does not answer.
pub async fn keep(settings: &SystemSettings, redis: &RedisStore) -> anyhow::Result<()> {
    if settings.partition().tag().is_some() {
        let (key, own) = (redis.keys().partition_list().tags(), settings.partition().tags().join(","));
        let first = Some(SetOptions::NX);
        let kept: Result<Option<String>, _> = redis.pool().set(&key, own, None, first, false).await;
        kept.with_context(|| format!("Failed to store the list of partitions ({})", key.as_str_lossy()))?;
    }
    compare(settings, redis).await
}

/// Compares the partition list in Redis with the settings, as [`keep`] does, but changes nothing. A partition that
/// stores no list is accepted.
///
/// # Errors
/// As for [`keep`].
pub async fn compare(settings: &SystemSettings, redis: &RedisStore) -> anyhow::Result<()> {
    let partition = settings.partition();
    let kept = match read_kept(settings, redis).await {
        // In a system without partitions, the next command reports the outage.
        Err(_) if partition.tag().is_none() => StoredList::Nothing,
        kept => kept?,
    };
    match kept.refusal(partition.tags()) {
        Some(refusal) => Err(refusal.into()),
        None => Ok(()),
    }
}

/// Reads the partition list that Redis stores. If Redis refuses the read for a reason that does not matter to the
/// process, returns [`StoredList::Nothing`].
///
/// # Errors
/// If Redis does not answer, or the key does not hold a list.
pub async fn read_kept(settings: &SystemSettings, redis: &RedisStore) -> anyhow::Result<StoredList> {
    let kept = StoredList::read(redis).await;
    kept.or_else(|error| match of_redis(&error) {
        // The slot has moved to another node, or no node has it. The other partitions store the list as well.
        Some(known) if known.is_slot_moving() => Ok(StoredList::Nothing),
        // In a system without partitions, the user may have no right to read this key.
        Some(known) if known.is_refusal() && settings.partition().tag().is_none() => Ok(StoredList::Nothing),
        _ => Err(error),
    })
}

fn of_redis(error: &anyhow::Error) -> Option<RedisError> {
    Some(error.downcast_ref::<fred::error::Error>()?.clone().into())
}

/// Waits until the partition list in Redis differs from the settings, and returns the reason to stop the process.
/// Ignores failed reads.
pub async fn until_changed(settings: &SystemSettings, redis: &RedisStore) -> InvalidInput {
    loop {
        sleep(LOOK_EVERY).await;
        match StoredList::read(redis).await {
            Ok(kept) => {
                if let Some(refusal) = kept.refusal(settings.partition().tags()) {
                    return refusal;
                }
            }
            Err(error) => {
                tracing::debug!("failed to read whether the list of partitions has changed: {error:#}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(text: &str) -> Vec<String> {
        text.split(',').filter(|tag| !tag.is_empty()).map(str::to_owned).collect()
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let change = ListChange { from: tags(""), to: tags("3,1"), step: ChangeStep::Moving };
        for kept in [
            StoredList::Nothing,
            StoredList::Settled(tags("")),
            StoredList::Settled(tags("3,1")),
            StoredList::Changing(change),
        ] {
            assert_eq!(StoredList::parse(kept.text().as_deref()).unwrap(), kept);
        }
        assert!(StoredList::parse(Some("{")).is_err());
    }

    #[test]
    fn the_list_before_is_good_until_workers_are_told_to_end() {
        let (before, after) = (tags("3,1"), tags("3,1,0,11"));
        let is_refused = |kept: &StoredList, own: &[String]| kept.refusal(own).is_some();
        for step in [ChangeStep::Draining, ChangeStep::Stopping, ChangeStep::Moving, ChangeStep::Opening] {
            let kept = StoredList::Changing(ListChange { from: before.clone(), to: after.clone(), step });
            assert_eq!(is_refused(&kept, &before), step != ChangeStep::Draining, "{step:?}");
            assert!(is_refused(&kept, &after), "{step:?}");
        }
        assert!(!is_refused(&StoredList::Nothing, &before));
        assert!(!is_refused(&StoredList::Settled(before.clone()), &before));
        assert!(is_refused(&StoredList::Settled(after), &before));
        assert!(is_refused(&StoredList::Settled(tags("")), &before));
    }

    #[test]
    fn who_follows_the_list_waits_for_all_partitions_and_takes_no_list_of_which_some_are_unsure() {
        let (before, after) = (tags("3,1"), tags("3,1,0,11"));
        let settled = |tags: &[String]| StoredList::Settled(tags.to_vec());
        let at = |step| StoredList::Changing(ListChange { from: before.clone(), to: after.clone(), step });
        let list_status = |kept: &[StoredList]| match list_status(kept, &before) {
            None => "none",
            Some(ListStatus::Own) => "own",
            Some(ListStatus::Changing(_)) => "changing",
            Some(ListStatus::Other(to, _)) if to == after => "other",
            Some(ListStatus::Other(..)) => "wrong",
            Some(ListStatus::Mixed(_)) => "mixed",
        };
        assert_eq!(list_status(&[]), "none");
        assert_eq!(list_status(&[settled(&before), StoredList::Nothing]), "own");
        assert_eq!(list_status(&[settled(&before), at(ChangeStep::Draining)]), "own");
        assert_eq!(list_status(&[at(ChangeStep::Draining), at(ChangeStep::Stopping)]), "changing");
        assert_eq!(list_status(&[settled(&after), at(ChangeStep::Opening)]), "changing");
        assert_eq!(list_status(&[settled(&after), settled(&after)]), "other");
        assert_eq!(list_status(&[settled(&after), settled(&before)]), "mixed");
    }
}
