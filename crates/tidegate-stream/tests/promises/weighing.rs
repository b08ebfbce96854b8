//! Tests of batches that are limited by bytes.

use std::sync::{Arc, Mutex};

use fred::{clients::Client, interfaces::StreamsInterface, types::Value};
use tidegate_stream::{Entry, EntryId, LaneSettings, Outcome, Read, Script, StreamInspector};

use crate::fixture::{Fixture, RecordingHandler, eventually, ms, settings};

const KIB: usize = 1024;

impl Fixture {
    /// All bytes that Redis has sent to its clients.
    async fn sent_bytes(&self) -> usize {
        let stats: String = self.call("INFO stats").await;
        let line = stats.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:"));
        line.unwrap().trim().parse().unwrap()
    }

    pub async fn add_large(&self, count: usize, bytes: usize) {
        let lua = "for at = 1, tonumber(ARGV[1]) do
                redis.call('XADD', KEYS[1], '*', 'n', at, 'payload', string.rep('x', tonumber(ARGV[2])))
            end";
        let _nothing: fred::types::Value = self.eval(lua, &[&count.to_string(), &bytes.to_string()]).await;
    }
}

/// A handler that notes the bytes of each entry, and these numbers.
fn weighing() -> (Arc<RecordingHandler>, Arc<Mutex<Vec<usize>>>) {
    let weights = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&weights);
    let handler = RecordingHandler::new(move |entry: &Entry| {
        noted.lock().unwrap().push(entry.bytes());
        Outcome::Done
    });
    (handler, weights)
}

fn by_bytes() -> LaneSettings {
    LaneSettings { batch: 1000, batch_bytes: 1024 * KIB, entry_max_bytes: 256 * KIB, ..settings() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_ends_where_it_weighs_enough_also_when_small_entries_turn_into_large_ones() {
    let fixture = Fixture::start().await;
    fixture.add(3_000).await;
    fixture.add_large(500, 64 * KIB).await;
    fixture.add(1_000).await;
    let (handler, weights) = weighing();
    let lane = fixture.run("c1", &handler, by_bytes()).await;
    handler.until_seen(4_500).await;
    fixture.nothing_is_pending().await;
    let weights = weights.lock().unwrap().clone();
    let mut rest = weights.as_slice();
    let sizes = handler.sizes();
    let batches: Vec<usize> = sizes
        .iter()
        .map(|size| {
            let (batch, later) = rest.split_at(*size);
            rest = later;
            batch.iter().sum()
        })
        .collect();
    // The lane reads 32 entries at once, so at most that many can be unexpectedly large.
    let heaviest = *batches.iter().max().unwrap();
    assert!(heaviest <= (1024 + 32 * 65) * KIB, "a batch of {heaviest} bytes");
    assert_eq!(sizes[0], 1000, "small entries come in full batches");
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_batch_has_no_room_for_is_in_nobodys_hands_until_it_is_fetched() {
    for is_stopped in [true, false] {
        no_room_for(is_stopped).await;
    }
}

async fn no_room_for(is_stopped: bool) {
    let fixture = Fixture::start().await;
    fixture.add(1_000).await;
    fixture.add_large(100, 64 * KIB).await;
    let handler = RecordingHandler::done();
    let first_is_done = fixture.commands.hold_when("XACK");
    let lane = fixture.run("c1", &handler, by_bytes()).await;
    first_is_done.reached().await.unwrap();
    handler.shut_door();
    first_is_done.release();
    handler.until_seen(1_001).await;
    let Value::Array(pending) = fixture.call::<Value>("XPENDING s g1 - + 2000 c1").await else {
        panic!("no rows")
    };
    let deliveries = pending.iter().map(|row| match row {
        Value::Array(row) => row[3].as_u64().unwrap(),
        row => panic!("{row:?}"),
    });
    let in_progress = deliveries.filter(|deliveries| *deliveries > 0).count();
    // One piece is more than a batch may weigh.
    assert_eq!((pending.len(), in_progress, handler.sizes()[1]), (100, 32, 32));

    // The lane read these entries before the stop or the pause, so it handles them first.
    if is_stopped {
        lane.stop.cancel();
    } else {
        fixture.pause_switch.pause("a test", "");
    }
    handler.open_door();
    handler.until_seen(1_100).await;
    lane.stop().await;
    fixture.nothing_is_pending().await;
    assert!(handler.ids().is_sorted_by(|one, next| one < next), "each once, in stream order");
    assert_eq!((handler.ids().len(), fixture.counters.counts().done), (1_100, 1_100));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_own_pending_list_and_claims_come_by_bytes_too() {
    let fixture = Fixture::start().await;
    fixture.add_large(200, 64 * KIB).await;
    fixture.add_delivered(1, "c1").await;
    let (handler, _) = weighing();
    let lane = fixture.run("c1", &handler, by_bytes()).await;
    handler.until_seen(201).await;
    assert!(handler.sizes().iter().all(|size| *size <= 17), "{:?}", handler.sizes());
    lane.stop().await;

    fixture.add_large(200, 64 * KIB).await;
    fixture.add_delivered(1, "dead").await;
    fixture.age("dead").await;
    let (handler, _) = weighing();
    let lane = fixture.run("c1", &handler, LaneSettings { claim_every: ms(20), ..by_bytes() }).await;
    handler.until_seen(201).await;
    assert!(handler.sizes().iter().all(|size| *size <= 17), "{:?}", handler.sizes());
    fixture.nothing_is_pending().await;
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_is_too_large_is_buried_within_redis_and_its_neighbours_go_on() {
    // Far more than all other bytes that Redis sends here, however often the test asks.
    const LARGE: usize = 8 * 1024 * KIB;
    let fixture = Fixture::start().await;
    fixture.add(5).await;
    fixture.add_large(1, LARGE).await;
    fixture.add_delivered(5, "c1").await;
    let (handler, _) = weighing();
    // The lane must not send the entry back to Redis to bury it. Such a request would be held forever.
    let sent_back = fixture.commands.hold_when("xxxxxxxxxxxxxxxx");
    let before = fixture.sent_bytes().await;
    let lane = fixture.run("c1", &handler, by_bytes()).await;
    handler.until_seen(10).await;
    eventually("it is buried", async || fixture.call::<usize>("XLEN s.dead").await == 1).await;
    fixture.nothing_is_pending().await;
    let sent = fixture.sent_bytes().await - before;
    assert!(sent < LARGE / 2, "what a pending one weighs is never sent, but {sent} bytes were");

    // Redis sends a new entry once, with the read that returns it.
    fixture.add(5).await;
    fixture.add_large(1, LARGE).await;
    fixture.add(5).await;
    handler.until_seen(20).await;
    fixture.nothing_is_pending().await;
    eventually("both are buried", async || fixture.call::<usize>("XLEN s.dead").await == 2).await;
    let sent = fixture.sent_bytes().await - before;
    assert!((LARGE..LARGE * 3 / 2).contains(&sent), "{sent} bytes were sent");
    eventually("both are counted", async || fixture.counters.buried_by_reason().get("too_large") == Some(&2))
        .await;
    drop(sent_back);
    let letters: Vec<(String, Vec<String>)> = fixture.call("XRANGE s.dead - +").await;
    for (_, fields) in letters {
        assert_eq!(fields[3].len(), LARGE, "the letter holds all of it");
        assert_eq!(fields[7], "too_large");
    }
    assert_eq!(handler.ids().len(), 20);
    let told: Vec<&str> = handler.burials().into_iter().map(|(_, reason)| reason).collect();
    assert_eq!(told, ["too_large"; 2], "without their payloads");
    lane.stop().await;
}

/// Redis copies a whole entry to measure it, and serves no other client meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn pending_entries_of_very_many_fields_are_looked_at_one_by_one_and_buried() {
    const FIELDS: usize = 60_000;
    let fixture = Fixture::start().await;
    let client: Client = fixture.pool.next().clone();
    let mut large: Vec<EntryId> = Vec::new();
    for _ in 0..5 {
        let id: String = client.xadd("s", false, None::<()>, "*", vec![("", ""); FIELDS]).await.unwrap();
        large.push(id.parse().unwrap());
    }
    fixture.add_delivered(10, "c1").await;
    let mut args: Vec<Value> = ["g1", "c1", "1048576", "262144", "3", ""].map(Value::from).to_vec();
    args.extend(large.iter().map(|id| Value::from(id.to_string())));
    let fetch = Script::new("fetch", include_str!("../../../../lua/fetch.lua"));
    let fetched = fetch.call(&fixture.pool, vec!["s".into(), "s.deaths".into()], args).await.unwrap();
    let fetched = fetched.into_array();
    assert_eq!(
        fetched[2].clone().into_array(),
        [Value::from(large[0].to_string())],
        "the first is too large"
    );
    assert_eq!(fetched[5], Value::from(1), "and no other is looked at");

    let (handler, _) = weighing();
    let lane = fixture.run("c1", &handler, by_bytes()).await;
    handler.until_seen(10).await;
    eventually("all are buried", async || fixture.call::<usize>("XLEN s.dead").await == large.len()).await;
    fixture.nothing_is_pending().await;
    assert_eq!(fixture.counters.buried_by_reason().get("too_large"), Some(&5));
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_read_by_their_ids_in_pages_of_a_few_bytes_whole_or_a_few_fields_of_each() {
    let fixture = Fixture::start().await;
    let small = fixture.add_delivered(2_500, "c1").await;
    fixture.add_large(20, 900 * KIB).await;
    let inspector = StreamInspector::new(fixture.pool.clone(), fixture.names.clone());
    let mut all: Vec<Entry> = Vec::new();
    while all.len() < 2_520 {
        let after = all.last().map_or(EntryId::MIN, |entry| entry.id);
        all.extend(inspector.page("s", (after, EntryId::MAX), 4).await.unwrap());
    }
    let mut ids: Vec<EntryId> = all.iter().map(|entry| entry.id).collect();
    ids.push(EntryId::MAX);
    let _one: usize = fixture.call(&format!("XDEL s {}", small[7])).await;
    let (mut read, mut pages) = (Vec::new(), inspector.entries("s", &ids, Read::Whole));
    while let Some(page) = pages.next().await.unwrap() {
        let bytes: usize = page.iter().flatten().map(Entry::bytes).sum();
        assert!(bytes <= 4 << 20, "a page of {bytes} bytes");
        read.extend(page);
    }
    let expected: Vec<Option<Entry>> = all
        .iter()
        .cloned()
        .map(|entry| Some(entry).filter(|entry| entry.id != small[7]))
        .chain([None])
        .collect();
    assert!(read == expected, "{} of {} entries", read.len(), expected.len());

    // The same entries by a range from one end of the stream to the other, where the large ones come unexpectedly.
    let (mut read, mut pages) = (Vec::new(), inspector.entry_pages("s", (EntryId::MIN, EntryId::MAX), 2_000));
    while let Some(page) = pages.next(u64::MAX).await.unwrap() {
        let bytes: usize = page.iter().map(Entry::bytes).sum();
        assert!(bytes <= 4 << 20 && page.len() <= 2_000, "a page of {bytes} bytes, {} entries", page.len());
        read.extend(page);
    }
    assert!(read.iter().eq(all.iter().filter(|entry| entry.id != small[7])), "{} entries", read.len());

    let before = fixture.sent_bytes().await;
    let (mut read, mut pages) = (0, inspector.entries("s", &ids, Read::Fields(&["n", "payload", "n"])));
    while let Some(page) = pages.next().await.unwrap() {
        read += page.len();
        assert!(
            page.iter().flatten().all(|entry| entry.fields.len() == 1),
            "a long value is left where it is"
        );
    }
    let sent = fixture.sent_bytes().await - before;
    assert!(read == ids.len() && sent < 200 * KIB, "{sent} bytes for {read} entries");
}
