//! The list of a system's partitions, which each of them keeps. With another list, vouchers would belong elsewhere: whoever has one
//! does not begin. While the list is changed, each keeps how far that is.

use std::{collections::BTreeSet, time::Duration};

use anyhow::Context;
use fred::{interfaces::KeysInterface, types::SetOptions};
use serde::{Deserialize, Serialize};
use tidegate_orders::RedisStore;
use tidegate_stream::RedisError;
use tokio::time::sleep;

use crate::{change::InvalidInput, settings::SystemSettings};

/// Workers are to notice a change within some seconds.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What a partition keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeptList {
    /// Nobody with a list was there yet.
    Nothing,
    /// The tags of all partitions; none: the system is one whole.
    Settled(Vec<String>),
    /// The list is being changed.
    Changing(ListChange),
}

/// A change of the list, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct ListChange {
    /// The list before.
    pub from: Vec<String>,
    /// The list afterwards.
    pub to: Vec<String>,
    /// How far it is.
    pub step: ChangeStep,
}

/// How far a change of the list is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeStep {
    /// Sales are closed, and workers with the list before write what is in their streams.
    Draining,
    /// These workers end. Nobody else begins.
    Stopping,
    /// The keys of vouchers move.
    Moving,
    /// All is where it belongs; sales are opened.
    Opening,
}

impl ChangeStep {
    /// Its name.
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

impl KeptList {
    /// Reads what the partition of these keys keeps.
    ///
    /// # Errors
    /// When Redis does not answer, or the key holds something else than a list.
    pub async fn read(redis: &RedisStore) -> anyhow::Result<Self> {
        let key = redis.keys().partition_list().tags();
        let text: Option<String> = redis
            .pool()
            .get(&key)
            .await
            .with_context(|| format!("Failed to read the list of partitions ({})", key.as_str_lossy()))?;
        Self::parse(text.as_deref())
            .with_context(|| format!("{} holds no list of partitions", key.as_str_lossy()))
    }

    /// Has it kept, over what was there.
    ///
    /// # Errors
    /// When Redis does not answer or refuses.
    pub async fn write(&self, redis: &RedisStore) -> anyhow::Result<()> {
        let key = redis.keys().partition_list().tags();
        let kept: Result<(), _> = match self.text() {
            Some(text) => redis.pool().set(&key, text, None, None, false).await,
            None => redis.pool().del(&key).await,
        };
        kept.with_context(|| format!("Failed to keep the list of partitions ({})", key.as_str_lossy()))
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

    /// Why whoever has this list must not begin, or go on.
    fn refusal(&self, own: &[String]) -> Option<InvalidInput> {
        let named = named_list;
        match self {
            Self::Nothing => None,
            Self::Settled(tags) if tags == own => None,
            Self::Settled(tags) => Some(InvalidInput(format!(
                "the system has the partitions {}, and stream.partitions says {}: vouchers would belong elsewhere. \
                 Set stream.partitions as the system has it",
                named(tags),
                named(own)
            ))),
            Self::Changing(ListChange { from, step: ChangeStep::Draining, .. }) if from == own => None,
            Self::Changing(ListChange { from, to, .. }) => Some(InvalidInput(format!(
                "the partitions of the system are being changed from {} to {}: nobody works until that is done. \
                 See docs/partitions-change.md",
                named(from),
                named(to)
            ))),
        }
    }
}

/// What the system's list is to a process that follows it.
#[derive(Debug)]
pub enum Standing {
    /// It is the list of the process.
    Own,
    /// It is being changed, and nobody works until that is done: why.
    Changing(InvalidInput),
    /// It is another one, and why this list is none of the system's.
    Other(Vec<String>, InvalidInput),
    /// Partitions keep different lists, which is no step of any change: which.
    Mixed(InvalidInput),
}

/// What partitions of this list keep, taken together. None: not one of them told.
#[must_use]
pub fn standing(kept: &[KeptList], own: &[String]) -> Option<Standing> {
    kept.first()?;
    let refusals: Vec<(&KeptList, InvalidInput)> =
        kept.iter().filter_map(|it| Some((it, it.refusal(own)?))).collect();
    let is_changing = |kept: &KeptList| matches!(kept, KeptList::Changing(_));
    let changing = refusals.iter().position(|(kept, _)| is_changing(kept));
    let settled = |kept: &KeptList| match kept {
        KeptList::Settled(tags) => Some(tags.clone()),
        _ => None,
    };
    let lists: BTreeSet<Vec<String>> = kept.iter().filter_map(settled).collect();
    let first = refusals.into_iter().nth(changing.unwrap_or(0));
    Some(match first {
        None => Standing::Own,
        Some((KeptList::Changing(_), why)) => Standing::Changing(why),
        Some(_) if lists.len() > 1 => {
            let lists: Vec<String> = lists.iter().map(|tags| named_list(tags)).collect();
            Standing::Mixed(InvalidInput(format!(
                "partitions keep different lists: {}. See tidegate partitions show",
                lists.join("; ")
            )))
        }
        Some((kept, why)) => Standing::Other(settled(kept).unwrap_or_default(), why),
    })
}

/// A list, as people read it.
#[must_use]
pub fn named_list(tags: &[String]) -> String {
    if tags.is_empty() { "none (one whole)".to_owned() } else { tags.join(",") }
}

/// Compares the list in Redis with that of the settings, and puts it there where there is none yet. A system without partitions
/// keeps none.
///
/// # Errors
/// [`InvalidInput`] when they differ; and when Redis does not answer.
pub async fn keep(settings: &SystemSettings, redis: &RedisStore) -> anyhow::Result<()> {
    if settings.partition().tag().is_some() {
        let (key, own) = (redis.keys().partition_list().tags(), settings.partition().tags().join(","));
        let first = Some(SetOptions::NX);
        let kept: Result<Option<String>, _> = redis.pool().set(&key, own, None, first, false).await;
        kept.with_context(|| format!("Failed to keep the list of partitions ({})", key.as_str_lossy()))?;
    }
    compare(settings, redis).await
}

/// As [`keep`], and changes nothing: a partition that keeps none is no reason to refuse.
///
/// # Errors
/// As [`keep`].
pub async fn compare(settings: &SystemSettings, redis: &RedisStore) -> anyhow::Result<()> {
    let partition = settings.partition();
    let kept = match read_kept(settings, redis).await {
        // It hears of an outage from what it does next.
        Err(_) if partition.tag().is_none() => KeptList::Nothing,
        kept => kept?,
    };
    match kept.refusal(partition.tags()) {
        Some(refusal) => Err(refusal.into()),
        None => Ok(()),
    }
}

/// What the partition of these settings keeps, as far as it matters to whoever works with it.
///
/// # Errors
/// When Redis does not answer, or the key holds something else than a list.
pub async fn read_kept(settings: &SystemSettings, redis: &RedisStore) -> anyhow::Result<KeptList> {
    let kept = KeptList::read(redis).await;
    kept.or_else(|error| match of_redis(&error) {
        // It has arrived at another node already, or there is none. The other partitions have theirs.
        Some(known) if known.is_slot_moving() => Ok(KeptList::Nothing),
        // Whoever has no partitions may have no right to look.
        Some(known) if known.is_refusal() && settings.partition().tag().is_none() => Ok(KeptList::Nothing),
        _ => Err(error),
    })
}

fn of_redis(error: &anyhow::Error) -> Option<RedisError> {
    Some(error.downcast_ref::<fred::error::Error>()?.clone().into())
}

/// Returns when the system has another list than the settings, and says so. A look that fails is no answer.
pub async fn until_changed(settings: &SystemSettings, redis: &RedisStore) -> InvalidInput {
    loop {
        sleep(LOOK_EVERY).await;
        match KeptList::read(redis).await {
            Ok(kept) => {
                if let Some(refusal) = kept.refusal(settings.partition().tags()) {
                    return refusal;
                }
            }
            Err(error) => tracing::debug!("cannot see whether the list of partitions has changed: {error:#}"),
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
            KeptList::Nothing,
            KeptList::Settled(tags("")),
            KeptList::Settled(tags("3,1")),
            KeptList::Changing(change),
        ] {
            assert_eq!(KeptList::parse(kept.text().as_deref()).unwrap(), kept);
        }
        assert!(KeptList::parse(Some("{")).is_err());
    }

    #[test]
    fn the_list_before_is_good_until_workers_are_told_to_end() {
        let (before, after) = (tags("3,1"), tags("3,1,0,11"));
        let is_refused = |kept: &KeptList, own: &[String]| kept.refusal(own).is_some();
        for step in [ChangeStep::Draining, ChangeStep::Stopping, ChangeStep::Moving, ChangeStep::Opening] {
            let kept = KeptList::Changing(ListChange { from: before.clone(), to: after.clone(), step });
            assert_eq!(is_refused(&kept, &before), step != ChangeStep::Draining, "{step:?}");
            assert!(is_refused(&kept, &after), "{step:?}");
        }
        assert!(!is_refused(&KeptList::Nothing, &before));
        assert!(!is_refused(&KeptList::Settled(before.clone()), &before));
        assert!(is_refused(&KeptList::Settled(after), &before));
        assert!(is_refused(&KeptList::Settled(tags("")), &before));
    }

    #[test]
    fn who_follows_the_list_waits_for_all_partitions_and_takes_no_list_of_which_some_are_unsure() {
        let (before, after) = (tags("3,1"), tags("3,1,0,11"));
        let settled = |tags: &[String]| KeptList::Settled(tags.to_vec());
        let at = |step| KeptList::Changing(ListChange { from: before.clone(), to: after.clone(), step });
        let standing = |kept: &[KeptList]| match standing(kept, &before) {
            None => "none",
            Some(Standing::Own) => "own",
            Some(Standing::Changing(_)) => "changing",
            Some(Standing::Other(to, _)) if to == after => "other",
            Some(Standing::Other(..)) => "wrong",
            Some(Standing::Mixed(_)) => "mixed",
        };
        assert_eq!(standing(&[]), "none");
        assert_eq!(standing(&[settled(&before), KeptList::Nothing]), "own");
        assert_eq!(standing(&[settled(&before), at(ChangeStep::Draining)]), "own");
        assert_eq!(standing(&[at(ChangeStep::Draining), at(ChangeStep::Stopping)]), "changing");
        assert_eq!(standing(&[settled(&after), at(ChangeStep::Opening)]), "changing");
        assert_eq!(standing(&[settled(&after), settled(&after)]), "other");
        assert_eq!(standing(&[settled(&after), settled(&before)]), "mixed");
    }
}
