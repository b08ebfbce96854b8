//! Tests of the sentences for an order in every state of its life.

use clap::Parser;
use tidegate_operations::order_show::{
    Coverage, EntryLocation, EntryRecord, JournalRecord, LockRecord, SearchNotes, StreamCoverage,
};
use tidegate_orders::{
    KeyTemplates,
    records::{DeadLetterRecord, EntryContent, OrderDetails, OrderRow, RefusalRow},
};
use tidegate_stream::EntryId;

use super::*;
use crate::cli::Cli;

const AT_MS: i64 = 1_795_168_800_000;

/// The facts around the records.
#[derive(Clone, Copy)]
struct Around {
    query: OrderQuery,
    workers_live: bool,
}

fn around() -> Around {
    let order = 60_001.try_into().unwrap();
    let query = OrderQuery { order, voucher: None, user: None, entry: None, budget: 1_000 };
    Around { query, workers_live: true }
}

/// The records if everything was searched and nothing was found.
fn nothing() -> OrderRecords {
    let whole = StreamCoverage { complete: true, ..StreamCoverage::default() };
    let coverage =
        Coverage { mysql: true, stream: whole.clone(), dead: whole, journals: 1, all_journals: true };
    let search = SearchNotes { coverage, ..SearchNotes::default() };
    OrderRecords { search, ..OrderRecords::default() }
}

fn row() -> OrderRow {
    OrderRow {
        order: 60_001.try_into().unwrap(),
        user: 9,
        voucher: 7,
        quantity: 1,
        slot: Some(1),
        status: 1,
        entry: Some(id()),
        created_ms: Some(AT_MS),
    }
}

/// A row without times except that of its creation.
fn details(row: OrderRow) -> Option<OrderDetails> {
    Some(OrderDetails { row, paid_ms: None, used_ms: None, refunded_ms: None, updated_ms: None })
}

fn refusal() -> RefusalRow {
    RefusalRow {
        order: 60_001.try_into().unwrap(),
        user: 9,
        voucher: 7,
        quantity: 1,
        reason: "out_of_stock".to_owned(),
        entry: Some(id()),
        at_ms: Some(AT_MS),
    }
}

fn id() -> EntryId {
    EntryId { ms: AT_MS.unsigned_abs(), seq: 0 }
}

fn entry(state: EntryLocation) -> EntryRecord {
    let content = EntryContent {
        user: Some(9.try_into().unwrap()),
        voucher: Some(7.try_into().unwrap()),
        quantity: 1,
        error: None,
    };
    EntryRecord { id: id(), content: Some(content), state }
}

fn held(alive: bool, idle_ms: Option<u64>, deliveries: u64) -> EntryRecord {
    entry(EntryLocation::Pending { consumer: "shop-7-0".to_owned(), alive, idle_ms, deliveries, crashes: 0 })
}

fn note(action: &str, by: &str) -> JournalRecord {
    JournalRecord {
        voucher: 7.try_into().unwrap(),
        action: action.to_owned(),
        change: Some(if action == "admit" { -2 } else { 2 }),
        by: Some(by.to_owned()),
        at_ms: Some(AT_MS),
        repaired: None,
    }
}

fn letter(user: i64) -> DeadLetterRecord {
    DeadLetterRecord {
        id: EntryId { ms: 5, seq: 0 },
        entry: Some(id()),
        reason: Some("unknown_voucher".to_owned()),
        error: Some("voucher 7 is not known".to_owned()),
        at_ms: Some(AT_MS),
        requeued: 0,
        content: EntryContent {
            user: user.try_into().ok(),
            voucher: 7.try_into().ok(),
            quantity: 1,
            error: None,
        },
    }
}

/// Checks that the program itself or redis-cli understands the command.
#[track_caller]
fn can_be_typed(command: &str) {
    let words = shlex::split(command).expect("words");
    if words[0] == "tidegate" {
        let parsed = Cli::try_parse_from(&words);
        assert!(parsed.is_ok(), "{command}: {:?}", parsed.err());
    } else {
        assert_eq!(words[..3], ["redis-cli", "-u", "$TIDEGATE_REDIS_URL"], "{command}");
        assert!(
            ["XADD", "HGET"].contains(&&*words[3]) || words[3..5] == ["--eval", "lua/release.lua"],
            "{command}"
        );
    }
}

#[track_caller]
fn says(records: &OrderRecords, around: &Around, is: OrderStatus, sentence: &str, commands: &[&str]) {
    let report = OrderReport::of(around.query, records.clone(), around.workers_live);
    let names = RedisNames { stream: "stream.orders".to_owned(), keys: Keys::new(KeyTemplates::default()) };
    let conclusion = Conclusion::of(&report, &names, 60_000);
    assert_eq!(conclusion.status, is, "{conclusion:?}");
    assert!(conclusion.sentence.contains(sentence), "{conclusion:?}");
    assert_eq!(conclusion.commands, commands, "{conclusion:?}");
    conclusion.commands.iter().for_each(|command| can_be_typed(command));
}

#[test]
fn what_is_written_is_written_whatever_else_is_left_of_it() {
    let records = OrderRecords { row: details(row()), journal: vec![note("admit", "9")], ..nothing() };
    says(
        &records,
        &around(),
        OrderStatus::Written,
        "2026-11-20T10:00:00Z, unpaid. You need not do anything.",
        &[],
    );
    let claim = "tidegate consumers drain shop-7-0";
    let open = OrderRecords { entries: vec![held(false, Some(1), 1)], ..records.clone() };
    says(&open, &around(), OrderStatus::Written, "only acknowledges it", &[claim]);
    let twice = OrderRecords { journal: vec![note("release", "operator:x")], ..records.clone() };
    says(
        &twice,
        &around(),
        OrderStatus::Written,
        "its units can be sold twice",
        &["tidegate audit --voucher 7"],
    );
    let cancelled = OrderRow { status: 4, slot: None, ..row() };
    let cancelled =
        OrderRecords { row: details(cancelled), journal: vec![note("release", "x")], ..records.clone() };
    says(&cancelled, &around(), OrderStatus::Cancelled, "counts no units. It was released in Redis", &[]);
    let taken = OrderRecords { letters: vec![letter(10)], ..records.clone() };
    says(
        &taken,
        &around(),
        OrderStatus::Written,
        "of user 10 has the same id: 5-0",
        &["tidegate dead show 5-0"],
    );
    let left = OrderRecords { letters: vec![letter(9)], ..records };
    let commands = ["tidegate dead show 5-0", "tidegate dead drop 5-0"];
    says(&left, &around(), OrderStatus::Written, "Its dead letter 5-0 can be deleted", &commands);
}

#[test]
fn what_is_cancelled_says_whether_redis_knows_and_how_it_gets_to_know() {
    let row = OrderRow { status: 4, slot: None, ..row() };
    let plain = OrderRecords { row: details(row), ..nothing() };
    says(&plain, &around(), OrderStatus::Cancelled, "counts no units. You need not do anything.", &[]);
    let admitted = OrderRecords { journal: vec![note("admit", "9")], ..plain.clone() };
    let release = "redis-cli -u \"$TIDEGATE_REDIS_URL\" --eval lua/release.lua seckill:stock:7 seckill:order:7 \
                   seckill:journal:7 , 60001 9 1 1 operator:by_hand";
    says(&admitted, &around(), OrderStatus::Cancelled, "run lua/release.lua as below", &[release]);
    let forged =
        OrderRecords { journal: vec![note("admit", "10")], letters: vec![letter(9)], ..plain.clone() };
    says(&forged, &around(), OrderStatus::Cancelled, "belongs to another user", &["tidegate dead drop 5-0"]);
    let half = OrderRecords { letters: vec![letter(9)], ..admitted };
    let cancel = ["tidegate dead cancel 5-0"];
    let until = "It was not released in Redis: to release it, cancel its dead letter 5-0.";
    says(&half, &around(), OrderStatus::Cancelled, until, &cancel);
    let back = OrderRecords { journal: vec![note("release", "operator:dead_cancel")], ..half.clone() };
    says(&back, &around(), OrderStatus::Cancelled, "its dead letter 5-0 can be deleted", &cancel);
    let of_another = OrderRecords { letters: vec![letter(10)], ..half };
    let commands = [release, "tidegate dead show 5-0"];
    says(&of_another, &around(), OrderStatus::Cancelled, "of user 10 has the same id", &commands);
}

#[test]
fn a_note_that_cannot_be_read_says_no_more_than_that_it_is_there() {
    let unread = JournalRecord { change: None, by: None, at_ms: None, ..note("", "") };
    let records = OrderRecords { journal: vec![unread.clone()], ..nothing() };
    let sentence =
        "The journal of voucher 7 has an unreadable note of the order, and its entry is not in the stream: ";
    let look = "redis-cli -u \"$TIDEGATE_REDIS_URL\" HGET seckill:journal:7 60001";
    says(&records, &around(), OrderStatus::Lost, sentence, &[look]);
    let half = JournalRecord { action: "admit".to_owned(), ..unread };
    let records = OrderRecords { journal: vec![half], ..nothing() };
    says(&records, &around(), OrderStatus::Lost, sentence, &[look]);
}

#[test]
fn what_is_refused_says_whether_its_units_are_back() {
    let records = OrderRecords { refusal: Some(refusal()), ..nothing() };
    let back = OrderRecords { journal: vec![note("release", "worker:out_of_stock")], ..records.clone() };
    says(&back, &around(), OrderStatus::Refused, "it was released in Redis", &[]);
    let open = OrderRecords {
        entries: vec![held(true, Some(1), 1)],
        journal: vec![note("admit", "9")],
        ..records.clone()
    };
    says(&open, &around(), OrderStatus::Refused, "a worker releases it in Redis", &[]);
    let replay = "tidegate replay --from 1795168800000-0 --to 1795168800000-0";
    let kept = OrderRecords {
        entries: vec![entry(EntryLocation::Settled)],
        journal: vec![note("admit", "9")],
        ..records.clone()
    };
    says(&kept, &around(), OrderStatus::Refused, "was not released", &[replay]);
    says(&records, &around(), OrderStatus::Refused, "no journal shows", &["tidegate audit --voucher 7"]);
    let both = OrderRecords { letters: vec![letter(9)], ..kept };
    let commands = ["tidegate dead show 5-0", "tidegate dead cancel 5-0"];
    says(&both, &around(), OrderStatus::Refused, "cancel its dead letter 5-0. To order again", &commands);
    let left = OrderRecords { letters: vec![letter(9)], ..back };
    says(
        &left,
        &around(),
        OrderStatus::Refused,
        "To delete its dead letter 5-0",
        &["tidegate dead cancel 5-0"],
    );
}

#[test]
fn what_is_in_flight_says_who_has_it_and_when_it_goes_on() {
    let with = |entry: EntryRecord| OrderRecords {
        entries: vec![entry],
        journal: vec![note("admit", "9")],
        ..nothing()
    };
    let nobody = Around { workers_live: false, ..around() };
    let unread = with(entry(EntryLocation::Undelivered));
    says(&unread, &around(), OrderStatus::Undelivered, "when its turn comes", &[]);
    says(
        &unread,
        &nobody,
        OrderStatus::Undelivered,
        "no living worker reads the stream: start a worker",
        &["tidegate worker"],
    );

    says(
        &with(held(true, Some(5), 1)),
        &around(),
        OrderStatus::Pending,
        "has the entry in progress: you need not do anything",
        &[],
    );
    says(
        &with(held(true, Some(5), 3)),
        &around(),
        OrderStatus::Pending,
        "has the entry in progress: you need not do anything",
        &[],
    );
    says(
        &with(held(true, Some(5), 0)),
        &around(),
        OrderStatus::Pending,
        "is alive and has set the entry aside: it retries the entry later",
        &[],
    );
    let mut deadly = held(true, Some(5), 1);
    if let EntryLocation::Pending { crashes, .. } = &mut deadly.state {
        *crashes = 2;
    }
    says(
        &with(deadly),
        &around(),
        OrderStatus::Pending,
        "you need not do anything. 2 workers died with the entry in progress",
        &[],
    );
    let lock = |holder: Option<&str>, ends_in_ms| {
        let lock = LockRecord { holder: holder.map(str::to_owned), ends_in_ms };
        OrderRecords { lock: Some(lock), ..with(held(true, Some(5), 0)) }
    };
    says(&lock(Some("shop"), None), &around(), OrderStatus::Pending, "the lock, which never expires", &[]);
    says(
        &lock(None, Some(9_000)),
        &around(),
        OrderStatus::Pending,
        "whose lock has an unknown layout holds the lock, which expires in 9 s",
        &[],
    );
    let own = OrderRecords { entries: vec![held(true, Some(5), 1)], ..lock(Some("tidegate-0"), Some(9_000)) };
    says(&own, &around(), OrderStatus::Pending, "has the entry in progress", &[]);

    let claim = "tidegate consumers drain shop-7-0";
    says(&with(held(false, Some(15_000), 1)), &around(), OrderStatus::Pending, "in about 45 s", &[claim]);
    says(&with(held(false, None, 1)), &around(), OrderStatus::Pending, "is claimable", &[]);
    says(
        &with(held(false, Some(5), 1)),
        &nobody,
        OrderStatus::Pending,
        "no living worker reads the stream",
        &["tidegate worker"],
    );

    let back = OrderRecords { journal: vec![note("release", "x")], ..unread };
    says(&back, &around(), OrderStatus::Undelivered, "workers will write it", &[]);
    let again = OrderRecords { letters: vec![letter(9)], ..with(held(true, Some(5), 1)) };
    says(&again, &around(), OrderStatus::Pending, "The order also has a dead letter: 5-0", &[]);
    let mut no_order = with(held(true, Some(5), 1));
    no_order.entries[0].content.as_mut().unwrap().error = Some("the field userId is missing".to_owned());
    says(&no_order, &around(), OrderStatus::Pending, "the next worker that handles the entry buries it", &[]);
}

#[test]
fn of_a_dead_letter_nothing_is_proposed_that_would_be_refused() {
    let records =
        OrderRecords { letters: vec![letter(9)], entries: vec![entry(EntryLocation::Settled)], ..nothing() };
    let commands = ["tidegate dead show 5-0", "tidegate dead requeue 5-0", "tidegate dead cancel 5-0"];
    says(
        &records,
        &around(),
        OrderStatus::Dead,
        "for the reason unknown_voucher (voucher 7 is not known)",
        &commands,
    );
    let commands = ["tidegate dead show 5-0", "tidegate dead cancel 5-0"];
    let back = OrderRecords { journal: vec![note("release", "x")], ..records.clone() };
    says(
        &back,
        &around(),
        OrderStatus::Dead,
        "and will not be written: tidegate dead cancel deletes the letter",
        &commands,
    );
    let with = |change: fn(&mut DeadLetterRecord)| {
        let mut letter = letter(9);
        change(&mut letter);
        OrderRecords { letters: vec![letter], ..records.clone() }
    };
    let often = with(|letter| letter.requeued = 3);
    let forced = "tidegate dead requeue 5-0 --force";
    says(&often, &around(), OrderStatus::Dead, "fix the cause", &[commands[0], forced, commands[1]]);
    let drop = ["tidegate dead show 5-0", "tidegate dead drop 5-0"];
    let no_order = with(|letter| letter.content.error = Some("the field id is missing".to_owned()));
    says(&no_order, &around(), OrderStatus::Dead, "the letter holds no order", &drop);
    let taken = with(|letter| letter.reason = Some("id_taken".to_owned()));
    says(&taken, &around(), OrderStatus::Dead, "then drop the letter", &drop);
    let forged = OrderRecords { journal: vec![note("admit", "10")], ..records.clone() };
    says(&forged, &around(), OrderStatus::Dead, "belongs to another user", &drop);
    let genuine = OrderRecords { journal: vec![note("admit", "9")], ..taken };
    says(
        &genuine,
        &around(),
        OrderStatus::Dead,
        "or cancel it",
        &[commands[0], "tidegate dead requeue 5-0", commands[1]],
    );
    let foreign = with(|letter| letter.reason = None);
    says(
        &foreign,
        &around(),
        OrderStatus::Dead,
        "another program, not Tidegate, wrote it",
        &["tidegate dead show 5-0"],
    );
    let strange = with(|letter| {
        letter.reason = None;
        letter.content.error = Some("the field id is missing".to_owned());
    });
    says(&strange, &around(), OrderStatus::Dead, "another program, not Tidegate, wrote it", &drop);
}

#[test]
fn what_was_released_is_nowhere_else() {
    let records = OrderRecords { journal: vec![note("release", "operator:dead")], ..nothing() };
    says(&records, &around(), OrderStatus::Released, "by operator:dead, and is not written", &[]);
}

#[test]
fn what_is_lost_can_be_run_again_from_its_entry_or_from_the_journal() {
    let replay = "tidegate replay --from 1795168800000-0 --to 1795168800000-0";
    let records = OrderRecords { entries: vec![entry(EntryLocation::Settled)], ..nothing() };
    says(&records, &around(), OrderStatus::Lost, "is acknowledged, but the order is neither", &[replay]);
    let append = "redis-cli -u \"$TIDEGATE_REDIS_URL\" XADD stream.orders '*' userId 9 voucherId 7 id 60001 quantity 2";
    let trimmed = OrderRecords { journal: vec![note("admit", "9")], ..nothing() };
    says(&trimmed, &around(), OrderStatus::Lost, "its entry is not in the stream: ", &[append]);
    let gone =
        OrderRecords { entries: vec![EntryRecord { content: None, ..held(true, Some(5), 1) }], ..trimmed };
    says(&gone, &around(), OrderStatus::Lost, "its payload was deleted or trimmed: the order", &[append]);
}

#[test]
fn what_was_not_searched_is_said_and_nothing_is_called_lost_before() {
    let admitted = OrderRecords { journal: vec![note("admit", "9")], ..nothing() };
    let partly = StreamCoverage { entries: 1_000, complete: false, down_to: id() };
    let mut unsure = admitted.clone();
    unsure.search.coverage.stream = partly;
    let more = "tidegate order show 60001 --scan 100000";
    says(
        &unsure,
        &around(),
        OrderStatus::Unsure,
        "only the newest 1000 entries were searched, down to id 1795168800000-0",
        &[more],
    );
    let mut hinted = around();
    hinted.query.voucher = 7.try_into().ok();
    hinted.query.user = 9.try_into().ok();
    hinted.query.entry = Some(id());
    let more = format!("tidegate order show 60001 --voucher 7 --user 9 --entry {} --scan 100000", id());
    says(&unsure, &hinted, OrderStatus::Unsure, "the newest 1000 entries were searched", &[&more]);
    let more = "tidegate order show 60001 --scan 100000";
    let mut failed = admitted.clone();
    failed.search.coverage.dead = StreamCoverage::default();
    failed.search.errors = vec!["the dead letters: WRONGTYPE".to_owned()];
    says(&failed, &around(), OrderStatus::Unsure, "the dead letters could not be read", &[more]);
    let mut away = admitted;
    away.search.coverage.mysql = false;
    says(&away, &around(), OrderStatus::Unsure, "MySQL could not be queried", &[]);
    let mut dead = OrderRecords { letters: vec![letter(9)], ..nothing() };
    dead.search.coverage.mysql = false;
    says(&dead, &around(), OrderStatus::Unsure, "so the order may be written", &[]);
}

#[test]
fn what_nobody_has_heard_of_is_unknown() {
    says(&nothing(), &around(), OrderStatus::Unknown, "No store knows the order", &[]);
    let mut some = nothing();
    some.search.coverage.all_journals = false;
    some.search.coverage.journals = 1_000;
    says(
        &some,
        &around(),
        OrderStatus::Unknown,
        "only the journals of 1000 vouchers were searched, not all journals",
        &[],
    );
}
