//! Reads counters of limits in one step, by `lua/read_uses.lua`, and sets those that have not changed since, by
//! `lua/set_uses.lua`.

use fred::types::Value;

use crate::limits::LimitOwner;
use crate::scripts::{SaleLimits, ScriptError};

/// The maximum number of fields that are read in one step.
const MOST_READ: usize = 500;
/// The maximum number of fields that are set in one step.
const MOST_SET: usize = 300;

/// Some counters from the Redis hash of limit counters, all read in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsesSnapshot {
    /// The time at which the fields were read, in Unix milliseconds by the clock of Redis.
    pub at_ms: i64,
    /// The fields that were read, each with its value. `None` for a field that does not exist.
    pub fields: Vec<(String, Option<String>)>,
}

/// A change of one counter in the Redis hash of limit counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetUse {
    /// The name of the field in the hash of limit counters.
    pub field: String,
    /// The value that the field had when it was read. `None` if the field did not exist.
    pub found: Option<String>,
    /// The new value of the field. `None` if the field must be deleted.
    pub becomes: Option<String>,
}

impl SaleLimits {
    /// Reads the given fields from a Redis hash of limit counters, 500 fields in a step. Changes nothing.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn read_uses(
        &self,
        owner: LimitOwner,
        fields: &[String],
    ) -> Result<Vec<UsesSnapshot>, ScriptError> {
        let mut snapshots = Vec::with_capacity(fields.len().div_ceil(MOST_READ));
        for fields in fields.chunks(MOST_READ) {
            let args = fields.iter().map(|field| field.as_str().into()).collect();
            let keys = vec![self.access.keys.limits(owner).uses()];
            let reply = self.read_uses.call(&self.access.pool, keys, args).await?;
            snapshots.push(snapshot(&reply, fields).ok_or_else(|| unexpected("read_uses.lua", &reply))?);
        }
        Ok(snapshots)
    }

    /// Sets the given fields of a Redis hash of limit counters, each only if it still has the value that was read.
    /// Returns for each field whether it was set.
    ///
    /// # Errors
    /// See [`ScriptError`]. The call may be repeated.
    pub async fn set_uses(&self, owner: LimitOwner, fields: &[SetUse]) -> Result<Vec<bool>, ScriptError> {
        let mut are_set = Vec::with_capacity(fields.len());
        for fields in fields.chunks(MOST_SET) {
            let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
            let triple = |it: &SetUse| [it.field.as_str().into(), text(&it.found), text(&it.becomes)];
            let args = fields.iter().flat_map(triple).collect();
            let keys = vec![self.access.keys.limits(owner).uses()];
            let reply = self.set_uses.call(&self.access.pool, keys, args).await?;
            let Value::Array(answers) = &reply else { return Err(unexpected("set_uses.lua", &reply)) };
            are_set.extend(answers.iter().map(|answer| answer.as_i64() == Some(1)));
        }
        Ok(are_set)
    }
}

fn snapshot(reply: &Value, fields: &[String]) -> Option<UsesSnapshot> {
    let Value::Array(parts) = reply else { return None };
    let (at_ms, values) = parts.split_first()?;
    let values = values.iter().map(Value::as_string);
    let fields: Vec<_> = fields.iter().cloned().zip(values).collect();
    (fields.len() + 1 == parts.len()).then_some(UsesSnapshot { at_ms: at_ms.as_i64()?, fields })
}

fn unexpected(script: &str, reply: &Value) -> ScriptError {
    ScriptError::Unexpected { place: script.to_owned(), got: format!("{reply:?}") }
}
