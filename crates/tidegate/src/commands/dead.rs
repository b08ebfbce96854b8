//! `tidegate dead`: looks at the dead letters, puts them back, gives their orders back, deletes them.

pub mod cancel;
mod course;
pub mod drop;
pub mod export;
mod groups;
mod letter;
pub mod list;
pub mod requeue;
mod selection;
pub mod show;

use fred::clients::Pool;
use tidegate_orders::{DeadLetters, Keys};

use crate::config::Settings;

fn door(settings: &Settings, redis: &Pool) -> DeadLetters {
    DeadLetters::new(redis.clone(), Keys::new(settings.keys.clone()), settings.stream_names())
}
