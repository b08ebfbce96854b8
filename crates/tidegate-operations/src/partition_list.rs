//! The list of a system's partitions, which each of them keeps. With another list, vouchers would belong elsewhere: whoever has one
//! does not begin.

use anyhow::Context;
use fred::{clients::Pool, interfaces::KeysInterface, types::SetOptions};
use tidegate_orders::Keys;
use tidegate_stream::RedisError;

use crate::{change::InvalidInput, settings::SystemSettings};

/// Compares the list in Redis with that of the settings, and puts it there where there is none yet. Nothing is done in a system
/// without partitions.
///
/// # Errors
/// [`InvalidInput`] when they differ; and when Redis does not answer.
pub async fn keep(settings: &SystemSettings, redis: &Pool) -> anyhow::Result<()> {
    if settings.partition().tag().is_none() {
        return Ok(());
    }
    let (key, own) = (Keys::new(settings.keys.clone()).partitions(), own(settings));
    let first = Some(SetOptions::NX);
    let kept: Result<Option<String>, _> = redis.set(&key, own, None, first, false).await;
    kept.with_context(|| format!("Failed to keep the list of partitions ({})", settings.keys.partitions))?;
    compare(settings, redis).await
}

/// As [`keep`], and changes nothing: a partition that keeps none is no reason to refuse.
///
/// # Errors
/// As [`keep`].
pub async fn compare(settings: &SystemSettings, redis: &Pool) -> anyhow::Result<()> {
    if settings.partition().tag().is_none() {
        return Ok(());
    }
    let key = Keys::new(settings.keys.clone()).partitions();
    let read = redis.get(&key).await.map_err(RedisError::from);
    let kept: Option<String> = match read {
        // It has arrived at another node already, or there is none. The other partitions have theirs.
        Err(error) if error.is_slot_moving() => return Ok(()),
        read => read.with_context(|| {
            format!("Failed to read the list of partitions ({})", settings.keys.partitions)
        })?,
    };
    let own = own(settings);
    match kept {
        Some(kept) if kept != own => Err(InvalidInput(format!(
            "the system has the partitions {kept}, and stream.partitions says {own}: vouchers would belong elsewhere. \
             Set stream.partitions as the system has it ({})",
            settings.keys.partitions
        ))
        .into()),
        _ => Ok(()),
    }
}

fn own(settings: &SystemSettings) -> String {
    settings.partition().tags().join(",")
}
