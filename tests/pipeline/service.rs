//! Tests of the notifications of a worker and a gate to their service manager, on a socket like that of systemd.

use std::{
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt, net::UnixDatagram},
    path::PathBuf,
    sync::{Arc, Mutex},
    thread,
};

use nix::sys::signal::Signal;
use tempfile::TempDir;
use tidegate_lab::Proxy;

use crate::{
    browser::get,
    fixture::{Fixture, Worker, WorkerPlan, until},
};

/// A service manager that keeps all notifications, line by line.
pub struct Manager {
    path: PathBuf,
    told: Arc<Mutex<Vec<String>>>,
    _folder: Option<TempDir>,
}

impl Manager {
    fn open() -> Self {
        let folder = TempDir::new().expect("a folder");
        let manager = Self::at(folder.path().join("notify"));
        Self { _folder: Some(folder), ..manager }
    }

    /// A manager with its socket at this path. Every user may write to the socket.
    pub fn at(path: PathBuf) -> Self {
        let socket = UnixDatagram::bind(&path).expect("a socket");
        fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("permissions");
        let told = Arc::new(Mutex::new(Vec::new()));
        let caller_log = Arc::clone(&told);
        thread::spawn(move || {
            let mut datagram = [0; 4096];
            while let Ok(length) = socket.recv(&mut datagram) {
                let text = std::str::from_utf8(&datagram[..length]).expect("text");
                caller_log.lock().expect("the caller_log").extend(text.lines().map(str::to_owned));
            }
        });
        Self { path, told, _folder: None }
    }

    fn told(&self) -> Vec<String> {
        self.told.lock().expect("the caller_log").clone()
    }

    fn count(&self, line: &str) -> usize {
        self.told().iter().filter(|told| *told == line).count()
    }

    pub async fn is_told(&self, line: &str) {
        until(&format!("{line:?} is told"), || async { self.count(line) > 0 }).await;
    }

    /// Waits until the newest status begins with this.
    async fn status_is(&self, beginning: &str) {
        let beginning = format!("STATUS={beginning}");
        until(&format!("{beginning:?} is told"), || async {
            let told = self.told();
            told.iter()
                .rfind(|line| line.starts_with("STATUS="))
                .is_some_and(|line| line.starts_with(&beginning))
        })
        .await;
    }

    /// Waits until the watchdog has been reset `times` more.
    pub async fn is_calmed(&self, times: usize) {
        let before = self.count("WATCHDOG=1");
        until("the watchdog is told", || async { self.count("WATCHDOG=1") >= before + times }).await;
    }
}

fn watched(fixture: &Fixture, manager: &Manager) -> WorkerPlan {
    let plan = fixture.worker("w").set("WORKER_LANES", 1).set("WORKER_BACKOFF_MAX_MS", 300);
    let plan = plan.set("MYSQL_STATEMENT_TIMEOUT_MS", 1_200);
    plan.variable("NOTIFY_SOCKET", manager.path.display()).variable("WATCHDOG_USEC", 400_000)
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_ready_when_it_takes_orders_and_not_before() {
    let (fixture, manager) = (Fixture::with_own_mysql().await, Manager::open());
    fixture.redis.kill9().expect("Redis is killed");
    fixture.mysql.kill9().expect("MySQL is killed");
    let worker = watched(&fixture, &manager).start();
    manager.status_is("waiting for Redis").await;
    manager.is_calmed(2).await;
    fixture.redis.restart().expect("Redis starts");
    manager.status_is("MySQL is unavailable").await;
    manager.is_calmed(2).await;
    assert_eq!(manager.count("READY=1"), 0, "{:#?}", manager.told());

    fixture.mysql.restart().expect("MySQL starts");
    manager.is_told("READY=1").await;
    manager.status_is("writing orders").await;
    fixture.load_scripts().await;
    fixture.open_sale().await;
    fixture.rush(1_000, 50).await;
    fixture.settled().await;

    worker.signal(Signal::SIGTSTP);
    manager.status_is("paused").await;
    manager.is_calmed(4).await;
    worker.signal(Signal::SIGCONT);
    manager.status_is("writing orders").await;

    fixture.redis.kill9().expect("Redis is killed");
    manager.status_is("Redis is unavailable").await;
    // This is longer than the timeout of the watchdog.
    manager.is_calmed(4).await;
    fixture.redis.restart().expect("Redis starts again");
    manager.status_is("writing orders").await;
    assert_eq!(manager.count("STOPPING=1"), 0);
    assert!(worker.stop().await.success());
    manager.is_told("STOPPING=1").await;
    assert_eq!(manager.count("READY=1"), 1, "{:#?}", manager.told());
}

/// The seconds for which the worker has been stuck, as its page reports them.
async fn stuck_for(worker: &Worker) -> f64 {
    let page = get(worker, "/livez").await;
    let seconds = page.text.split(" for ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
    seconds.unwrap_or_else(|| panic!("it is not stuck: {page:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_watchdog_bites_when_a_lane_is_stuck() {
    let (fixture, manager) = (Fixture::open().await, Manager::open());
    fixture.open_sale().await;
    // Redis receives the acknowledgement of the batch late, and the long timeout permits that.
    let proxy = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let settling = proxy.hold_when("XACK");
    let worker = watched(&fixture, &manager).set("ADMIN_STUCK_AFTER_MS", 2_500);
    let worker = worker
        .set("REDIS_COMMAND_TIMEOUT_MS", 30_000)
        .set("REDIS_URL", proxy.url_for(&fixture.redis))
        .start();
    manager.is_told("READY=1").await;
    fixture.plain_rush(1_000, 40).await;
    settling.reached().await.expect("a batch is in progress");
    worker
        .says("parts of the process are stuck, so the watchdog gets no signal any more stuck=\"lane w-0 has had the activity settling")
        .await;
    manager.status_is("stuck").await;
    let calmed = manager.count("WATCHDOG=1");
    // This is twice the time that systemd would wait: the worker checks twice in 400 ms.
    let begun = stuck_for(&worker).await;
    until("it is stuck for longer", || async { stuck_for(&worker).await > begun + 0.8 }).await;
    assert_eq!(manager.count("WATCHDOG=1"), calmed, "{:#?}", manager.told());
    settling.release();
    manager.is_calmed(2).await;
    manager.status_is("writing orders").await;
    fixture.settled().await;
    fixture.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn another_processs_watchdog_is_none_of_its_business_and_a_deaf_manager_stops_nothing() {
    let (fixture, manager) = (Fixture::open().await, Manager::open());
    let mut worker = watched(&fixture, &manager).variable("WATCHDOG_PID", 1).start();
    manager.is_told("READY=1").await;
    worker.signal(Signal::SIGTERM);
    manager.is_told("STOPPING=1").await;
    // The signal is sent once, because a second one would end the worker at once, with another exit code.
    assert!(worker.ended().await.success());
    assert_eq!(manager.count("WATCHDOG=1"), 0, "{:#?}", manager.told());

    let deaf = watched(&fixture, &manager).variable("NOTIFY_SOCKET", "/nowhere/notify").start();
    deaf.says("worker started").await;
    assert!(deaf.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_is_ready_when_it_admits_orders_and_not_before() {
    let (fixture, manager) = (Fixture::open().await, Manager::open());
    fixture.redis.kill9().expect("Redis is killed");
    let gate = watched(&fixture, &manager).set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
    manager.status_is("starting: waiting for Redis").await;
    manager.is_calmed(2).await;
    assert_eq!(manager.count("READY=1"), 0, "{:#?}", manager.told());
    fixture.redis.restart().expect("Redis starts");
    manager.is_told("READY=1").await;
    manager.status_is("admitting orders").await;
    fixture.redis.kill9().expect("Redis is killed");
    manager.status_is("Redis does not answer").await;
    // This is longer than the timeout of the watchdog.
    manager.is_calmed(4).await;
    fixture.redis.restart().expect("Redis starts again");
    manager.status_is("admitting orders").await;
    assert!(gate.stop().await.success());
    manager.is_told("STOPPING=1").await;
    assert_eq!(manager.count("READY=1"), 1, "{:#?}", manager.told());
}
