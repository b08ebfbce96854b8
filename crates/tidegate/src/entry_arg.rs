//! Entry ids on the command line: `ID`, or `TAG/ID` in a system with partitions, where several entries may have the
//! same id.

use std::{fmt, str::FromStr};

use tidegate_operations::{InvalidInput, System};
use tidegate_stream::EntryId;

use crate::exit::WrongUsage;

/// An entry id that the user typed, with the tag of the entry's partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryArg {
    tag: Option<String>,
    /// The id of the entry in the stream of its partition.
    pub id: EntryId,
}

impl FromStr for EntryArg {
    type Err = <EntryId as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (tag, id) = text.split_once('/').map_or((None, text), |(tag, id)| (Some(tag.to_owned()), id));
        Ok(Self { tag, id: id.parse()? })
    }
}

impl fmt::Display for EntryArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tag {
            Some(tag) => write!(f, "{tag}/{}", self.id),
            None => self.id.fmt(f),
        }
    }
}

/// Returns the ids of the entries, without the tags of their partitions.
pub fn ids(entries: &[EntryArg]) -> Vec<EntryId> {
    entries.iter().map(|entry| entry.id).collect()
}

/// The partition that contains all these entries, or the whole system if there are no entries.
///
/// # Errors
/// When the entries are in several partitions, or their partition is not given or does not exist.
pub fn partition_of(entries: &[EntryArg], system: &System) -> anyhow::Result<System> {
    let Some(first) = entries.first() else { return Ok(system.clone()) };
    if entries.iter().any(|entry| entry.tag != first.tag) {
        let why = "the entries are in several partitions: run the command once for each partition";
        return Err(WrongUsage(why.to_owned()).into());
    }
    match &first.tag {
        Some(tag) => Ok(system.narrowed(tag)?),
        None if system.partitions().len() == 1 => Ok(system.clone()),
        None => {
            let tags = system.common().partition().tags().join(", ");
            let why =
                format!("the partition of entry {first} is missing: type TAG/{first} with a TAG of {tags}");
            Err(InvalidInput(why).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_typed_with_or_without_its_partition() {
        let entry: EntryArg = "10/7-1".parse().unwrap();
        assert_eq!((entry.tag.as_deref(), entry.id.to_string()), (Some("10"), "7-1".to_owned()));
        assert_eq!(entry.to_string(), "10/7-1");
        assert_eq!("7-1".parse::<EntryArg>().unwrap().tag, None);
        for wrong in ["10/", "10/x", "/", "x"] {
            assert!(wrong.parse::<EntryArg>().is_err(), "{wrong}");
        }
    }
}
