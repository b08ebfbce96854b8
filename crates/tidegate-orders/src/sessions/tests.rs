use super::*;

fn sessions(hosts: &[MySqlConnectOptions], acquire_timeout: Duration) -> Sessions {
    Sessions::new(SessionSettings {
        hosts: hosts.to_vec(),
        acquire_timeout,
        lock_wait_timeout_s: 5,
        silence: Duration::from_secs(30),
    })
}

fn server(port: &str) -> Standing {
    Standing::of_facts([("hostname", "db"), ("port", port)])
}

#[test]
fn a_session_that_was_on_its_way_to_a_host_when_that_was_left_is_not_used() {
    let hosts = [3306, 3307].map(|port| MySqlConnectOptions::new().port(port));
    let patient = sessions(&hosts, Duration::from_secs(60));
    assert!(patient.shared.is_here(Duration::ZERO) && !patient.shared.is_late(&server("3306")));
    patient.go_to(1, &server("3307"));
    assert!(patient.shared.is_late(&server("3306")), "its connecting began before");
    assert!(!patient.shared.is_late(&server("3307")));
    assert!(!patient.shared.is_here(Duration::ZERO), "looked at before, born after");

    let hasty = sessions(&hosts, Duration::ZERO);
    hasty.go_to(1, &server("3307"));
    std::thread::sleep(Duration::from_millis(1));
    assert!(!hasty.shared.is_late(&server("3308")), "nothing is on its way for so long");
}
