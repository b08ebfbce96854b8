//! Entry ids on the command line: `ID`, or `TAG/ID` in a system with partitions, where several entries may have the
//! same id.

use std::{fmt, str::FromStr};

use tidegate_operations::{InvalidInput, System};
use tidegate_stream::EntryId;

use crate::exit::WrongUsage;

/// An entry, and the partition that was typed with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryArg {
    tag: Option<String>,
    /// The id of the entry in the stream of that partition.
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

/// Returns the ids without their partitions.
pub fn ids(entries: &[EntryArg]) -> Vec<EntryId> {
    entries.iter().map(|entry| entry.id).collect()
}

/// The partition that all of these entries are in, or the whole system if no entry is named.
///
/// # Errors
/// When they are in several partitions, or in one that is not named or does not exist.
pub fn partition_of(entries: &[EntryArg], system: &System) -> anyhow::Result<System> {
    let Some(first) = entries.first() else { return Ok(system.clone()) };
    if entries.iter().any(|entry| entry.tag != first.tag) {
        let why = "the entries are in several partitions: type the command once for each";
        return Err(WrongUsage(why.to_owned()).into());
    }
    match &first.tag {
        Some(tag) => Ok(system.narrowed(tag)?),
        None if system.partitions().len() == 1 => Ok(system.clone()),
        None => {
            let tags = system.common().partition().tags().join(", ");
            let why = format!("which partition is {first} in? Type TAG/{first}; there are: {tags}");
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
