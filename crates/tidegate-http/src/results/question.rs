//! The question of a reader of results: where to begin, which results, how many, and how long to wait.

use std::time::Duration;

use hyper::{
    HeaderMap,
    header::{ACCEPT, HeaderValue},
};
use tidegate_orders::{Published, ResultFilter};

use super::cursor::Cursor;
use crate::{server::parameter, server_sent::EVENTS};

/// The number of results of a page if the request names no other.
const LIMIT: usize = 100;
/// The largest number of results of a page.
const MOST: usize = 1_000;
/// The longest time that a request may wait for results.
const LONGEST_WAIT_S: u64 = 60;
const PARAMETERS: [&str; 4] = ["after", "kinds", "wait", "limit"];
/// The word with which reading begins at the end of the results.
const LATEST: &str = "latest";

/// A parsed request for results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The place from which to read.
    pub from: ReadPosition,
    /// The kinds of results to read.
    pub wanted: ResultFilter,
    /// The longest time to wait for the first result.
    pub wait: Duration,
    /// The largest number of results of the page.
    pub limit: usize,
    /// Whether the client wants server-sent events instead of a page.
    pub wants_events: bool,
}

/// The place from which to read results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadPosition {
    /// The oldest results that are kept.
    Oldest,
    /// The results after those that exist now.
    Latest,
    /// The results after a cursor.
    Cursor(Cursor),
}

impl Question {
    /// Parses the query and the headers of a request. `published` is the setting that selects published results.
    ///
    /// # Errors
    /// Fails with the reason if a parameter is invalid, or if results are asked for that are not published.
    pub fn parse(query: &str, headers: &HeaderMap, published: Published) -> Result<Self, String> {
        let mut names = form_urlencoded::parse(query.as_bytes()).map(|(name, _)| name);
        if let Some(name) = names.find(|name| !PARAMETERS.contains(&name.as_ref())) {
            return Err(format!("`{name}` is unknown: the parameters are {}", PARAMETERS.join(", ")));
        }
        let value = |name| parameter(query, &[name]).map(|value| value.filter(|value| !value.is_empty()));
        let number = |name, least: u64, most: u64, or: u64| {
            let Some(text) = value(name)? else { return Ok(or) };
            let number = text.parse().ok().filter(|number| (least..=most).contains(number));
            number.ok_or_else(|| format!("`{name}` is a number from {least} to {most}"))
        };
        let last_event = headers.get("last-event-id").map(HeaderValue::to_str).transpose();
        let last_event = last_event.map_err(|error| error.to_string())?.filter(|id| !id.is_empty());
        let from = match last_event.or(value("after")?.as_deref()) {
            None => ReadPosition::Oldest,
            Some(LATEST) => ReadPosition::Latest,
            Some(cursor) => ReadPosition::Cursor(Cursor::parse(cursor).map_err(|bad| bad.to_string())?),
        };
        let kinds = value("kinds")?;
        let words = kinds.iter().flat_map(|words| words.split(','));
        let wanted = ResultFilter::parse(words, published).map_err(|why| format!("`kinds` {why}"))?;
        let limit = number("limit", 1, MOST as u64, LIMIT as u64)?;
        Ok(Self {
            from,
            wanted,
            wait: Duration::from_secs(number("wait", 0, LONGEST_WAIT_S, 0)?),
            limit: usize::try_from(limit).unwrap_or(LIMIT),
            wants_events: accepts_events(headers),
        })
    }
}

fn accepts_events(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(ACCEPT).iter().filter_map(|line| line.to_str().ok());
    let mut types =
        lines.flat_map(|line| line.split(',')).map(|range| range.split(';').next().unwrap_or_default());
    types.any(|accepted| accepted.trim().eq_ignore_ascii_case(EVENTS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> Result<Question, String> {
        Question::parse(query, &HeaderMap::new(), Published::Exceptions)
    }

    #[test]
    fn parameters_have_defaults_and_limits() {
        let asked = parse("").unwrap();
        assert_eq!((&asked.from, asked.wait, asked.limit), (&ReadPosition::Oldest, Duration::ZERO, 100));
        assert!(asked.wanted.is_all() && !asked.wants_events);
        let asked = parse("after=latest&wait=60&limit=1000&kinds=fact%2Crefused").unwrap();
        assert_eq!(
            (&asked.from, asked.wait, asked.limit),
            (&ReadPosition::Latest, Duration::from_secs(60), 1000)
        );
        assert_eq!(asked.wanted.words(), ["fact", "refused"]);
        for bad in
            ["wait=61", "wait=-1", "limit=0", "limit=1001", "limit=1&limit=2", "after=x", "kinds=refused,x"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn kinds_that_are_not_published_are_refused_with_the_setting() {
        let why = parse("kinds=confirmed").unwrap_err();
        assert!(
            why.starts_with("`kinds` has the word \"confirmed\"") && why.contains("results.publish"),
            "{why}"
        );
        assert!(Question::parse("", &HeaderMap::new(), Published::None).is_ok());
    }

    #[test]
    fn events_are_for_clients_that_accept_them_and_their_last_event_wins() {
        let cursor = Cursor::new(&[], &super::super::position::Position::OLDEST);
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("text/html, text/event-stream; q=1"));
        headers.insert("last-event-id", HeaderValue::try_from(cursor.text()).unwrap());
        let asked = Question::parse("after=latest", &headers, Published::All).unwrap();
        assert_eq!((asked.from, asked.wants_events), (ReadPosition::Cursor(cursor), true));
    }
}
