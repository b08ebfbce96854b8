//! Every combination of facts, against a table of those that matter.

use super::*;

const ROWS: [RowFact; 5] = [
    RowFact::None,
    RowFact::Own(RowState::Live),
    RowFact::Own(RowState::Cancelled),
    RowFact::Own(RowState::Contradictory),
    RowFact::Other,
];
const JOURNALS: [JournalFact; 4] =
    [JournalFact::Nothing, JournalFact::Admitted, JournalFact::Released, JournalFact::Other];
const ENTRIES: [EntryFact; 6] = [
    EntryFact::None,
    EntryFact::Undelivered,
    EntryFact::Pending(ConsumerFact::Live),
    EntryFact::Pending(ConsumerFact::Gone),
    EntryFact::Pending(ConsumerFact::Unread),
    EntryFact::Settled,
];
const LETTERS: [LetterFact; 5] =
    [LetterFact::None, LetterFact::Order, LetterFact::IdTaken, LetterFact::NoOrder, LetterFact::Foreign];

/// All facts there can be: 4,800 combinations.
fn all() -> Vec<OrderFacts> {
    let mut all = Vec::new();
    for row in ROWS {
        for journal in JOURNALS {
            for entry in ENTRIES {
                for letter in LETTERS {
                    for bits in 0..8 {
                        let [is_refused, is_mysql_read, is_redis_searched] =
                            [bits & 1 > 0, bits & 2 > 0, bits & 4 > 0];
                        all.push(OrderFacts {
                            row,
                            is_refused,
                            journal,
                            entry,
                            letter,
                            is_mysql_read,
                            is_redis_searched,
                        });
                    }
                }
            }
        }
    }
    all
}

/// A row of the table: what of the facts matters, the rest is as it may be.
#[derive(Clone, Copy, Default)]
struct Given {
    row: Option<RowFact>,
    is_refused: Option<bool>,
    journal: Option<JournalFact>,
    entry: Option<EntryFact>,
    letter: Option<LetterFact>,
    is_mysql_read: Option<bool>,
    is_redis_searched: Option<bool>,
}

impl Given {
    fn is_met_by(&self, facts: &OrderFacts) -> bool {
        self.row.is_none_or(|it| it == facts.row)
            && self.is_refused.is_none_or(|it| it == facts.is_refused)
            && self.journal.is_none_or(|it| it == facts.journal)
            && self.entry.is_none_or(|it| it == facts.entry)
            && self.letter.is_none_or(|it| it == facts.letter)
            && self.is_mysql_read.is_none_or(|it| it == facts.is_mysql_read)
            && self.is_redis_searched.is_none_or(|it| it == facts.is_redis_searched)
    }
}

/// The first row of the table that fits, decides.
fn table() -> Vec<(Given, OrderStatus)> {
    use OrderStatus::*;
    let any = Given::default();
    let row = |row| Given { row: Some(row), ..any };
    let entry = |entry| Given { entry: Some(entry), ..any };
    let letter = |letter| Given { letter: Some(letter), ..any };
    vec![
        (row(RowFact::Own(RowState::Live)), Written),
        (row(RowFact::Own(RowState::Cancelled)), Cancelled),
        (row(RowFact::Own(RowState::Contradictory)), Contradictory),
        (Given { is_refused: Some(true), ..any }, Refused),
        (entry(EntryFact::Undelivered), Undelivered),
        (entry(EntryFact::Pending(ConsumerFact::Live)), Pending),
        (entry(EntryFact::Pending(ConsumerFact::Gone)), Pending),
        (entry(EntryFact::Pending(ConsumerFact::Unread)), Pending),
        (Given { is_mysql_read: Some(false), ..any }, Unsure),
        (letter(LetterFact::Order), Dead),
        (letter(LetterFact::IdTaken), Dead),
        (letter(LetterFact::NoOrder), Dead),
        (letter(LetterFact::Foreign), Dead),
        (Given { journal: Some(JournalFact::Released), ..any }, Released),
        (row(RowFact::Other), Mismatched),
        (Given { journal: Some(JournalFact::Nothing), entry: Some(EntryFact::None), ..any }, Unknown),
        (Given { is_redis_searched: Some(false), ..any }, Unsure),
        (any, Lost),
    ]
}

#[test]
fn every_combination_of_facts_has_the_status_of_the_table() {
    let table = table();
    for facts in all() {
        let row = table.iter().find(|(given, _)| given.is_met_by(&facts));
        let (_, expected) = row.expect("the last row takes all");
        assert_eq!(facts.status(), *expected, "{facts:?}");
    }
}

#[test]
fn nothing_is_proposed_for_an_order_that_its_status_forbids() {
    for facts in all() {
        let (status, advice) = (facts.status(), facts.advice());
        match advice {
            Advice::Release => {
                assert!(matches!(status, OrderStatus::Cancelled | OrderStatus::Refused), "{facts:?}");
                assert_ne!(facts.journal, JournalFact::Released, "it would be released twice: {facts:?}");
            }
            Advice::RunAgainOrRelease => {
                assert_eq!(status, OrderStatus::Dead, "{facts:?}");
                let is_free = matches!(facts.journal, JournalFact::Nothing | JournalFact::Admitted);
                assert!(is_free, "{facts:?}");
            }
            Advice::DeleteLetter => assert_ne!(facts.letter, LetterFact::None, "{facts:?}"),
            Advice::LookFurther => assert!(!facts.is_mysql_read || !facts.is_redis_searched, "{facts:?}"),
            Advice::RunAgain => {
                let statuses = [OrderStatus::Refused, OrderStatus::Lost];
                assert!(statuses.contains(&status), "{facts:?}");
            }
            Advice::None | Advice::Audit => {}
        }
    }
}

#[test]
fn what_can_be_done_follows_from_where_the_units_are() {
    let nothing = OrderFacts::NOTHING;
    let own = |state| RowFact::Own(state);
    let (admitted, released) = (JournalFact::Admitted, JournalFact::Released);
    let written = OrderFacts { row: own(RowState::Live), ..nothing };
    let cancelled = OrderFacts { row: own(RowState::Cancelled), ..nothing };
    let refused = OrderFacts { is_refused: true, ..nothing };
    let dead = OrderFacts { letter: LetterFact::Order, ..nothing };
    let taken = OrderFacts { letter: LetterFact::IdTaken, ..nothing };
    let journal = |journal, facts| OrderFacts { journal, ..facts };
    let buried = |facts| OrderFacts { letter: LetterFact::Order, ..facts };
    let expected = [
        (written, Advice::None),
        (journal(admitted, written), Advice::None),
        (journal(released, written), Advice::Audit),
        (buried(written), Advice::DeleteLetter),
        (cancelled, Advice::None),
        (journal(admitted, cancelled), Advice::Release),
        (buried(cancelled), Advice::Release),
        (buried(journal(released, cancelled)), Advice::DeleteLetter),
        (buried(journal(JournalFact::Other, cancelled)), Advice::DeleteLetter),
        (OrderFacts { row: own(RowState::Contradictory), ..nothing }, Advice::Audit),
        (refused, Advice::Audit),
        (journal(admitted, refused), Advice::RunAgain),
        (journal(released, refused), Advice::None),
        (buried(refused), Advice::Release),
        (OrderFacts { entry: EntryFact::Undelivered, ..refused }, Advice::None),
        (dead, Advice::RunAgainOrRelease),
        (journal(admitted, dead), Advice::RunAgainOrRelease),
        (journal(released, dead), Advice::DeleteLetter),
        (journal(JournalFact::Other, dead), Advice::DeleteLetter),
        (taken, Advice::DeleteLetter),
        (journal(admitted, taken), Advice::RunAgainOrRelease),
        (OrderFacts { letter: LetterFact::Foreign, ..nothing }, Advice::None),
        (journal(released, nothing), Advice::None),
        (journal(admitted, nothing), Advice::RunAgain),
        (OrderFacts { entry: EntryFact::Settled, ..nothing }, Advice::RunAgain),
        (nothing, Advice::None),
        (OrderFacts { is_redis_searched: false, ..nothing }, Advice::LookFurther),
    ];
    for (facts, advice) in expected {
        assert_eq!(facts.advice(), advice, "{facts:?}");
    }
}

#[test]
fn its_word_is_that_of_its_json() {
    for facts in all() {
        let status = facts.status();
        assert_eq!(serde_json::to_value(status).unwrap(), status.word());
    }
}
