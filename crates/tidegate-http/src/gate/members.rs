//! The members of the JSON object in a request body, and the faults that are found while they are read.

use std::fmt;

use serde::de::{self, Deserialize, DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// An error in one JSON value of the body of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The JSON pointer (RFC 6901) to the invalid value.
    pub pointer: String,
    pub detail: String,
}

/// The reason why the body of a request is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadBody {
    /// The body is no JSON.
    NoJson(String),
    /// The body is JSON, but has these errors.
    Faults(Vec<Fault>),
}

impl BadBody {
    /// The error of a body that is JSON, but no JSON of the right kind.
    fn of_whole(detail: String) -> Self {
        Self::Faults(vec![Fault { pointer: String::new(), detail }])
    }
}

/// The largest number of unknown members that an answer names. It keeps the answer from being much larger than the
/// request.
const MOST_FAULTS: usize = 8;
const MOST_FAULTY_NAME: usize = 64;

/// A JSON value that has no member twice. Otherwise a program before the gate that reads the first one would check
/// another value than the gate uses.
struct Body(Value);

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BodyVisitor)
    }
}

struct BodyVisitor;

impl<'de> Visitor<'de> for BodyVisitor {
    type Value = Body;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Body, A::Error> {
        let mut object = Map::new();
        while let Some((name, Body(value))) = members.next_entry::<String, Body>()? {
            if object.insert(name, value).is_some() {
                return Err(de::Error::custom("a member occurs twice"));
            }
        }
        Ok(Body(Value::Object(object)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Body, A::Error> {
        while parts.next_element::<Body>()?.is_some() {}
        // No member of an object in a request is an array, so the parts of arrays are not kept.
        Ok(Body(Value::Array(Vec::new())))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Body, E> {
        Ok(Body(text.into()))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Body, E> {
        Ok(Body(value.into()))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Body, E> {
        Ok(Body(number.into()))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Body, E> {
        Ok(Body(number.into()))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Body, E> {
        Ok(Body(number.into()))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Body, E> {
        Ok(Body(Value::Null))
    }
}

/// A function that parses a value from its text.
pub type Parse<T, E> = fn(&[u8]) -> Result<T, E>;

/// The members of the JSON object in a body, with the faults that were found so far.
#[derive(Debug)]
pub struct Members {
    members: Map<String, Value>,
    faults: Vec<Fault>,
}

impl Members {
    /// Reads the members of a JSON object. `example` shows a correct one.
    ///
    /// # Errors
    /// Fails if the body is no JSON, or no object.
    pub fn read(body: &[u8], example: &str) -> Result<Self, BadBody> {
        Self::of(read_json(body)?, example)
    }

    /// Reads the JSON objects of a JSON array. `example` shows a correct object. An object may be wrong by itself.
    ///
    /// # Errors
    /// Fails if the body is no JSON, or no array.
    pub fn read_all(body: &[u8], example: &str) -> Result<Vec<Result<Self, BadBody>>, BadBody> {
        if !body.trim_ascii_start().starts_with(b"[") {
            read_json::<Body>(body)?;
            return Err(BadBody::of_whole(format!("must be an array of objects such as {example}")));
        }
        let parts: Vec<Body> = read_json(body)?;
        Ok(parts.into_iter().map(|part| Self::of(part, example)).collect())
    }

    fn of(value: Body, example: &str) -> Result<Self, BadBody> {
        match value {
            Body(Value::Object(members)) => Ok(Self { members, faults: Vec::new() }),
            Body(_) => Err(BadBody::of_whole(format!("must be an object such as {example}"))),
        }
    }

    /// Records a fault for each member that is not one of `known`.
    pub fn allow_only(&mut self, known: &[&str]) {
        let strange = self.members.keys().filter(|name| !known.contains(&name.as_str()));
        for name in strange.take(MOST_FAULTS).cloned().collect::<Vec<_>>() {
            self.fault(&name, format!("is unknown: the members are {}", known.join(", ")));
        }
    }

    /// Whether the object has a member with this name.
    pub fn has(&self, name: &str) -> bool {
        self.members.contains_key(name)
    }

    /// The value of a member. None: the object has no member with this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.members.get(name)
    }

    /// Records a fault of a member.
    pub fn fault(&mut self, name: &str, detail: impl Into<String>) {
        self.faults.push(Fault { pointer: format!("/{}", pointer(name)), detail: detail.into() });
    }

    /// Records a fault of a value inside a member.
    pub fn fault_inside(&mut self, name: &str, inner: &str, detail: impl Into<String>) {
        let pointer = format!("/{}/{}", pointer(name), pointer(inner));
        self.faults.push(Fault { pointer, detail: detail.into() });
    }

    /// Reads a member that the object must have, as [`Members::optional`] reads it.
    pub fn required<T, E: fmt::Display>(&mut self, name: &str, parse: Parse<T, E>) -> Option<T> {
        self.must_have(name);
        self.optional(name, parse)
    }

    /// Reads a member that is a number. It may be text, or a JSON number that all programs read exactly: up to 2^53 - 1.
    pub fn optional<T, E: fmt::Display>(&mut self, name: &str, parse: Parse<T, E>) -> Option<T> {
        let text = match self.members.get(name)? {
            Value::String(text) => text.clone(),
            Value::Number(number) => match whole(number) {
                Some(whole) => whole.to_string(),
                None => {
                    self.fault(name, "must be a whole number: send numbers from 2^53 as text");
                    return None;
                }
            },
            _ => {
                self.fault(name, "must be a number, as text or as a JSON number");
                return None;
            }
        };
        parse(text.as_bytes()).inspect_err(|error| self.fault(name, error.to_string())).ok()
    }

    /// Reads a member that is a JSON string.
    pub fn text<T, E: fmt::Display>(&mut self, name: &str, parse: Parse<T, E>) -> Option<T> {
        let Some(text) = self.members.get(name)?.as_str() else {
            self.fault(name, "must be a JSON string");
            return None;
        };
        let parsed = parse(text.as_bytes());
        parsed.inspect_err(|error| self.fault(name, error.to_string())).ok()
    }

    /// Records a fault if the object lacks a member.
    pub fn must_have(&mut self, name: &str) {
        if !self.has(name) {
            self.fault(name, "is missing");
        }
    }

    /// Ends the reading of the object, and returns what was read, or all faults.
    ///
    /// # Errors
    /// Fails if there are faults.
    pub fn end<T>(self, read: Option<T>) -> Result<T, BadBody> {
        match read {
            Some(read) if self.faults.is_empty() => Ok(read),
            _ => Err(BadBody::Faults(self.faults)),
        }
    }
}

fn read_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, BadBody> {
    serde_json::from_slice(body).map_err(|error| BadBody::NoJson(error.to_string()))
}

/// A name as a part of a JSON pointer (RFC 6901), shortened.
fn pointer(name: &str) -> String {
    let name: String = name.chars().take(MOST_FAULTY_NAME).collect();
    name.replace('~', "~0").replace('/', "~1")
}

/// Returns a number if it is whole. JSON has one kind of number: 256.0 is 256.
fn whole(number: &Number) -> Option<i64> {
    const MOST: i64 = (1 << 53) - 1;
    let float = || number.as_f64().filter(|number| number.fract() == 0.0 && number.abs() <= MOST as f64);
    let whole = number.as_i64().or_else(|| Some(float()? as i64));
    whole.filter(|whole| whole.abs() <= MOST)
}
