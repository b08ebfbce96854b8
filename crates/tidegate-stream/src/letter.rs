//! Dead letters: the entries that `lua/bury.lua` wrote, and the history that a requeued entry carries.
//!
//! An entry that goes back into the stream carries the two fields `dead:requeued` and `dead:history` after its own
//! fields. When it is buried again, these two are recognised and replaced: they never pile up, and no burial is
//! forgotten.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::entry::{Entry, EntryId, weight};

/// The fields that `lua/bury.lua` adds after the fields of the entry, in this order.
const ABOUT: [&str; 6] =
    ["dead:entry", "dead:reason", "dead:error", "dead:consumer", "dead:deliveries", "dead:at_ms"];
/// The one field that holds all fields of an entry, if it has very many, or if its first field has this very name.
const PACKED: &str = "dead:fields";
/// The fields that a requeued entry carries: the number of requeues, and all burials as JSON.
const CARRIED: [&str; 2] = ["dead:requeued", "dead:history"];

/// The number of burials that a history holds; older ones are left out, but still counted.
const MOST_BURIALS: usize = 50;
/// The number of characters of an error that a history holds.
const ERROR_CHARS: usize = 200;

/// The field names and values of an entry, byte for byte and in their original order.
pub type Fields = Vec<(Bytes, Bytes)>;

/// A dead letter: an entry that can never be done, in the stream of dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// The id of the dead letter in the stream of dead letters.
    pub id: EntryId,
    /// The fields of the original entry, as its producer wrote them.
    pub fields: Fields,
    /// The last time that the entry was moved to the dead letters, and the reason. None: another program wrote this
    /// letter, so it has no reason and no history.
    pub burial: Option<Burial>,
    /// The times that the entry was moved to the dead letters, and back into the stream, before its last burial.
    pub history: DeliveryHistory,
}

/// One burial of an entry: a move from the stream to the dead letters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Burial {
    /// The id of the entry in the stream from which it was moved to the dead letters.
    #[serde(with = "id_as_text")]
    pub entry: EntryId,
    /// The reason why the entry was moved to the dead letters, as one word for programs.
    pub reason: String,
    /// The reason why the entry was moved to the dead letters, as a sentence for people.
    pub error: String,
    /// The name of the consumer that held the entry.
    pub consumer: String,
    /// The number of times that the entry was delivered before it became a dead letter.
    pub deliveries: u64,
    /// The time at which the entry became a dead letter, by the clock of Redis, in Unix milliseconds.
    pub at_ms: u64,
}

/// The earlier burials of an entry (moves to the dead letters) and its requeues (moves back into the stream).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeliveryHistory {
    /// The number of times that the entry was put back into the stream.
    pub requeued: u32,
    /// The earlier burials (moves to the dead letters) of the entry, oldest first. If there are very many, only the
    /// latest are kept.
    pub burials: Vec<Burial>,
}

impl Letter {
    /// Parses an entry of the stream of dead letters.
    #[must_use]
    pub fn parse(entry: Entry) -> Self {
        let Entry { id, mut fields } = entry;
        let burial = take_burial(&mut fields);
        if burial.is_some() {
            unpack(&mut fields);
        }
        let history = DeliveryHistory::take(&mut fields);
        Self { id, fields, burial, history }
    }

    /// Returns the id and the fields that the entry had in the stream, before it was moved to the dead letters. If
    /// another program wrote the letter, the result is the letter's own id and fields.
    #[must_use]
    pub fn entry(&self) -> Entry {
        let id = self.burial.as_ref().map_or(self.id, |burial| burial.entry);
        Entry { id, fields: self.fields.clone() }
    }

    /// Returns the ids that the entry has had in the stream. Very old ids are missing, because the letter's history
    /// keeps only the latest.
    pub fn entries(&self) -> impl Iterator<Item = EntryId> {
        self.history.entries().chain(self.burial.iter().map(|burial| burial.entry))
    }

    /// Returns the first id that the entry had in the stream, or the earliest id that the letter's history still
    /// contains.
    #[must_use]
    pub fn first_entry(&self) -> Option<EntryId> {
        self.entries().next()
    }

    /// Returns whether an entry of the stream has the same producer fields as the letter. The history fields are not
    /// compared.
    #[must_use]
    pub fn is_of(&self, entry: &Entry) -> bool {
        let mut fields = entry.fields.clone();
        entry.fields == self.fields
            || DeliveryHistory::take(&mut fields).requeued > 0 && fields == self.fields
    }

    /// Returns the fields of the entry that the stream gets when the dead letter is put back: the fields of the
    /// producer, then the history.
    #[must_use]
    pub fn carried(&self) -> Fields {
        let mut burials: Vec<Burial> = self.history.burials.iter().chain(&self.burial).cloned().collect();
        burials.drain(..burials.len().saturating_sub(MOST_BURIALS));
        for burial in &mut burials {
            burial.error = burial.error.chars().take(ERROR_CHARS).collect();
        }
        let requeued = self.history.requeued.saturating_add(1);
        let values =
            [requeued.to_string(), serde_json::to_string(&burials).expect("texts and numbers are JSON")];
        let carried = CARRIED
            .iter()
            .zip(values)
            .map(|(name, value)| (Bytes::from_static(name.as_bytes()), value.into()));
        self.fields.iter().cloned().chain(carried).collect()
    }

    /// Returns the size in bytes of the entry that the stream gets when the dead letter is put back.
    /// [`crate::LaneSettings::entry_max_bytes`] limits this size.
    #[must_use]
    pub fn carried_bytes(&self) -> usize {
        weight(&self.carried())
    }
}

impl DeliveryHistory {
    /// Returns the history (moves to the dead letters and back) in the fields of an entry. The history is empty if the
    /// entry was never a dead letter.
    #[must_use]
    pub fn of(entry: &Entry) -> Self {
        let length = entry.fields.len();
        Self::take(&mut entry.fields[length.saturating_sub(CARRIED.len())..].to_vec())
    }

    /// Returns the ids that the entry had in the stream before. Very old ids are missing, because the history keeps
    /// only the latest.
    pub fn entries(&self) -> impl Iterator<Item = EntryId> {
        self.burials.iter().map(|burial| burial.entry)
    }

    /// Removes the history from the fields and returns it. Fields that only look like a history stay: they belong to
    /// the producer.
    fn take(fields: &mut Fields) -> Self {
        let read = || {
            let [requeued, burials] = last_values(fields, CARRIED)?;
            let requeued = text(requeued).parse().ok()?;
            Some(Self { requeued, burials: serde_json::from_slice(burials).ok()? })
        };
        let Some(history) = read() else { return Self::default() };
        fields.truncate(fields.len() - CARRIED.len());
        history
    }
}

fn take_burial(fields: &mut Fields) -> Option<Burial> {
    let [entry, reason, error, consumer, deliveries, at_ms] = last_values(fields, ABOUT)?;
    let burial = Burial {
        entry: text(entry).parse().ok()?,
        reason: text(reason),
        error: text(error),
        consumer: text(consumer),
        deliveries: text(deliveries).parse().ok()?,
        at_ms: text(at_ms).parse().ok()?,
    };
    fields.truncate(fields.len() - ABOUT.len());
    Some(burial)
}

/// Replaces the one field that holds many packed fields by these fields.
fn unpack(fields: &mut Fields) {
    let [(name, json)] = fields.as_slice() else { return };
    if name == PACKED
        // As bytes: the JSON of the script is not UTF-8 if the fields are not.
        && let Ok(values) = serde_json::from_slice::<Vec<Bytes>>(json)
        && values.len() % 2 == 0
    {
        *fields = values.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    }
}

/// Returns the values of the last fields, if they have these names.
fn last_values<'a, const N: usize>(fields: &'a Fields, names: [&str; N]) -> Option<[&'a Bytes; N]> {
    let (_, last) = fields.split_last_chunk::<N>()?;
    let is_so = last.iter().zip(names).all(|((name, _), expected)| name == expected);
    is_so.then(|| last.each_ref().map(|(_, value)| value))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Entry ids in JSON, as Redis writes them.
mod id_as_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use crate::entry::EntryId;

    pub(super) fn serialize<S: Serializer>(id: &EntryId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<EntryId, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Buries an entry as `lua/bury.lua` does. (`tests/promises/dead_letters.rs` shows what the script itself writes.)
    fn bury(id: EntryId, mut fields: Fields) -> Entry {
        let values = ["7-1", "bad_value", "the field id", "w-0", "3", "1718000000000"];
        fields.extend(ABOUT.iter().zip(values).map(|(name, value)| ((*name).into(), value.into())));
        Entry { id, fields }
    }

    fn field() -> impl Strategy<Value = (Bytes, Bytes)> {
        let name = prop_oneof![
            prop::sample::select([&ABOUT[..], &CARRIED[..]].concat()).prop_map(Bytes::from),
            any::<Vec<u8>>().prop_map(Bytes::from),
        ];
        (name, prop_oneof![any::<Vec<u8>>(), "[0-9]{1,3}".prop_map(String::into_bytes)].prop_map(Bytes::from))
    }

    proptest! {
        #[test]
        fn however_often_an_entry_is_buried_and_put_back_its_fields_stay_and_its_history_grows_by_one(
            fields in prop::collection::vec(field(), 0..8),
            times in prop_oneof![20 => 1..4_u32, 1 => Just(MOST_BURIALS as u32 + 3)],
        ) {
            let mut carried = fields.clone();
            for time in 0..times {
                let letter = Letter::parse(bury(EntryId { ms: u64::from(time), seq: 0 }, carried));
                prop_assert_eq!(&letter.fields, &fields);
                prop_assert_eq!(letter.history.requeued, time);
                prop_assert_eq!(letter.history.burials.len(), MOST_BURIALS.min(time as usize));
                prop_assert!(letter.burial.is_some());
                carried = letter.carried();
                for fields in [&fields, &carried] {
                    let entry = Entry { id: EntryId::MIN, fields: fields.clone() };
                    prop_assert!(letter.is_of(&entry));
                }
            }
            let history = DeliveryHistory::of(&Entry { id: EntryId::MIN, fields: carried });
            prop_assert_eq!(history.requeued, times);
        }

        #[test]
        fn whatever_stands_in_the_dead_stream_reading_it_does_not_panic(
            fields in prop::collection::vec(field(), 0..12),
        ) {
            let entry = Entry { id: EntryId::MIN, fields };
            let _history = DeliveryHistory::of(&entry);
            let letter = Letter::parse(entry.clone());
            if letter.burial.is_none() && letter.history == DeliveryHistory::default() {
                prop_assert_eq!(letter.entry(), entry);
            }
        }
    }

    #[test]
    fn a_packed_letter_is_unpacked_byte_for_byte() {
        let json = b"[\"a\\/\\u0000\\u007f\\\"\",\"\xff\xfe\",\"\",\"\"]";
        let letter = Letter::parse(bury(EntryId::MIN, vec![(PACKED.into(), Bytes::from_static(json))]));
        let expected = [(&b"a/\0\x7f\""[..], &b"\xff\xfe"[..]), (b"", b"")];
        let expected = expected.map(|(name, value)| (Bytes::from_static(name), Bytes::from_static(value)));
        assert_eq!(letter.fields, expected);
    }

    #[test]
    fn what_somebody_else_wrote_is_no_letter_of_ours() {
        let mut entry = bury(EntryId::MIN, vec![("userId".into(), "1".into())]);
        entry.fields.push(("later".into(), "x".into()));
        let letter = Letter::parse(entry.clone());
        assert_eq!((letter.burial.as_ref(), letter.entry()), (None, entry));
    }
}
