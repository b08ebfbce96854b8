//! Results as they are sent to Redis.

use fred::{bytes::Bytes, types::Value};

/// Entries that are to be appended to the results stream. Their texts share one piece of memory: an entry has some twenty.
#[derive(Debug, Default)]
pub(super) struct NewEntries {
    text: Vec<u8>,
    /// Where each text ends.
    ends: Vec<usize>,
    /// How many texts there are up to the end of each entry.
    texts: Vec<usize>,
}

impl NewEntries {
    /// Adds an entry. `put` takes the name and the value of each of its fields.
    pub(super) fn add(&mut self, fields: impl FnOnce(&mut dyn FnMut(&str, &str))) {
        fields(&mut |name, value| {
            for text in [name, value] {
                self.text.extend_from_slice(text.as_bytes());
                self.ends.push(self.text.len());
            }
        });
        self.texts.push(self.ends.len());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    /// The arguments of an XADD to the stream `key` for each entry.
    pub(super) fn arguments(self, key: &str) -> Vec<Vec<Value>> {
        let (key, any_id) = (Bytes::copy_from_slice(key.as_bytes()), Bytes::from_static(b"*"));
        let mut rest = Bytes::from(self.text);
        let mut begin = 0;
        let mut lengths = self.ends.into_iter().map(|end| end - std::mem::replace(&mut begin, end));
        let mut before = 0;
        let counts = self.texts.into_iter().map(|texts| texts - std::mem::replace(&mut before, texts));
        counts
            .map(|count| {
                let mut arguments = Vec::with_capacity(2 + count);
                arguments.extend([Value::Bytes(key.clone()), Value::Bytes(any_id.clone())]);
                arguments
                    .extend(lengths.by_ref().take(count).map(|length| Value::Bytes(rest.split_to(length))));
                arguments
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_has_its_own_fields_and_an_empty_value_is_one() {
        let mut entries = NewEntries::default();
        entries.add(|put| put("state", "confirmed"));
        entries.add(|put| {
            put("orderId", "1");
            put("reason", "");
        });
        assert_eq!(entries.len(), 2);
        let arguments: Vec<Vec<String>> = entries
            .arguments("results")
            .iter()
            .map(|arguments| arguments.iter().map(|value| value.as_string().unwrap()).collect())
            .collect();
        assert_eq!(arguments[0], ["results", "*", "state", "confirmed"]);
        assert_eq!(arguments[1], ["results", "*", "orderId", "1", "reason", ""]);
    }
}
