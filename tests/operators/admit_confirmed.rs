//! Tests of `tidegate admit` with `gate.wait_replicas`, and of the checks of `tidegate doctor` for it.

use fred::{
    interfaces::ClientLike,
    types::{CustomCommand, Value},
};
use tidegate_lab::RedisServer;

use crate::{
    database::migrated_mysql,
    fixture::{connect, until},
    program::Program,
};

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_no_replica_has_is_unsure_with_a_code_of_its_own_until_it_is_asked_for_again() {
    let master = RedisServer::start().expect("a Redis");
    let program = Program::with_flags(&["--redis-url", &master.url(), "--mysql-url", migrated_mysql().await]);
    program.run("voucher load --voucher 7 --stock 10").expect(0);
    let wait = "--set gate.wait_replicas=1 --set gate.wait_ms=100";

    let unsure = program.run(&format!("admit --voucher 7 --user 1 --order 5 {wait} --json")).expect(12);
    assert_eq!(unsure.json()["outcome"], "unconfirmed");
    assert!(
        unsure
            .stderr
            .contains("0 of 1 replicas had the data within 100 ms. Run the command again with --order 5"),
        "{unsure:?}"
    );
    let again = program.run(&format!("admit --voucher 7 --user 1 --order 5 {wait}")).expect(12);
    assert!(again.stdout.starts_with("order 5: unsure"), "{again:?}");
    program.run(&format!("admit --voucher 7 --user 1 --order 6 {wait}")).expect(1);
    let doctor = program.run(&format!("doctor {wait}"));
    assert!(
        doctor.stdout.contains("gate.wait_replicas is 1, but this Redis master has 0 replicas"),
        "{doctor:?}"
    );

    let port = master.port().to_string();
    let replica =
        RedisServer::options().args(["--replicaof", "127.0.0.1", &port]).start().expect("a replica");
    let copy = connect(&replica.url()).await;
    until("the replica has the order", || async {
        use fred::interfaces::HashesInterface;
        copy.hexists("seckill:journal:7", "5").await.unwrap_or(false)
    })
    .await;
    let patient = "--set gate.wait_replicas=1 --set gate.wait_ms=60000";
    let sure = program.run(&format!("admit --voucher 7 --user 1 --order 5 {patient}")).expect(0);
    assert!(sure.stdout.contains("order 5: admitted before"), "{sure:?}");
    let doctor = program.run(&format!("doctor {patient}"));
    assert!(doctor.stdout.contains("gate.wait_replicas is 1, and 1 attached"), "{doctor:?}");

    // With one replica, the usual advice has a price.
    let cost = "a promoted replica has no replica of its own, so it refuses new orders and locks until the old master is back";
    assert!(doctor.stdout.contains(cost), "{doctor:?}");
    let admin = connect(&master.url()).await;
    let config = CustomCommand::new_static("CONFIG", None, false);
    let set = vec!["SET", "min-replicas-to-write", "1"];
    let _: Value = admin.custom(config, set).await.expect("it is set");
    let doctor = program.run("doctor");
    assert!(
        doctor.stdout.contains("min-replicas-to-write is 1, with 1 replica attached; if one replica is lost"),
        "{doctor:?}"
    );
    replica.kill9().expect("it dies");
    until("the doctor says that all writes are refused", || async {
        let doctor = program.run("doctor");
        doctor.code == 1 && doctor.stdout.contains("has 0 replicas: this master refuses all writes")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_waited_for_where_the_server_can_and_doctor_says_where_it_cannot() {
    let server = RedisServer::start().expect("a Redis");
    let program = Program::with_flags(&["--redis-url", &server.url(), "--mysql-url", migrated_mysql().await]);
    program.run("voucher load --voucher 7 --stock 10").expect(0);
    let file = "--set gate.wait_replicas=1 --set gate.wait_for=file --set gate.wait_ms=100";
    let unsure = program.run(&format!("admit --voucher 7 --user 1 {file}")).expect(12);
    let doctor = program.run(&format!("doctor {file}"));
    let cannot = unsure.stderr.contains("unknown command");
    assert_eq!(
        doctor.stdout.contains("this version of Redis has no command WAITAOF"),
        cannot,
        "{unsure:?} {doctor:?}"
    );
}
