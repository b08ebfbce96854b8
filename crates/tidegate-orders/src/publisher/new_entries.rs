//! Results in the form in which `lua/publish.lua` takes them.

use std::ops::Range;

use fred::{bytes::Bytes, types::Value};

/// The maximum number of results in one call. Redis does nothing else during the call.
const MOST: usize = 250;

/// Entries that are to be appended to the results stream. Their values share one allocation, because an entry has about
/// ten values.
#[derive(Debug, Default)]
pub(super) struct NewEntries {
    /// The names of all fields that occur in these entries.
    names: Vec<String>,
    text: Vec<u8>,
    fields: Vec<Field>,
    /// The end of the fields of each entry, as an index into `fields`.
    ends: Vec<usize>,
}

#[derive(Debug)]
struct Field {
    name: usize,
    value: Range<usize>,
}

impl NewEntries {
    /// Adds an entry to the list. `fields` puts the name and the value of each of its fields. An empty value means that
    /// the field is missing.
    pub(super) fn add(&mut self, fields: impl FnOnce(&mut dyn FnMut(&str, &str))) {
        let mut next = 0;
        fields(&mut |name, value| {
            let name = self.place_of(name, next);
            next = name + 1;
            let begin = self.text.len();
            self.text.extend_from_slice(value.as_bytes());
            self.fields.push(Field { name, value: begin..self.text.len() });
        });
        self.ends.push(self.fields.len());
    }

    /// The place of a name in `names`, which is most often the `next` one.
    fn place_of(&mut self, name: &str, next: usize) -> usize {
        let is_name = |known: &String| known == name;
        if self.names.get(next).is_some_and(is_name) {
            return next;
        }
        self.names.iter().position(is_name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The arguments of the calls, each with the number of its entries.
    pub(super) fn calls(self) -> Vec<(usize, Vec<Value>)> {
        let count = self.names.len();
        let names: Vec<Bytes> = self.names.into_iter().map(Bytes::from).collect();
        let text = Bytes::from(self.text);
        let mut begin = 0;
        let call = |ends: &[usize]| {
            let mut arguments = Vec::with_capacity(1 + count + count * ends.len());
            arguments.push(Value::Integer(i64::try_from(count).unwrap_or(i64::MAX)));
            arguments.extend(names.iter().cloned().map(Value::Bytes));
            for end in ends {
                let entry = arguments.len();
                arguments.resize(entry + count, Value::Bytes(Bytes::new()));
                for Field { name, value } in &self.fields[begin..*end] {
                    arguments[entry + name] = Value::Bytes(text.slice(value.clone()));
                }
                begin = *end;
            }
            (ends.len(), arguments)
        };
        self.ends.chunks(MOST).map(call).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_a_value_for_each_name_that_one_of_them_has() {
        let mut entries = NewEntries::default();
        for order in 0..=MOST {
            entries.add(|put| {
                put("orderId", &order.to_string());
                put("state", "confirmed");
            });
        }
        entries.add(|put| {
            put("orderId", "7");
            put("reason", "late");
            put("state", "refused");
        });
        let calls = entries.calls();
        let texts = |call: usize| -> Vec<String> {
            calls[call].1.iter().map(|value| value.as_string().unwrap()).collect()
        };
        assert_eq!(calls.iter().map(|(entries, _)| *entries).collect::<Vec<_>>(), [MOST, 2]);
        assert_eq!(texts(0)[..7], ["3", "orderId", "state", "reason", "0", "confirmed", ""]);
        assert_eq!(texts(1)[4..], ["250", "confirmed", "", "7", "refused", "late"]);
    }
}
