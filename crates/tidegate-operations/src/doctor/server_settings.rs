//! Reads the state and the settings of a Redis server.

use std::collections::HashMap;
use tidegate_orders::RedisStore;

use fred::{
    interfaces::ClientLike,
    prelude::FredResult,
    types::{ClusterHash, CustomCommand, Value},
};

/// Reads the lines of INFO.
pub(super) async fn info(redis: &RedisStore) -> FredResult<HashMap<String, String>> {
    let command = CustomCommand::new_static("INFO", ClusterHash::Random, false);
    let text: String = redis.pool().next().custom(command, Vec::<Value>::new()).await?;
    let pairs = text.lines().filter_map(|line| line.trim_end().split_once(':'));
    Ok(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// Reads a setting of the server; None: the server does not know this setting.
pub(super) async fn config_get(redis: &RedisStore, name: &str) -> FredResult<Option<String>> {
    let command = CustomCommand::new_static("CONFIG", ClusterHash::Random, false);
    let mut found: HashMap<String, String> = redis.pool().next().custom(command, vec!["GET", name]).await?;
    Ok(found.remove(name))
}

/// Returns a value of INFO; empty if there is none.
pub(super) fn value<'a>(info: &'a HashMap<String, String>, name: &str) -> &'a str {
    info.get(name).map_or("", String::as_str)
}
