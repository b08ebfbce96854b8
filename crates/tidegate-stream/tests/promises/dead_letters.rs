//! Tests of burying.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use fred::clients::Client;
use fred::interfaces::{LuaInterface, StreamsInterface};
use fred::types::Value;
use tidegate_stream::{
    BuryReply, DeadLetterReason, Entry, LaneSettings, Letter, Outcome, ServerRun, StreamInspector,
};

use crate::fixture::{Fixture, RecordingHandler, dead, eventually, number, settings};

type Fields = Vec<(Bytes, Bytes)>;

fn reason() -> DeadLetterReason {
    DeadLetterReason {
        reason: "unknown_voucher",
        error: "voucher 7 is not known: \"\u{1f3ab}\" \r\n".to_owned(),
    }
}

/// Adds an entry with these fields and reads it as `c1`.
async fn delivered(fixture: &Fixture, fields: &Fields) -> Entry {
    let client: Client = fixture.pool.next().clone();
    let _id: String = client.xadd("s", false, None::<()>, "*", fields.clone()).await.unwrap();
    let mut delivery = fixture.reader("c1").await.read_new(1, crate::fixture::ms(1000)).await.unwrap();
    let entry = delivery.entries.pop().unwrap();
    assert_eq!(&entry.fields, fields, "read byte for byte");
    entry
}

/// The only dead letter, as a lane would read it.
async fn letter(fixture: &Fixture) -> Fields {
    let _created: Value = fixture.call("XGROUP CREATE s.dead g1 0").await;
    let names = tidegate_stream::StreamNames { stream: "s.dead".into(), ..fixture.names.clone() };
    let reader = fixture.reader_of(names, "r").await;
    let mut delivery = reader.read_new(10, crate::fixture::ms(1000)).await.unwrap();
    assert_eq!(delivery.entries.len(), 1);
    delivery.entries.remove(0).fields
}

fn about<'a>(letter: &'a Fields, name: &str) -> &'a [u8] {
    &letter.iter().find(|(field, _)| field == name).unwrap_or_else(|| panic!("{name} is missing")).1
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_holds_the_entry_byte_for_byte_and_says_why_who_how_often_and_when() {
    let fixture = Fixture::start().await;
    let all_bytes: Bytes = (0..=255).collect::<Vec<u8>>().into();
    let fields: Fields = vec![
        ("userId".into(), "17".into()),
        ("userId".into(), "18".into()),
        (all_bytes.clone(), all_bytes),
        ("".into(), "".into()),
        ("QUEUED".into(), "OK".into()),
        ("number".into(), "007".into()),
        ("large".into(), vec![0xfe; 1_000_000].into()),
    ];
    let entry = delivered(&fixture, &fields).await;
    let _again: Value = fixture.call("XREADGROUP GROUP g1 c1 COUNT 1 STREAMS s 0").await;
    let now_ms = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let before = now_ms();
    assert!(fixture.stream.bury_of(&ServerRun::Any, &entry, &reason()).await.unwrap());
    let after = now_ms();
    assert_eq!(fixture.pending().await, 0);

    let letter = letter(&fixture).await;
    assert_eq!(letter[..fields.len()], fields);
    assert_eq!(about(&letter, "dead:entry"), entry.id.to_string().as_bytes());
    assert_eq!(about(&letter, "dead:reason"), b"unknown_voucher");
    assert_eq!(about(&letter, "dead:error"), reason().error.as_bytes());
    assert_eq!(about(&letter, "dead:consumer"), b"c1");
    assert_eq!(about(&letter, "dead:deliveries"), b"2");
    let at_ms: u128 = str::from_utf8(about(&letter, "dead:at_ms")).unwrap().parse().unwrap();
    assert!((before..=after).contains(&at_ms));
    assert_eq!(letter.len(), fields.len() + 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_with_more_fields_than_a_script_can_pass_on_is_kept_whole() {
    let fixture = Fixture::start().await;
    let all_bytes: Vec<u8> = (0..=255).collect();
    let fields: Fields =
        (0..10_000).map(|at| (format!("field {at}").into(), all_bytes[at % 256..].to_vec().into())).collect();
    let entry = delivered(&fixture, &fields).await;
    assert!(fixture.stream.bury_of(&ServerRun::Any, &entry, &reason()).await.unwrap());
    assert_eq!(fixture.pending().await, 0);

    let letter = letter(&fixture).await;
    assert_eq!(about(&letter, "dead:reason"), b"unknown_voucher");
    let json = Bytes::copy_from_slice(about(&letter, "dead:fields"));
    let client: Client = fixture.pool.next().clone();
    let values: Vec<Bytes> =
        client.eval("return cjson.decode(ARGV[1])", Vec::<String>::new(), vec![json]).await.unwrap();
    let kept: Fields = values.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    assert_eq!(kept, fields);
}

/// The reader of letters against the script that writes them.
#[tokio::test(flavor = "multi_thread")]
async fn a_letter_is_read_back_as_the_entry_was_whatever_its_fields_are_called() {
    let all_bytes: Bytes = (0..=255).collect::<Vec<u8>>().into();
    let many = (0..3000).map(|_| (all_bytes.clone(), all_bytes.clone())).collect();
    let two = |name: &'static str, value: &'static str| vec![(Bytes::from(name), Bytes::from(value)); 2];
    for fields in [
        vec![("userId".into(), "17".into()), (all_bytes.clone(), all_bytes.clone()), ("".into(), "".into())],
        many,
        vec![("dead:fields".into(), r#"["a","b"]"#.into())],
        two("dead:fields", "[]"),
        two("dead:entry", "1-1"),
    ] {
        let fixture = Fixture::start().await;
        let entry = delivered(&fixture, &fields).await;
        assert!(fixture.stream.bury_of(&ServerRun::Any, &entry, &reason()).await.unwrap());
        let inspector = StreamInspector::new(fixture.pool.clone(), fixture.names.clone());
        let last = inspector.last_id("s.dead").await.unwrap();
        let letter = Letter::parse(inspector.entry("s.dead", last).await.unwrap().unwrap());
        assert_eq!(letter.entry(), entry);
        let burial = letter.burial.unwrap();
        assert_eq!((burial.reason.as_str(), burial.error), (reason().reason, reason().error));
        assert_eq!((burial.consumer.as_str(), burial.deliveries), ("c1", 1));
        assert!(burial.at_ms.abs_diff(last.ms) < 1000);
        assert!(inspector.entry("s.dead", last.next()).await.unwrap().is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_buried_twice_lies_there_once() {
    let fixture = Fixture::start().await;
    let entry = delivered(&fixture, &vec![("a".into(), "1".into())]).await;
    assert!(fixture.stream.bury_of(&ServerRun::Any, &entry, &reason()).await.unwrap());
    assert!(!fixture.stream.bury_of(&ServerRun::Any, &entry, &reason()).await.unwrap());
    assert_eq!(fixture.call::<usize>("XLEN s.dead").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_settled_elsewhere_is_not_buried() {
    let fixture = Fixture::start().await;
    let entry = delivered(&fixture, &vec![("a".into(), "1".into())]).await;
    assert_eq!(fixture.stream.settle_of(&ServerRun::Any, &[entry.id]).await.unwrap(), 1);
    assert!(!fixture.stream.bury_of(&ServerRun::Any, &entry, &reason()).await.unwrap());
    assert_eq!(fixture.call::<usize>("EXISTS s.dead").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn others_bury_only_what_a_dead_consumer_holds() {
    let fixture = Fixture::start().await;
    let entry = delivered(&fixture, &vec![("a".into(), "1".into())]).await;
    let bury = async |consumer: &str| {
        let heartbeat = format!("alive:{consumer}");
        fixture.stream.bury_of_dead(&ServerRun::Any, &entry, &reason(), consumer, heartbeat).await.unwrap()
    };
    let _ok: Value = fixture.call("SET alive:c1 1").await;
    assert_eq!(bury("c1").await, BuryReply::InProgress, "its consumer lives");
    assert_eq!(bury("c2").await, BuryReply::InProgress, "another consumer has it");
    assert_eq!((fixture.pending().await, fixture.call::<usize>("EXISTS s.dead").await), (1, 0));

    let _deleted: Value = fixture.call("DEL alive:c1").await;
    assert_eq!(bury("c1").await, BuryReply::Buried);
    assert_eq!(bury("c1").await, BuryReply::Settled);
    assert_eq!((fixture.pending().await, fixture.call::<usize>("XLEN s.dead").await), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_trimmed_after_reading_is_buried_whole() {
    let fixture = Fixture::start().await;
    let fields: Fields = vec![("a".into(), "1".into())];
    let entry = delivered(&fixture, &fields).await;
    let _trimmed: Value = fixture.call("XTRIM s MAXLEN 0").await;
    assert!(fixture.stream.bury_of(&ServerRun::Any, &entry, &reason()).await.unwrap());
    assert_eq!(letter(&fixture).await[..1], fields);
    assert_eq!(fixture.pending().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wave_of_poison_does_not_fill_the_log() {
    let fixture = Fixture::start().await;
    fixture.add(40).await;
    let handler = RecordingHandler::new(|entry| {
        let reason = if number(entry) < 10 { "small" } else { "large" };
        Outcome::Dead(DeadLetterReason { reason, error: "no good".to_owned() })
    });
    let lane = fixture.run("c1", &handler, LaneSettings { batch: 100, ..settings() }).await;
    eventually("all are buried", async || fixture.counters.counts().buried == 40).await;
    lane.stop().await;
    assert_eq!(fixture.log.count("WARN entry buried"), 3);
    assert_eq!(fixture.log.count("WARN more entries of the same batch became dead letters"), 2);
    for sum in ["count=6", "count=31"] {
        assert_eq!(fixture.log.count(sum), 1, "{sum}");
    }
    assert_eq!(fixture.call::<usize>("XLEN s.dead").await, 40);
}

/// While Redis does not take dead letters, the dead entries stay pending and the lanes handle all others. Afterwards
/// the lanes bury them.
async fn a_refusal_holds_up_nobody(forbid: &str, allow: &str) {
    let fixture = Fixture::start().await;
    // All entries fit into the memory: the command below forbids only later writes.
    fixture.add(30).await;
    let _ok: Value = fixture.call(forbid).await;
    let handler =
        RecordingHandler::new(|entry| if number(entry) % 10 == 3 { dead("no") } else { Outcome::Done });
    let lane = fixture.run("c1", &handler, settings()).await;
    eventually("all others are settled", async || fixture.counters.counts().done == 27).await;
    assert_eq!(fixture.pending().await, 3);
    eventually("it is told", async || fixture.log.count("ERROR cannot write dead letters") > 0).await;
    assert_eq!(fixture.log.count("outage"), 0);

    let _ok: Value = fixture.call(allow).await;
    eventually("the dead are buried", async || fixture.counters.counts().buried == 3).await;
    fixture.nothing_is_pending().await;
    assert_eq!(fixture.call::<usize>("XLEN s.dead").await, 3);
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_stream_of_the_wrong_type_holds_up_nobody() {
    a_refusal_holds_up_nobody("SET s.dead text", "DEL s.dead").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_out_of_memory_for_dead_letters_holds_up_nobody() {
    a_refusal_holds_up_nobody("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_permission_for_dead_letters_holds_up_nobody() {
    a_refusal_holds_up_nobody("ACL SETUSER default resetkeys ~s", "ACL SETUSER default allkeys").await;
}
