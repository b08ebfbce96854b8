//! Tests of the lab's Redis Cluster.

use std::time::{Duration, Instant};

use tidegate_lab::{RedisCluster, RedisNode};

const SOON: Duration = Duration::from_secs(30);
const TAGS: [&str; 12] = ["10", "3", "43", "11", "2", "42", "12", "1", "41", "13", "0", "40"];

#[test]
fn it_forms_and_replaces_a_master_that_is_killed_and_takes_it_back_as_a_replica() {
    let cluster = RedisCluster::start().unwrap();
    for master in &cluster.nodes()[..3] {
        let own = TAGS.iter().filter(|tag| cluster.master_of(tag).unwrap().id() == master.id());
        assert_eq!(own.count(), 4, "twelve partitions spread evenly over three masters");
    }
    let master = cluster.master_of("10").unwrap();
    master.says(&["SET", "{10}:kept", "7"]).unwrap();
    in_step(master);
    let [replica] = cluster.replicas_of(master)[..] else { panic!("one replica") };

    master.server().kill9().unwrap();
    cluster.wait_whole(SOON).unwrap();
    let promoted = cluster.master_of("10").unwrap();
    assert_eq!(promoted.id(), replica.id());
    assert_eq!(promoted.says(&["GET", "{10}:kept"]).unwrap(), "7");

    master.server().restart().unwrap();
    until(|| cluster.replicas_of(promoted).len() == 1);
    cluster.wait_whole(SOON).unwrap();
}

#[test]
fn a_slot_moves_with_its_stream_its_group_and_what_is_pending() {
    let cluster = RedisCluster::options().replicas(0).start().unwrap();
    let from = cluster.master_of("10").unwrap();
    from.says(&["XGROUP", "CREATE", "{10}:s", "g", "0", "MKSTREAM"]).unwrap();
    for id in ["1-1", "2-1", "3-1"] {
        from.says(&["XADD", "{10}:s", id, "field", "value"]).unwrap();
    }
    from.says(&["XREADGROUP", "GROUP", "g", "c", "COUNT", "2", "STREAMS", "{10}:s", ">"]).unwrap();
    let before = from.says(&["XPENDING", "{10}:s", "g"]).unwrap();
    let to = cluster.master_of("2").unwrap();

    let moving = cluster.begin_move("10", to).unwrap();
    assert_eq!(moving.move_keys(100).unwrap(), 1);
    let asked = from.says(&["XLEN", "{10}:s"]).unwrap_err();
    assert!(format!("{asked:#}").contains("ASK "), "{asked:#}");
    moving.finish().unwrap();
    assert_eq!(cluster.master_of("10").unwrap().id(), to.id());
    assert_eq!(to.says(&["XPENDING", "{10}:s", "g"]).unwrap(), before);
    cluster.wait_whole(SOON).unwrap();
}

#[test]
fn a_master_that_is_frozen_is_replaced_and_comes_back_as_a_replica() {
    let cluster = RedisCluster::start().unwrap();
    let master = cluster.master_of("3").unwrap();
    master.server().stop().unwrap();
    until(|| cluster.master_of("3").is_ok_and(|now| now.id() != master.id()));
    master.server().cont().unwrap();
    until(|| master.master_id().is_some());
    cluster.wait_whole(SOON).unwrap();
}

/// Waits until the master's replica has all writes.
fn in_step(master: &RedisNode) {
    // On a new connection, WAIT would return at once, because that connection has written nothing.
    let number = |name: &str| -> Option<u64> {
        let info = master.says(&["INFO", "replication"]).unwrap();
        let (_, rest) = info.split_once(name)?;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    let written = number("master_repl_offset:").expect("a number");
    until(|| number(",offset=").is_some_and(|offset| offset >= written));
}

fn until(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < SOON, "in time");
        std::thread::sleep(Duration::from_millis(50));
    }
}
