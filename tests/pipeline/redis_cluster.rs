//! Tests of a system with partitions on a Redis Cluster. Its nodes die, freeze, restart and move slots during the sale.

mod confirmed_orders;
pub mod fixture;
mod results;

use std::{
    collections::BTreeSet,
    process::Stdio,
    time::{Duration, Instant},
};

use rand::RngExt;
use tidegate_lab::{RedisCluster, Seeds};
use tokio::time::sleep;

use crate::fixture::{invariants::none_is, until_within};
use crate::program::Program;
use fixture::{AT_WORK_WITHIN, ClusterFixture, TAGS};

const WHOLE_WITHIN: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_master_is_followed_to_its_replica_and_one_command_repairs_what_that_lacked() {
    let fixture = ClusterFixture::open(RedisCluster::start().expect("a cluster")).await;
    let workers = [fixture.worker("a").start(), fixture.worker("b").start()];
    let sale = fixture.sell();
    fixture.sells_on(1..=12, Duration::from_secs(60)).await;

    let master = fixture.cluster.master_of("10").expect("a master");
    let others: Vec<i64> = (1..=12).filter(|id| !fixture.vouchers_of(master).contains(id)).collect();
    fixture.begin_risk().await;
    master.server().kill9().expect("killed");
    // The other partitions do not wait for the partitions that are down.
    fixture.sells_on(others, Duration::from_secs(1)).await;
    fixture.cluster.wait_whole(WHOLE_WITHIN).expect("the replica takes over");
    fixture.sells_on(1..=12, AT_WORK_WITHIN).await;
    master.server().restart().expect("back");
    fixture.cluster.wait_whole(WHOLE_WITHIN).expect("the old master is a replica");
    fixture.end_risk();
    fixture.sells_on(1..=12, AT_WORK_WITHIN).await;

    sale.end().await;
    fixture.adds_up().await;
    for worker in workers {
        assert!(worker.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "half a minute; run `just clusters`"]
async fn a_master_that_only_clients_reach_is_left_and_what_it_gave_alone_is_found() {
    let cluster = RedisCluster::start().expect("a cluster");
    let network = cluster.networked().await.expect("a network");
    let fixture = ClusterFixture::open(cluster).await;
    let workers = [fixture.worker("a").start(), fixture.worker("b").start()];
    let sale = fixture.sell();
    fixture.sells_on(1..=12, Duration::from_secs(60)).await;
    let master = fixture.cluster.master_of("10").expect("a master");
    let others: Vec<i64> = (1..=12).filter(|id| !fixture.vouchers_of(master).contains(id)).collect();

    fixture.begin_risk().await;
    // The master keeps admitting orders until it notices that it is alone, and its workers keep writing. The other
    // nodes never receive what they acknowledge there.
    network.part(&fixture.cluster, master);
    assert!(fixture.admit(12).await.is_some(), "it admits, alone");
    fixture.sells_on(others, Duration::from_secs(1)).await;
    network.wait_refusing(master, WHOLE_WITHIN).await.expect("it notices");
    until_within(WHOLE_WITHIN, "another one is the master", || async {
        fixture.cluster.master_of("10").is_ok_and(|new| new.id() != master.id())
    })
    .await;
    fixture.sells_on(1..=12, AT_WORK_WITHIN).await;

    network.heal();
    fixture.cluster.wait_whole(WHOLE_WITHIN).expect("it is a replica");
    fixture.end_risk();
    fixture.sells_on(1..=12, AT_WORK_WITHIN).await;
    sale.end().await;
    fixture.adds_up().await;
    for worker in workers {
        assert!(worker.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "half a minute; run `just clusters`"]
async fn a_master_that_is_gone_for_good_stops_its_own_partitions_and_the_verdict_is_unknown() {
    let cluster = RedisCluster::options().replicas(0).start().expect("a cluster");
    let fixture = ClusterFixture::open(cluster).await;
    let worker = fixture.worker("a").start();
    fixture.sells_on(1..=12, Duration::from_secs(60)).await;
    let master = fixture.cluster.master_of("10").expect("a master");
    let (sick, healthy): (Vec<i64>, Vec<i64>) =
        (1..=12).partition(|id| fixture.vouchers_of(master).contains(id));
    assert_eq!((sick.len(), healthy.len()), (4, 8));

    master.server().kill9().expect("killed");
    for _ in 0..5 {
        fixture.sells_on(healthy.clone(), Duration::from_secs(1)).await;
    }
    let program = fixture.program();
    let timed = |command: &str, code: i32| {
        let began = Instant::now();
        (program.run(command).expect(code), began.elapsed())
    };
    let (_, one_away) = timed("audit --partition 10", 12);
    let (_, one_there) = timed(&format!("audit --partition {}", ClusterFixture::tag_of(healthy[0])), 0);
    let (audit, all) = timed("audit", 12);
    assert!(
        all < one_away * 2 + one_there * 16,
        "many that are away cost no more time than one: {all:?}, {one_away:?}, {one_there:?}"
    );
    let verdict = audit.stdout.split("All 12 partitions: ").nth(1).expect("a verdict of all");
    assert!(verdict.starts_with("UNKNOWN. ") && verdict.contains("{10}"), "{audit:#?}");
    let (status, _) = timed("status", 12);
    assert!(status.stdout.contains("UNKNOWN: some values of "), "{status:#?}");
    assert!(audit.stderr.contains("UNKNOWN: 4 of 12 partitions gave no answer: {10}"), "{audit:#?}");
    assert_eq!(audit.stdout.matches("It holds").count(), 8, "of the others: {audit:#?}");
    // A worker that starts now serves the partitions that are up.
    let second = fixture.worker("b").start();
    assert!(worker.stop().await.success());
    fixture.sells_on(healthy.clone(), Duration::from_secs(10)).await;

    master.server().restart().expect("back");
    fixture.sells_on(1..=12, AT_WORK_WITHIN).await;
    fixture.is_quiet("every entry is handled").await;
    none_is(&fixture.mismatches(&TAGS).await);
    assert!(second.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_moves_under_load_without_a_pause_and_nothing_is_lost() {
    let cluster = RedisCluster::options().replicas(0).start().expect("a cluster");
    let fixture = ClusterFixture::open(cluster).await;
    let worker = fixture.worker("a").start();
    let sale = fixture.sell();
    fixture.sells_on(1..=12, Duration::from_secs(60)).await;
    for (tag, to) in [("10", "2"), ("2", "0"), ("10", "0")] {
        let moving = fixture
            .cluster
            .begin_move(tag, fixture.cluster.master_of(to).expect("a master"))
            .expect("moving");
        // The keys move one by one, so that every state in between occurs.
        while moving.move_keys(1).expect("a key moves") > 0 {
            sleep(Duration::from_millis(20)).await;
        }
        moving.finish().expect("moved");
        fixture.sells_on(1..=12, AT_WORK_WITHIN).await;
    }
    sale.end().await;
    fixture.adds_up().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_move_stands_still_orders_are_written_without_user_locks() {
    let cluster = RedisCluster::options().replicas(0).start().expect("a cluster");
    let fixture = ClusterFixture::open(cluster).await;
    let worker = fixture.worker("a").start();
    fixture.sells_on([12], Duration::from_secs(60)).await;
    let (from, to) = (
        fixture.cluster.master_of("10").expect("a master"),
        fixture.cluster.master_of("2").expect("a master"),
    );
    let moving = fixture.cluster.begin_move("10", to).expect("moving");
    // Locks of new users can be created on neither node: the old node creates no keys any more, and the new one not
    // yet.
    for order in 9_001..=9_005_i64 {
        let id = order.to_string();
        let add = ["XADD", "{10}:stream.orders", "*", "id", &id, "userId", &id, "voucherId", "12"];
        from.says(&add).expect("added");
        until_within(AT_WORK_WITHIN, "it is written", || fixture.has(order)).await;
    }
    while moving.move_keys(100).expect("keys move") > 0 {}
    moving.finish().expect("moved");
    fixture.sells_on([12], AT_WORK_WITHIN).await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "three quarters of a minute; run `just clusters`"]
async fn a_slot_with_a_large_journal_moves_in_one_piece_where_the_server_can() {
    let cluster = RedisCluster::options().replicas(0).start().expect("a cluster");
    let fixture = ClusterFixture::open(cluster).await;
    let worker = fixture.worker("a").start();
    fixture.sells_on([12], Duration::from_secs(60)).await;
    let lua = "for at = 1, 30000 do redis.call('HSET', KEYS[1], ARGV[1] .. at, string.rep('y', 100)) end";
    let from = fixture.cluster.master_of("10").expect("a master");
    for part in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
        from.says(&["EVAL", lua, "1", "{10}:seckill:journal:1000000", part]).expect("a large key");
    }
    let sale = fixture.sell();
    for to in ["2", "0", "2"] {
        let to = fixture.cluster.master_of(to).expect("a master");
        let moved = fixture.cluster.move_whole("10", to, WHOLE_WITHIN).expect("it moves");
        let Some(took) = moved else { break };
        eprintln!("a slot with a journal of 300,000 orders moved in {took:?}");
        fixture.sells_on(1..=12, AT_WORK_WITHIN).await;
    }
    sale.end().await;
    let journal = ["DEL", "{10}:seckill:journal:1000000"];
    fixture.cluster.master_of("10").expect("a master").says(&journal).expect("removed");
    fixture.adds_up().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_with_another_list_of_partitions_refuses_to_begin() {
    let cluster = RedisCluster::options().replicas(0).start().expect("a cluster");
    let fixture = ClusterFixture::open(cluster).await;
    let worker = fixture.worker("a").start();
    fixture.sells_on([12], Duration::from_secs(60)).await;
    let other = TAGS.map(str::to_owned).into_iter().rev().collect::<Vec<_>>().join(",");
    // A flag with the right list takes precedence over the variable.
    let heeded = fixture.program().run_with(&["status"], &[("TIDEGATE_STREAM_PARTITIONS", &other)]);
    assert_eq!(heeded.code, 0, "{heeded:#?}");
    let mut second = fixture.worker("b").set("STREAM_PARTITIONS", other).start();
    assert_eq!(second.ended().await.code(), Some(2));
    assert!(second.log().contains("this process would use wrong partitions"), "{}", second.log());
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_what_a_failover_or_a_slot_that_moves_would_break() {
    let cluster = RedisCluster::options().replicas(0).start().expect("a cluster");
    let fixture = ClusterFixture::open(cluster).await;
    let program = fixture.program();
    let master = fixture.cluster.master_of("10").expect("a master");
    let doctor = || program.run("doctor --partition 10");
    let well = doctor().expect(1);
    let is_alone = well.stdout.contains("no worker is alive") && well.stdout.contains("1 error, ");
    assert!(is_alone, "a sale without a worker is the only error: {well:#?}");
    assert!(well.stdout.contains("cluster-require-full-coverage is no"), "{well:#?}");
    assert!(well.stdout.contains("this Redis master has no replica"), "{well:#?}");

    master.says(&["CONFIG", "SET", "cluster-require-full-coverage", "yes"]).expect("set");
    let found = doctor().expect(1);
    assert!(found.stdout.contains("while one master is down, no partition sells"), "{found:#?}");
    master.says(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).expect("set");

    if !well.stdout.contains("the server moves whole slots") {
        // 100,001 entries are added in parts, so that even a slow machine answers each call in time.
        let lua = "for at = 1, 9091 do redis.call('XADD', KEYS[1], '*', 'n', at) end";
        for _ in 0..11 {
            master.says(&["EVAL", lua, "1", "{10}:stream.orders"]).expect("a long stream");
        }
        let found = doctor();
        assert!(found.stdout.contains("the stream {10}:stream.orders (100001 entries)"), "{found:#?}");
    }
    let to = fixture.cluster.master_of("2").expect("a master");
    let _moving = fixture.cluster.begin_move("10", to).expect("moving");
    let found = doctor();
    assert!(found.stdout.contains("is being moved to or from another node"), "{found:#?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "half a minute; run `just clusters`"]
async fn a_frozen_master_is_replaced_and_what_it_gives_when_it_wakes_is_refused() {
    let fixture = ClusterFixture::open(RedisCluster::start().expect("a cluster")).await;
    let worker = fixture.worker("a").start();
    let sale = fixture.sell();
    fixture.sells_on(1..=12, Duration::from_secs(60)).await;
    let master = fixture.cluster.master_of("3").expect("a master");
    fixture.begin_risk().await;
    master.server().stop().expect("frozen");
    until_within(WHOLE_WITHIN, "another one is the master", || async {
        fixture.cluster.master_of("3").is_ok_and(|new| new.id() != master.id())
    })
    .await;
    fixture.sells_on(1..=12, AT_WORK_WITHIN).await;
    master.server().cont().expect("awake");
    fixture.cluster.wait_whole(WHOLE_WITHIN).expect("it is a replica");
    fixture.end_risk();
    fixture.sells_on(1..=12, AT_WORK_WITHIN).await;
    sale.end().await;
    fixture.adds_up().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "half a minute; run `just clusters`"]
async fn all_nodes_restart_and_a_replica_dies_and_workers_go_on_by_themselves() {
    let fixture = ClusterFixture::open(RedisCluster::start().expect("a cluster")).await;
    let worker = fixture.worker("a").start();
    let sale = fixture.sell();
    fixture.sells_on(1..=12, Duration::from_secs(60)).await;
    let replica = &fixture.cluster.nodes()[3];
    replica.server().kill9().expect("killed");
    fixture.sells_on(1..=12, Duration::from_secs(1)).await;
    replica.server().restart().expect("back");
    fixture.cluster.wait_whole(WHOLE_WITHIN).expect("it follows");
    // The replica that comes back first may be promoted.
    fixture.begin_risk().await;
    for node in fixture.cluster.nodes() {
        node.server().kill9().expect("killed");
    }
    for node in fixture.cluster.nodes() {
        node.server().restart().expect("back");
    }
    fixture.cluster.wait_whole(WHOLE_WITHIN).expect("whole again");
    fixture.end_risk();
    fixture.sells_on(1..=12, AT_WORK_WITHIN).await;
    sale.end().await;
    fixture.adds_up().await;
    assert!(worker.stop().await.success());
}

/// Checks that exactly these users have one live order each, of voucher user / 100, and that both stores agree under
/// these tags.
async fn holds_what_was_bought(fixture: &ClusterFixture, tags: &str, bought: &BTreeSet<i64>) {
    let live = "SELECT CAST(user_id AS SIGNED), CAST(voucher_id AS SIGNED) FROM tb_voucher_order \
                WHERE slot IS NOT NULL ORDER BY user_id";
    let live: Vec<(i64, i64)> = sqlx::query_as(live).fetch_all(&fixture.pool).await.expect("MySQL answers");
    assert_eq!(live, bought.iter().map(|user| (*user, user / 100)).collect::<Vec<_>>());
    let tags: Vec<&str> = tags.split(',').collect();
    none_is(&fixture.mismatches(&tags).await);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "half a minute; run `just clusters`"]
async fn a_master_that_dies_while_the_list_of_partitions_changes_costs_no_sale() {
    let fixture = ClusterFixture::open(RedisCluster::start().expect("a cluster")).await;
    let program = |list: &str| {
        let partitions = format!("stream.partitions={list}");
        let (redis, mysql) = (fixture.cluster.url(), fixture.mysql.url());
        Program::with_flags(&["--redis-url", &redis, "--mysql-url", &mysql, "--set", &partitions])
    };
    let first = TAGS.join(",");
    let (mut killed_in_the_middle, mut chance) = (0, Seeds::chosen(1).chance());
    let mut all_bought = BTreeSet::new();
    for (next, (from, to)) in (1..).zip([(first.as_str(), "0,3,1"), ("0,3,1", "43,0,2,10,11")]) {
        let worker = fixture.worker("w").set("STREAM_PARTITIONS", from).start();
        let bought: Vec<i64> = (1..=12).map(|voucher| 100 * voucher + next).collect();
        for user in &bought {
            program(from).run(&format!("admit --voucher {} --user {user}", user / 100)).expect(0);
        }
        // On a fast machine, a change takes only a short time.
        for (tag, after_ms) in [("10", 20..400), ("3", 300..1_500)] {
            let mut change = program(from)
                .command(&["partitions", "change", "--to", to, "--yes"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("it starts");
            sleep(Duration::from_millis(chance.random_range(after_ms))).await;
            let master = fixture.cluster.master_of(tag).expect("a master");
            killed_in_the_middle += i32::from(change.try_wait().expect("our child").is_none());
            master.server().kill9().expect("killed");
            until_within(WHOLE_WITHIN, "another one is the master", || async {
                fixture.cluster.master_of(tag).is_ok_and(|new| new.id() != master.id())
            })
            .await;
            master.server().restart().expect("back");
            fixture.cluster.wait_whole(WHOLE_WITHIN).expect("the old master is a replica");
            // The command has given up, or has continued by itself.
            change.wait().expect("it ends");
        }
        let changed = program(from).run(&format!("partitions change --to {to} --yes"));
        assert_eq!(changed.code, 0, "{changed:#?}");
        drop(worker);
        all_bought.extend(&bought);
        holds_what_was_bought(&fixture, to, &all_bought).await;
        for user in bought {
            let again = program(to).run(&format!("admit --voucher {} --user {user}", user / 100)).expect(1);
            assert!(again.stdout.contains("already has an order"), "{again:#?}");
        }
    }
    assert!(killed_in_the_middle > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn sales_move_between_masters_when_the_list_of_partitions_changes() {
    let cluster = RedisCluster::options().replicas(0).start().expect("a cluster");
    let fixture = ClusterFixture::open(cluster).await;
    let program = |list: &str| {
        let partitions = format!("stream.partitions={list}");
        let (redis, mysql) = (fixture.cluster.url(), fixture.mysql.url());
        Program::with_flags(&["--redis-url", &redis, "--mysql-url", &mysql, "--set", &partitions])
    };
    let first = TAGS.join(",");
    let mut all_bought = BTreeSet::new();
    for (next, (from, to)) in (1..).zip([(first.as_str(), "0,3,1"), ("0,3,1", "43,0,2,10,11")]) {
        let mut worker = fixture.worker("w").set("STREAM_PARTITIONS", from).start();
        let bought: Vec<i64> = (1..=12).map(|voucher| 100 * voucher + next).collect();
        for user in &bought {
            program(from).run(&format!("admit --voucher {} --user {user}", user / 100)).expect(0);
        }
        let line = format!("partitions change --to {to} --yes");
        program(from).run(&line).expect(0);
        assert_eq!(worker.ended().await.code(), Some(2), "{}", worker.log());
        program(from).run("admit --voucher 5 --user 77").expect(2);
        all_bought.extend(&bought);
        holds_what_was_bought(&fixture, to, &all_bought).await;
        for user in bought {
            let again = program(to).run(&format!("admit --voucher {} --user {user}", user / 100)).expect(1);
            assert!(again.stdout.contains("already has an order"), "{again:#?}");
        }
    }
}
