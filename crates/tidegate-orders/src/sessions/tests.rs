use sqlx::mysql::MySqlConnectOptions;
use tidegate_lab::MysqlServer;

use super::*;

fn sessions(hosts: &[MySqlConnectOptions], acquire_timeout: Duration) -> Sessions {
    Sessions::new(SessionSettings {
        hosts: hosts.to_vec(),
        acquire_timeout,
        lock_wait_timeout_s: 5,
        silence: Duration::from_secs(30),
    })
}

fn server(port: &str) -> NodeStatus {
    NodeStatus::of_facts([("hostname", "db"), ("port", port)])
}

#[test]
fn a_session_that_was_on_its_way_to_a_host_when_that_was_left_is_not_used() {
    let hosts = [3306, 3307].map(|port| MySqlConnectOptions::new().port(port));
    let patient = sessions(&hosts, Duration::from_secs(60));
    let before = Instant::now();
    assert!(patient.shared.is_here(Duration::ZERO, before) && !patient.shared.is_late(&server("3306")));
    patient.switch_to(1, &server("3307"));
    assert!(patient.shared.is_late(&server("3306")), "its connecting began before");
    assert!(!patient.shared.is_late(&server("3307")));
    assert!(!patient.shared.is_here(Duration::ZERO, before + AGE_LAG), "looked at before, born after");
    assert!(
        patient.shared.is_here(Duration::ZERO, Instant::now() + 2 * AGE_LAG),
        "born after the move for certain"
    );

    let hasty = sessions(&hosts, Duration::ZERO);
    hasty.switch_to(1, &server("3307"));
    std::thread::sleep(Duration::from_millis(1));
    assert!(!hasty.shared.is_late(&server("3308")), "nothing is on its way for so long");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_has_ended_a_kept_connection_is_asked_through_a_new_one_and_is_not_away() {
    let server = tokio::task::spawn_blocking(MysqlServer::start).await.unwrap().unwrap();
    let host: MySqlConnectOptions = server.url().parse().unwrap();
    let shared = sessions(std::slice::from_ref(&host), Duration::from_secs(20)).shared;
    let id = async |connection: &mut Option<MySqlConnection>| -> u64 {
        let connection = connection.as_mut().expect("a connection is kept");
        sqlx::query_scalar("SELECT CONNECTION_ID()").fetch_one(connection).await.unwrap()
    };
    let mut kept = None;
    shared.ask(0, &mut kept).await.unwrap();
    let first = id(&mut kept).await;
    shared.ask(0, &mut kept).await.unwrap();
    assert_eq!(id(&mut kept).await, first, "it is kept for as long as it lives");

    let mut operator = host.connect().await.unwrap();
    operator.execute(AssertSqlSafe(format!("KILL CONNECTION {first}"))).await.unwrap();
    shared.ask(0, &mut kept).await.expect("the server is well");
    assert_ne!(id(&mut kept).await, first);
    drop(server);
    shared.ask(0, &mut kept).await.expect_err("now it is away");
}
