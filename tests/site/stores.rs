//! Both stores as the tests read them, with queries of their own: what [`super::judge`] judges.

use std::collections::BTreeMap;

use fred::{clients::Client, error::Error, interfaces::StreamsInterface, types::Value};
use sqlx::MySqlPool;

use super::{GROUP, STREAM};

/// A Redis and a database, or a partition of them.
#[derive(Clone, Copy)]
pub struct Stores<'a> {
    pub client: &'a Client,
    pub pool: &'a MySqlPool,
    /// What all names in Redis begin with, such as `{10}:`.
    pub prefix: &'a str,
}

impl Stores<'_> {
    pub(super) fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Entries that are pending or undelivered; None while the group does not exist.
    pub async fn open_entries(&self) -> Option<usize> {
        let stream = self.name(STREAM);
        let group = self.group().await?;
        let after = format!("({}", group["last-delivered-id"].as_str()?);
        let undelivered: Vec<(String, Value)> = self.client.xrange(&stream, after, "+", None).await.ok()?;
        Some(undelivered.len() + usize::try_from(group["pending"].as_u64()?).ok()?)
    }

    async fn group(&self) -> Option<BTreeMap<String, Value>> {
        self.read_group().await.ok()?
    }

    /// What Redis says of the group; None: there is none.
    pub(super) async fn read_group(&self) -> Result<Option<BTreeMap<String, Value>>, Error> {
        let groups: Vec<BTreeMap<String, Value>> = match self.client.xinfo_groups(self.name(STREAM)).await {
            Err(error) if error.details().contains("no such key") => return Ok(None),
            groups => groups?,
        };
        Ok(groups.into_iter().find(|group| group["name"].as_str().as_deref() == Some(GROUP)))
    }
}
