//! Facts of an order in every state of its life, and what is said of them.

use clap::Parser;
use tidegate_orders::{
    KeyTemplates,
    story::{LockFacts, Search, Searched, Wanted},
};
use tidegate_stream::EntryId;

use super::*;
use crate::cli::Cli;

const AT_MS: i64 = 1_795_168_800_000;

fn around() -> Surroundings {
    Surroundings {
        question: Question {
            order: 60_001.try_into().unwrap(),
            voucher: None,
            user: None,
            entry: None,
            budget: 1_000,
        },
        workers_live: true,
        claim_idle_ms: 60_000,
        stream: "stream.orders".to_owned(),
        keys: Keys::new(KeyTemplates::default()),
        requeue_limit: 5,
    }
}

/// Everything was searched, and nothing was found.
fn nothing() -> Story {
    let whole = Searched { complete: true, ..Searched::default() };
    let searched =
        Search { mysql: true, stream: whole.clone(), dead: whole, journals: 1, all_journals: true };
    Story { searched, ..Story::default() }
}

fn row() -> OrderRow {
    OrderRow {
        order: 60_001.try_into().unwrap(),
        user: 9,
        voucher: 7,
        quantity: 1,
        slot: Some(1),
        status: 1,
        entry: Some(id().to_string()),
        created_ms: Some(AT_MS),
        paid_ms: None,
        used_ms: None,
        refunded_ms: None,
        updated_ms: None,
    }
}

fn refusal() -> RefusalRow {
    RefusalRow {
        order: 60_001.try_into().unwrap(),
        user: 9,
        voucher: 7,
        quantity: 1,
        reason: "out_of_stock".to_owned(),
        entry: id().to_string(),
        at_ms: Some(AT_MS),
    }
}

fn id() -> EntryId {
    EntryId { ms: AT_MS.unsigned_abs(), seq: 0 }
}

fn entry(state: EntryState) -> EntryFacts {
    let wanted = Wanted {
        user: Some(9.try_into().unwrap()),
        voucher: Some(7.try_into().unwrap()),
        quantity: 1,
        error: None,
    };
    EntryFacts { id: id(), wanted: Some(wanted), state }
}

fn held(alive: bool, idle_ms: Option<u64>, deliveries: u64) -> EntryFacts {
    entry(EntryState::Pending { consumer: "shop-7-0".to_owned(), alive, idle_ms, deliveries, deaths: 0 })
}

fn note(action: &str, by: &str) -> JournalFacts {
    JournalFacts {
        voucher: 7.try_into().unwrap(),
        action: action.to_owned(),
        change: Some(if action == "admit" { -2 } else { 2 }),
        by: Some(by.to_owned()),
        at_ms: Some(AT_MS),
    }
}

fn letter(user: i64) -> LetterFacts {
    LetterFacts {
        id: EntryId { ms: 5, seq: 0 },
        entry: Some(id().to_string()),
        reason: Some("unknown_voucher".to_owned()),
        error: Some("voucher 7 is not known".to_owned()),
        at_ms: Some(AT_MS),
        requeued: 0,
        wanted: Wanted { user: user.try_into().ok(), voucher: 7.try_into().ok(), quantity: 1, error: None },
    }
}

/// What is typed is understood: by the program itself, or by redis-cli.
#[track_caller]
fn can_be_typed(command: &str) {
    let words = shlex::split(command).expect("words");
    if words[0] == "tidegate" {
        let parsed = Cli::try_parse_from(&words);
        assert!(parsed.is_ok(), "{command}: {:?}", parsed.err());
    } else {
        assert_eq!(words[..3], ["redis-cli", "-u", "$TIDEGATE_REDIS_URL"], "{command}");
        assert!(words[3] == "XADD" || words[3..5] == ["--eval", "lua/release.lua"], "{command}");
    }
}

#[track_caller]
fn told(story: &Story, around: &Surroundings, is: Place, sentence: &str, commands: &[&str]) {
    let fate = fate(story, around);
    assert_eq!(fate.is, is, "{fate:?}");
    assert!(fate.sentence.contains(sentence), "{fate:?}");
    assert_eq!(fate.commands, commands, "{fate:?}");
    fate.commands.iter().for_each(|command| can_be_typed(command));
}

#[test]
fn what_is_written_is_written_whatever_else_is_left_of_it() {
    let story = Story { row: Some(row()), journal: vec![note("admit", "9")], ..nothing() };
    told(&story, &around(), Place::Written, "2026-11-20T10:00:00.000Z, unpaid. Nothing is to be done.", &[]);
    let claim = "tidegate pending claim --consumer shop-7-0";
    let open = Story { entries: vec![held(false, Some(1), 1)], ..story.clone() };
    told(&open, &around(), Place::Written, "only acknowledges it", &[claim]);
    let twice = Story { journal: vec![note("release", "operator:x")], ..story.clone() };
    told(&twice, &around(), Place::Written, "its units are sold twice", &["tidegate audit --voucher 7"]);
    let cancelled = OrderRow { status: 4, slot: None, ..row() };
    let cancelled = Story { row: Some(cancelled), journal: vec![note("release", "x")], ..story.clone() };
    told(&cancelled, &around(), Place::Cancelled, "counts no units. It was given back to Redis", &[]);
    let taken = Story { letters: vec![letter(10)], ..story.clone() };
    told(&taken, &around(), Place::Written, "of user 10 has the same id: 5-0", &["tidegate dead show 5-0"]);
    let left = Story { letters: vec![letter(9)], ..story };
    let commands = ["tidegate dead show 5-0", "tidegate dead requeue 5-0"];
    told(&left, &around(), Place::Written, "of it is left, 5-0: run again, it only ends", &commands);
}

#[test]
fn what_is_cancelled_says_whether_redis_knows_and_how_it_gets_to_know() {
    let row = OrderRow { status: 4, slot: None, ..row() };
    let plain = Story { row: Some(row), ..nothing() };
    told(&plain, &around(), Place::Cancelled, "counts no units. Nothing is to be done.", &[]);
    let admitted = Story { journal: vec![note("admit", "9")], ..plain.clone() };
    let release = "redis-cli -u \"$TIDEGATE_REDIS_URL\" --eval lua/release.lua seckill:stock:7 seckill:order:7 \
                   seckill:journal:7 , 60001 9 1 1 operator:by_hand";
    told(&admitted, &around(), Place::Cancelled, "until lua/release.lua gives it back.", &[release]);
    let forged = Story { journal: vec![note("admit", "10")], letters: vec![letter(9)], ..plain.clone() };
    told(&forged, &around(), Place::Cancelled, "an order of another user", &["tidegate dead drop 5-0"]);
    let half = Story { letters: vec![letter(9)], ..admitted };
    let cancel = ["tidegate dead cancel 5-0"];
    let until = "It was not given back to Redis: that is done when its dead letter 5-0 is cancelled.";
    told(&half, &around(), Place::Cancelled, until, &cancel);
    let back = Story { journal: vec![note("release", "operator:dead_cancel")], ..half.clone() };
    told(&back, &around(), Place::Cancelled, "its dead letter 5-0 can be deleted", &cancel);
    let of_another = Story { letters: vec![letter(10)], ..half };
    let commands = [release, "tidegate dead show 5-0"];
    told(&of_another, &around(), Place::Cancelled, "of user 10 has the same id", &commands);
}

#[test]
fn what_is_refused_says_whether_its_units_are_back() {
    let story = Story { refusal: Some(refusal()), ..nothing() };
    let back = Story { journal: vec![note("release", "worker:out_of_stock")], ..story.clone() };
    told(&back, &around(), Place::Refused, "it was given back to Redis", &[]);
    let open =
        Story { entries: vec![held(true, Some(1), 1)], journal: vec![note("admit", "9")], ..story.clone() };
    told(&open, &around(), Place::Refused, "a worker gives it back", &[]);
    let replay = "tidegate replay --from 1795168800000-0 --to 1795168800000-0";
    let kept = Story {
        entries: vec![entry(EntryState::Settled)],
        journal: vec![note("admit", "9")],
        ..story.clone()
    };
    told(&kept, &around(), Place::Refused, "was not given back", &[replay]);
    told(&story, &around(), Place::Refused, "no journal tells", &["tidegate audit --voucher 7"]);
    let both = Story { letters: vec![letter(9)], ..kept };
    let commands = ["tidegate dead show 5-0", "tidegate dead cancel 5-0"];
    told(&both, &around(), Place::Refused, "when its dead letter 5-0 is cancelled. A new", &commands);
    let left = Story { letters: vec![letter(9)], ..back };
    told(&left, &around(), Place::Refused, "5-0 can be deleted", &["tidegate dead cancel 5-0"]);
}

#[test]
fn what_is_in_flight_says_who_has_it_and_when_it_goes_on() {
    let with =
        |entry: EntryFacts| Story { entries: vec![entry], journal: vec![note("admit", "9")], ..nothing() };
    let nobody = Surroundings { workers_live: false, ..around() };
    let unread = with(entry(EntryState::Undelivered));
    told(&unread, &around(), Place::Undelivered, "when its turn comes", &[]);
    told(
        &unread,
        &nobody,
        Place::Undelivered,
        "no living worker reads the stream: start one",
        &["tidegate worker"],
    );

    told(
        &with(held(true, Some(5), 1)),
        &around(),
        Place::Pending,
        "has it in hand: nothing is to be done",
        &[],
    );
    told(
        &with(held(true, Some(5), 3)),
        &around(),
        Place::Pending,
        "has it in hand: nothing is to be done",
        &[],
    );
    told(
        &with(held(true, Some(5), 0)),
        &around(),
        Place::Pending,
        "lives, and has set it aside: it waits for its turn",
        &[],
    );
    let mut deadly = held(true, Some(5), 1);
    if let EntryState::Pending { deaths, .. } = &mut deadly.state {
        *deaths = 2;
    }
    told(
        &with(deadly),
        &around(),
        Place::Pending,
        "nothing is to be done. 2 workers died with it in hand",
        &[],
    );
    let lock = |holder: Option<&str>, ends_in_ms| {
        let lock = LockFacts { holder: holder.map(str::to_owned), ends_in_ms };
        Story { lock: Some(lock), ..with(held(true, Some(5), 0)) }
    };
    told(&lock(Some("shop"), None), &around(), Place::Pending, "which shop holds and which never ends", &[]);
    told(
        &lock(None, Some(9_000)),
        &around(),
        Place::Pending,
        "whose lock is no string holds and which ends in 9 s",
        &[],
    );
    let own = Story { entries: vec![held(true, Some(5), 1)], ..lock(Some("tidegate-0"), Some(9_000)) };
    told(&own, &around(), Place::Pending, "has it in hand", &[]);

    let claim = "tidegate pending claim --consumer shop-7-0";
    told(&with(held(false, Some(15_000), 1)), &around(), Place::Pending, "in about 45 s", &[claim]);
    told(&with(held(false, None, 1)), &around(), Place::Pending, "it is on offer", &[]);
    told(
        &with(held(false, Some(5), 1)),
        &nobody,
        Place::Pending,
        "no living worker reads the stream",
        &["tidegate worker"],
    );

    let back = Story { journal: vec![note("release", "x")], ..unread };
    told(&back, &around(), Place::Undelivered, "is written all the same", &[]);
    let again = Story { letters: vec![letter(9)], ..with(held(true, Some(5), 1)) };
    told(&again, &around(), Place::Pending, "A dead letter of it is there, too: 5-0", &[]);
    let mut no_order = with(held(true, Some(5), 1));
    no_order.entries[0].wanted.as_mut().unwrap().error = Some("the field userId is missing".to_owned());
    told(&no_order, &around(), Place::Pending, "whoever handles it buries it", &[]);
}

#[test]
fn of_a_dead_letter_nothing_is_proposed_that_would_be_refused() {
    let story = Story { letters: vec![letter(9)], entries: vec![entry(EntryState::Settled)], ..nothing() };
    let commands = ["tidegate dead show 5-0", "tidegate dead requeue 5-0", "tidegate dead cancel 5-0"];
    told(&story, &around(), Place::Dead, "for unknown_voucher (voucher 7 is not known)", &commands);
    let commands = ["tidegate dead show 5-0", "tidegate dead cancel 5-0"];
    let back = Story { journal: vec![note("release", "x")], ..story.clone() };
    told(&back, &around(), Place::Dead, "and is not written any more: cancel deletes the letter", &commands);
    let with = |change: fn(&mut LetterFacts)| {
        let mut letter = letter(9);
        change(&mut letter);
        Story { letters: vec![letter], ..story.clone() }
    };
    let often = with(|letter| letter.requeued = 5);
    let forced = "tidegate dead requeue 5-0 --force";
    told(&often, &around(), Place::Dead, "mend the cause", &[commands[0], forced, commands[1]]);
    let drop = ["tidegate dead show 5-0", "tidegate dead drop 5-0"];
    let no_order = with(|letter| letter.wanted.error = Some("the field id is missing".to_owned()));
    told(&no_order, &around(), Place::Dead, "it is no order", &drop);
    let taken = with(|letter| letter.reason = Some("id_taken".to_owned()));
    told(&taken, &around(), Place::Dead, "then drop it", &drop);
    let forged = Story { journal: vec![note("admit", "10")], ..story.clone() };
    told(&forged, &around(), Place::Dead, "is an order of another user", &drop);
    let genuine = Story { journal: vec![note("admit", "9")], ..taken };
    told(
        &genuine,
        &around(),
        Place::Dead,
        "or cancel it",
        &[commands[0], "tidegate dead requeue 5-0", commands[1]],
    );
    let foreign = with(|letter| letter.reason = None);
    told(&foreign, &around(), Place::Dead, "somebody else wrote it", &["tidegate dead show 5-0"]);
    let strange = with(|letter| {
        letter.reason = None;
        letter.wanted.error = Some("the field id is missing".to_owned());
    });
    told(&strange, &around(), Place::Dead, "somebody else wrote it", &drop);
}

#[test]
fn what_was_given_back_is_nowhere_else() {
    let story = Story { journal: vec![note("release", "operator:dead")], ..nothing() };
    told(&story, &around(), Place::GivenBack, "by operator:dead, and is not written", &[]);
}

#[test]
fn what_is_lost_can_be_run_again_from_its_entry_or_from_the_journal() {
    let replay = "tidegate replay --from 1795168800000-0 --to 1795168800000-0";
    let story = Story { entries: vec![entry(EntryState::Settled)], ..nothing() };
    told(&story, &around(), Place::Lost, "is acknowledged, but it is neither written", &[replay]);
    let append = "redis-cli -u \"$TIDEGATE_REDIS_URL\" XADD stream.orders '*' userId 9 voucherId 7 id 60001 quantity 2";
    let trimmed = Story { journal: vec![note("admit", "9")], ..nothing() };
    told(&trimmed, &around(), Place::Lost, "its entry is not there: it is lost", &[append]);
    let gone = Story { entries: vec![EntryFacts { wanted: None, ..held(true, Some(5), 1) }], ..trimmed };
    told(&gone, &around(), Place::Lost, "its payload was deleted or trimmed: it is lost", &[append]);
}

#[test]
fn what_was_not_searched_is_said_and_nothing_is_called_lost_before() {
    let admitted = Story { journal: vec![note("admit", "9")], ..nothing() };
    let partly = Searched { entries: 1_000, complete: false, down_to: id() };
    let mut unsure = admitted.clone();
    unsure.searched.stream = partly;
    let more = "tidegate order show 60001 --scan 100000";
    told(
        &unsure,
        &around(),
        Place::Unsure,
        "only 1000 entries were looked at, the latest down to 1795168800000-0",
        &[more],
    );
    let mut hinted = around();
    hinted.question.voucher = 7.try_into().ok();
    hinted.question.user = 9.try_into().ok();
    hinted.question.entry = Some(id());
    let more = format!("tidegate order show 60001 --voucher 7 --user 9 --entry {} --scan 100000", id());
    told(&unsure, &hinted, Place::Unsure, "only 1000 entries were looked at", &[&more]);
    let more = "tidegate order show 60001 --scan 100000";
    let mut failed = admitted.clone();
    failed.searched.dead = Searched::default();
    failed.errors = vec!["the dead letters: WRONGTYPE".to_owned()];
    told(&failed, &around(), Place::Unsure, "the dead letters could not be read", &[more]);
    let mut away = admitted;
    away.searched.mysql = false;
    told(&away, &around(), Place::Unsure, "MySQL could not be asked", &[]);
    let mut dead = Story { letters: vec![letter(9)], ..nothing() };
    dead.searched.mysql = false;
    told(&dead, &around(), Place::Unsure, "it may be written all the same", &[]);
}

#[test]
fn what_nobody_has_heard_of_is_unknown() {
    told(&nothing(), &around(), Place::Unknown, "Nobody has heard of it", &[]);
    let mut some = nothing();
    some.searched.all_journals = false;
    some.searched.journals = 1_000;
    told(&some, &around(), Place::Unknown, "the journals of 1000 vouchers were looked into, not of all", &[]);
}
