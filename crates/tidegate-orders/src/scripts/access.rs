//! The Redis access that all parts of the store share.

use std::sync::Arc;

use fred::{clients::Pool, types::Key};

use crate::keys::Keys;

/// The connections, the key names and the stream of one Redis.
#[derive(Clone, Debug)]
pub(super) struct RedisAccess {
    pub(super) pool: Pool,
    pub(super) keys: Arc<Keys>,
    pub(super) stream: Key,
}
