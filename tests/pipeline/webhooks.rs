//! Tests of webhooks: real workers send results to real HTTP servers.

mod receiver;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader},
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use fred::{interfaces::StreamsInterface, types::Value};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value as Json, json};
use tidegate_lab::Certificates;
use tokio::{sync::Semaphore, task::block_in_place};

use self::receiver::{Receiver, Reply};
use crate::{
    browser::get,
    fixture::{Fixture, Worker, WorkerPlan, until, webhooks::WEBHOOK_SECRET as SECRET},
    program::Program,
};

const RESULTS: &str = "stream.orders.results";
const NEW_SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

impl Fixture {
    /// A worker that sends to these webhooks.
    fn sending(&self, name: &str, webhooks: &[(&str, &str)]) -> WorkerPlan {
        self.worker(name).set("WEBHOOKS", self.webhooks(webhooks)).set("RESULTS_PUBLISH", "all")
    }

    /// Publishes results of the orders, each with the state `confirmed`.
    async fn publish(&self, orders: impl IntoIterator<Item = i64>) {
        for order in orders {
            self.publish_result(order, "confirmed", "*").await;
        }
    }

    async fn publish_result(&self, order: i64, state: &str, id: &str) {
        let order = order.to_string();
        let fields = [("orderId", &*order), ("userId", "5"), ("voucherId", "7"), ("quantity", "1")];
        let more = [("state", state), ("kind", "state"), ("step", "0"), ("entry", "8-1"), ("at", "9")];
        let fields: Vec<_> = fields.into_iter().chain(more).collect();
        let _: String = self.client.xadd(RESULTS, false, None, id, fields).await.expect("it is published");
    }

    /// Waits until a worker has created the consumer groups of these webhooks.
    async fn has_groups(&self, names: &[&str]) {
        let wanted: BTreeSet<String> = names.iter().map(|name| format!("webhook:{name}")).collect();
        until("the webhooks have consumer groups", || async {
            let groups: Vec<BTreeMap<String, Value>> =
                self.client.xinfo_groups(RESULTS).await.unwrap_or_default();
            let names = groups.iter().filter_map(|group| group["name"].as_string());
            wanted.is_subset(&names.collect())
        })
        .await;
    }

    /// The webhooks, as `tidegate webhooks --json` shows them.
    fn shown(&self, webhooks: &[(&str, &str)]) -> Vec<Json> {
        let run = self.webhook_command("webhooks --json", webhooks).expect(0);
        let shown: Json = serde_json::from_str(&run.stdout).expect("JSON");
        shown.as_array().expect("a list").clone()
    }

    fn webhook_command(&self, line: &str, webhooks: &[(&str, &str)]) -> crate::program::Run {
        let program = Program::with_variables(&self.redis.url(), &self.mysql.url());
        let (list, words) = (self.webhooks(webhooks), line.split(' ').collect::<Vec<_>>());
        let variables = [("TIDEGATE_WEBHOOKS", &*list), ("TIDEGATE_RESULTS_PUBLISH", "all")];
        program.run_with(&words, &variables)
    }

    async fn unsent_by(&self, webhook: &str) -> u64 {
        let reply = self.redis_says(&["XPENDING", RESULTS, &format!("webhook:{webhook}")]).await;
        reply.into_array().first().and_then(Value::as_u64).expect("a number")
    }
}

async fn has(receiver: &Receiver, orders: impl IntoIterator<Item = i64>) {
    let wanted: BTreeSet<i64> = orders.into_iter().collect();
    until("the receiver has all results", || async {
        wanted.is_subset(&receiver.orders().into_iter().collect())
    })
    .await;
}

async fn has_stopped_sending(worker: &Worker) {
    until("the sender has stopped", || async {
        get(worker, "/metrics").await.samples().get("tidegate_webhook_sender{webhook=\"shop\"}") == Some(&0.0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn results_of_orders_come_in_stream_order_and_each_is_signed() {
    let (fixture, receiver) = (Fixture::open().await, Receiver::start().await);
    fixture.load(1, 100).await;
    let worker = fixture.sending("w", &[("shop", &receiver.url())]).start();
    fixture.has_groups(&["shop"]).await;
    for order in 1..=60 {
        fixture.admit(order, order, 1, 1).await;
    }
    has(&receiver, 1..=60).await;
    let published: Vec<(String, BTreeMap<String, String>)> =
        fixture.client.xrange(RESULTS, "-", "+", None).await.expect("the results");
    let received = receiver.received();
    for ((_, fields), received) in published.iter().zip(&received) {
        let json = received.json();
        for (name, value) in fields {
            let sent = &json[name];
            assert_eq!(sent.as_str().map_or_else(|| sent.to_string(), str::to_owned), *value, "{name}");
        }
        assert_eq!(json.as_object().expect("an object").len(), fields.len());
        assert_eq!(received.id(), format!("{}_0_confirmed_entry-{}", fields["orderId"], fields["entry"]));
        assert!(received.is_signed_by(SECRET) && !received.is_signed_by(NEW_SECRET));
        assert_eq!(received.headers["content-type"], "application/json");
    }
    assert_eq!((received.len(), receiver.connections()), (60, 1), "each came once, over one connection");

    // While the secret is replaced, receivers with either secret accept the signature.
    std::fs::write(fixture.webhook_secret_file(), format!("{NEW_SECRET}\n{SECRET}\n"))
        .expect("it is written");
    worker.says("read the secrets of the webhook again").await;
    fixture.publish([61]).await;
    has(&receiver, [61]).await;
    let last = receiver.received().pop().expect("a result");
    assert!(last.is_signed_by(SECRET) && last.is_signed_by(NEW_SECRET));
    assert!(!worker.log().contains("MfKQ9r8G"), "the log shows no secret");
    until("all is acknowledged", || async { fixture.unsent_by("shop").await == 0 }).await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_is_not_accepted_comes_again_with_the_same_id_and_delays_no_other() {
    let (fixture, receiver) = (Fixture::open().await, Receiver::start().await);
    let mut attempts = 0;
    receiver.answers(move |received| {
        attempts += usize::from(received.order() == 2);
        Reply::Status(if received.order() == 2 && attempts < 3 { 500 } else { 200 })
    });
    let webhooks = [("shop", &*receiver.url())];
    let worker = fixture.sending("w", &webhooks).start();
    fixture.has_groups(&["shop"]).await;
    fixture.publish(1..=5).await;
    until("it is accepted", || async { receiver.orders().iter().filter(|order| **order == 2).count() == 3 })
        .await;
    let mut orders = receiver.orders();
    orders[2..5].sort_unstable();
    assert_eq!(orders, [1, 2, 3, 4, 5, 2, 2], "those after the first failure come in any order");
    let ids: BTreeSet<String> =
        receiver.received().iter().filter(|it| it.order() == 2).map(|it| it.id()).collect();
    assert_eq!(ids.len(), 1);
    until("nothing is pending", || async { fixture.unsent_by("shop").await == 0 }).await;
    let metrics = get(&worker, "/metrics").await.samples();
    let of = |name: &str| metrics[&format!("tidegate_webhook_{name}")];
    assert_eq!(of("attempts_total{webhook=\"shop\",result=\"delivered\"}"), 5.0);
    assert_eq!(of("attempts_total{webhook=\"shop\",result=\"failed\"}"), 2.0);
    assert_eq!(of("retries_total{webhook=\"shop\"}"), 2.0);
    assert_eq!(of("sender{webhook=\"shop\"}"), 1.0);
    until("the note says that all is sent", || async { fixture.shown(&webhooks)[0]["state"] == "sending" })
        .await;
    let shown = &fixture.shown(&webhooks)[0];
    assert_eq!(shown["sender"]["error"], "the receiver answered 500");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_410_pauses_the_webhook_for_all_workers_until_it_is_resumed() {
    let (fixture, receiver) = (Fixture::open().await, Receiver::start().await);
    let webhooks = [("shop", &*receiver.url())];
    receiver.answers(|_| Reply::Status(410));
    let workers = ["w1", "w2"].map(|name| fixture.sending(name, &webhooks).start());
    fixture.has_groups(&["shop"]).await;
    fixture.publish(1..=3).await;
    until("it is paused", || async { fixture.shown(&webhooks)[0]["state"] == "paused" }).await;
    let shown = &fixture.shown(&webhooks)[0];
    assert_eq!(shown["pause"]["reason"], "the receiver answered 410 (Gone)");
    let text = fixture.webhook_command("webhooks", &webhooks).expect(0).stdout;
    assert!(text.contains("tidegate webhooks --resume shop"), "{text}");
    receiver.answers(|_| Reply::Status(200));
    fixture.publish(4..=6).await;
    until("both workers show the pause", || async {
        for worker in &workers {
            let metrics = get(worker, "/metrics").await.samples();
            if metrics.get("tidegate_webhook_paused{webhook=\"shop\"}") != Some(&1.0) {
                return false;
            }
        }
        true
    })
    .await;
    assert_eq!(receiver.orders(), [1], "nothing was sent after the answer");
    fixture.webhook_command("webhooks --resume shop --yes", &webhooks).expect(0);
    has(&receiver, 1..=6).await;
    until("nothing is pending", || async { fixture.unsent_by("shop").await == 0 }).await;
    for worker in workers {
        assert!(worker.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_never_answers_costs_the_others_nothing() {
    let fixture = Fixture::open().await;
    let (good, silent) = (Receiver::start().await, Receiver::start().await);
    silent.answers(|_| Reply::None);
    let webhooks =
        [("good", &*good.url()), ("silent", &*silent.url()), ("closed", "http://localhost:9/hooks")];
    let worker = fixture.sending("w", &webhooks).start();
    fixture.has_groups(&["good", "silent", "closed"]).await;
    fixture.load(1, 1_000).await;
    for order in 1..=300 {
        fixture.admit(order, order, 1, 1).await;
    }
    fixture.settled().await;
    has(&good, 1..=300).await;
    until("the good receiver has all", || async { fixture.unsent_by("good").await == 0 }).await;
    assert!(silent.received().len() <= 2, "its first call may still wait");
    let error = |at: usize| fixture.shown(&webhooks)[at]["sender"]["error"].as_str().map(str::to_owned);
    until("the first call is given up", || async { error(1).as_deref() == Some("no answer within 10 s") })
        .await;
    assert!(error(2).is_some_and(|error| error.contains("cannot connect")), "{:?}", error(2));
    assert!(worker.stop().await.success(), "a call that waits does not hold up the stop");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_first_failure_results_without_an_answer_delay_others_only_briefly() {
    let (fixture, receiver) = (Fixture::open().await, Receiver::start().await);
    let is_silent = |order: i64| order % 6 == 5;
    receiver.answers(move |received| match received.order() {
        order if is_silent(order) => Reply::None,
        8 => Reply::After(Duration::from_secs(3)),
        _ => Reply::Status(204),
    });
    let worker = fixture.sending("w", &[("shop", &receiver.url())]).start();
    fixture.has_groups(&["shop"]).await;
    fixture.publish(1..=60).await;
    worker.says("the receiver of a webhook does not accept a result").await;
    let began = Instant::now();
    let order: Vec<i64> = receiver.orders().into_iter().take(5).collect();
    assert_eq!(order, [1, 2, 3, 4, 5], "until the first failure, the order holds");
    has(&receiver, (1..=60).filter(|order| !is_silent(*order))).await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(5), "the other 50 came after {took:?}");
    until("only results without an answer are pending", || async { fixture.unsent_by("shop").await == 10 })
        .await;
    // An answer that comes after its batch is not lost either.
    let mut counts = BTreeMap::<i64, usize>::new();
    receiver.orders().into_iter().for_each(|order| *counts.entry(order).or_default() += 1);
    assert!(counts.iter().all(|(order, count)| *count == 1 || is_silent(*order)), "{counts:?}");
    receiver.answers(|_| Reply::Status(204));
    until("nothing is pending", || async { fixture.unsent_by("shop").await == 0 }).await;
    let before = receiver.orders().len();
    fixture.publish(61..=100).await;
    has(&receiver, 61..=100).await;
    assert_eq!(receiver.orders()[before..], (61..=100).collect::<Vec<_>>(), "the order holds again");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_410_stops_all_calls_even_while_others_wait_for_an_answer() {
    let (fixture, receiver) = (Fixture::open().await, Receiver::start().await);
    let webhooks = [("shop", &*receiver.url())];
    receiver.answers(|received| match received.order() {
        1 => Reply::Status(503),
        2..=6 => Reply::None,
        _ => Reply::Status(410),
    });
    let worker = fixture.sending("w", &webhooks).start();
    fixture.has_groups(&["shop"]).await;
    fixture.publish(1..=60).await;
    worker.says("the receiver of a webhook answered 410").await;
    has_stopped_sending(&worker).await;
    let orders = receiver.orders();
    assert!(
        orders.iter().all(|order| *order <= 33),
        "the first call has ended, and at most 32 run: {orders:?}"
    );
    receiver.answers(|_| Reply::Status(204));
    fixture.webhook_command("webhooks --resume shop --yes", &webhooks).expect(0);
    has(&receiver, 1..=60).await;
    until("nothing is pending", || async { fixture.unsent_by("shop").await == 0 }).await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_loses_its_lease_sends_nothing_more_while_results_wait_for_an_answer() {
    let (fixture, receiver) = (Fixture::open().await, Receiver::start().await);
    receiver.answers(|received| if received.order() == 1 { Reply::Status(503) } else { Reply::None });
    let worker = fixture.sending("w", &[("shop", &receiver.url())]).start();
    fixture.has_groups(&["shop"]).await;
    fixture.publish(1..=6).await;
    has(&receiver, 1..=6).await;
    let lease = "tidegate:webhooks:shop";
    fixture.redis_says(&["SET", lease, "another worker", "PX", "60000"]).await;
    worker.says("this worker has lost the lease of the webhook").await;
    fixture.publish(7..=20).await;
    has_stopped_sending(&worker).await;
    assert!(receiver.orders().iter().all(|order| *order <= 6), "{:?}", receiver.orders());
    receiver.answers(|_| Reply::Status(204));
    fixture.redis_says(&["DEL", lease]).await;
    has(&receiver, 7..=20).await;
    until("nothing is pending", || async { fixture.unsent_by("shop").await == 0 }).await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_loses_no_result_and_the_next_one_takes_over() {
    let (fixture, receiver) = (Fixture::open().await, Receiver::start().await);
    let webhooks = [("shop", &*receiver.url())];
    let mut seen = 0;
    receiver.answers(move |_| {
        seen += 1;
        if seen % 7 == 0 { Reply::Status(503) } else { Reply::Status(200) }
    });
    let first = fixture.sending("w1", &webhooks).start();
    fixture.has_groups(&["shop"]).await;
    fixture.publish(1..=500).await;
    until("some were sent", || async { receiver.received().len() > 100 }).await;
    first.kill9();
    fixture.publish(501..=600).await;
    let second = fixture.sending("w2", &webhooks).start();
    has(&receiver, 1..=600).await;
    until("nothing is pending", || async { fixture.unsent_by("shop").await == 0 }).await;
    let mut by_order = BTreeMap::<i64, BTreeSet<String>>::new();
    for received in receiver.received() {
        by_order.entry(received.order()).or_default().insert(received.id());
    }
    assert!(by_order.values().all(|ids| ids.len() == 1), "repeats share the id");
    assert!(second.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_not_followed_and_a_link_local_address_gets_no_connection() {
    let fixture = Fixture::open().await;
    let (receiver, other) = (Receiver::start().await, Receiver::start().await);
    let elsewhere = other.url();
    receiver.answers(move |_| Reply::Redirect(elsewhere.clone()));
    // The system resolves this name to 169.254.169.254.
    let webhooks = [("shop", &*receiver.url()), ("cloud", "https://2852039166/hooks")];
    let worker = fixture.sending("w", &webhooks).start();
    fixture.has_groups(&["shop", "cloud"]).await;
    fixture.publish([1]).await;
    let error = |at: usize| fixture.shown(&webhooks)[at]["sender"]["error"].as_str().map(str::to_owned);
    until("both have failed", || async { error(0).is_some() && error(1).is_some() }).await;
    assert_eq!(error(0).as_deref(), Some("the receiver answered 302"));
    assert_eq!(error(1).as_deref(), Some("the address 169.254.169.254 is not allowed: it is link-local"));
    assert_eq!(fixture.shown(&webhooks)[0]["state"], "retrying");
    assert_eq!((other.received().len(), fixture.unsent_by("shop").await), (0, 1));
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_with_tls_needs_a_certificate_that_the_system_trusts() {
    let fixture = Fixture::open().await;
    let certificates = Certificates::make().expect("certificates");
    let receiver = Receiver::start_tls(&certificates).await;
    let webhooks = [("shop", &*receiver.url())];
    let distrustful = fixture.sending("w1", &webhooks).start();
    fixture.has_groups(&["shop"]).await;
    fixture.publish([1]).await;
    let error = || fixture.shown(&webhooks)[0]["sender"]["error"].as_str().map(str::to_owned);
    until("the certificate is refused", || async { error().is_some_and(|error| error.contains("no TLS")) })
        .await;
    assert!(distrustful.stop().await.success());
    let trusting = fixture.sending("w2", &webhooks);
    let trusting = trusting.variable("SSL_CERT_FILE", certificates.authority().display()).start();
    has(&receiver, [1]).await;
    assert!(trusting.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn results_that_are_deleted_before_they_are_sent_are_counted() {
    let (fixture, receiver) = (Fixture::open().await, Receiver::start().await);
    let webhooks = [("shop", &*receiver.url())];
    let worker = fixture.sending("w", &webhooks).set("RESULTS_KEEP_MS", 3_600_000).start();
    fixture.has_groups(&["shop"]).await;
    fixture.webhook_command("webhooks --pause shop --reason test --yes", &webhooks).expect(0);
    has_stopped_sending(&worker).await;
    // Results from 1970 are older than every limit.
    for order in 1..=250 {
        fixture.publish_result(order, "confirmed", &format!("{order}-0")).await;
    }
    until("the old results are deleted", || async { fixture.shown(&webhooks)[0]["lost"] == 250 }).await;
    until("the metrics show that", || async {
        get(&worker, "/metrics").await.samples().get("tidegate_webhook_lost_total{webhook=\"shop\"}")
            == Some(&250.0)
    })
    .await;
    fixture.webhook_command("webhooks --resume shop --yes", &webhooks).expect(0);
    fixture.publish([251]).await;
    has(&receiver, [251]).await;
    assert_eq!(receiver.received().len(), 1);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pending_list_stops_growing_at_1000_and_all_results_come_in_the_end() {
    let (fixture, receiver) = (Fixture::open().await, Receiver::start().await);
    let webhooks = [("shop", &*receiver.url())];
    receiver.answers(|_| Reply::Status(503));
    let worker = fixture.sending("w", &webhooks).start();
    fixture.has_groups(&["shop"]).await;
    fixture.publish(1..=1_500).await;
    worker.says("the limit of set-aside entries is reached").await;
    let pending = fixture.unsent_by("shop").await;
    assert!((900..=1_000).contains(&pending), "{pending} are pending");
    assert!(receiver.received().len() < 1_100, "only a few are tried again");
    receiver.answers(|_| Reply::Status(200));
    has(&receiver, 1..=1_500).await;
    until("nothing is pending", || async { fixture.unsent_by("shop").await == 0 }).await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_sent_again_from_a_time_and_what_a_webhook_left_can_be_removed() {
    let (fixture, receiver) = (Fixture::open().await, Receiver::start().await);
    let webhooks = [("shop", &*receiver.url())];
    let worker = fixture.sending("w", &webhooks).start();
    fixture.has_groups(&["shop"]).await;
    fixture.publish(1..=20).await;
    has(&receiver, 1..=20).await;
    until("nothing is pending", || async { fixture.unsent_by("shop").await == 0 }).await;
    let plan = fixture.webhook_command("webhooks --resend shop --from -1h --dry-run", &webhooks).expect(0);
    assert!(plan.stdout.contains("20 results of all kinds"), "{plan:?}");
    fixture.webhook_command("webhooks --resend shop --from -1h --yes", &webhooks).expect(0);
    until("all came twice", || async { receiver.received().len() == 40 }).await;
    let ids = |range: std::ops::Range<usize>| -> Vec<String> {
        receiver.received()[range].iter().map(|received| received.id()).collect()
    };
    assert_eq!(ids(0..20), ids(20..40));
    let later = fixture.webhook_command("webhooks --resend shop --from now --yes", &webhooks).expect(0);
    assert!(later.stdout.contains("sends all of them"), "{later:?}");

    fixture.webhook_command("webhooks --remove shop --yes", &webhooks).expect(1);
    let other = [("other", "http://localhost:9/hooks")];
    let in_use = fixture.webhook_command("webhooks --remove shop --yes", &other).expect(1);
    assert!(in_use.all().contains("a worker sends results to shop now"), "{in_use:?}");
    assert!(worker.stop().await.success());
    let shown = fixture.shown(&other);
    assert_eq!((&shown[1]["name"], &shown[1]["state"]), (&"shop".into(), &"not_configured".into()));
    fixture.webhook_command("webhooks --remove shop --yes", &other).expect(0);
    assert_eq!(fixture.shown(&other).len(), 1);
    let log = fixture.webhook_command("log", &other).expect(0).stdout;
    assert!(log.contains("webhooks") && log.contains("--remove shop"), "{log}");
}

/// The program of the documents that checks a signature.
fn documented_check() -> &'static str {
    let documented = include_str!("../../docs/webhooks.md");
    let (_, rest) = documented.split_once("```python\n").expect("a program in docs/webhooks.md");
    rest.split_once("\n```").expect("its end").0
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_check_accepts_what_workers_send_and_nothing_else() {
    let (fixture, receiver) = (Fixture::open().await, Receiver::start().await);
    let worker = fixture.sending("w", &[("shop", &receiver.url())]).start();
    fixture.has_groups(&["shop"]).await;
    fixture.publish([1]).await;
    has(&receiver, [1]).await;
    let received = &receiver.received()[0];
    let headers: BTreeMap<&str, &str> =
        received.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().expect("text"))).collect();
    let headers = serde_json::to_string(&headers).expect("JSON");
    let script = fixture.file(
        "check.py",
        &format!(
            "{}\n\nimport json, sys\nsecret, headers, body = sys.argv[1:]\n\
             sys.exit(0 if is_genuine(secret, json.loads(headers), body.encode()) else 1)\n",
            documented_check()
        ),
    );
    let body = std::str::from_utf8(&received.body).expect("text");
    let is_accepted = |secret: &str, body: &str| {
        let run = std::process::Command::new("python3").arg(&script).args([secret, &headers, body]).output();
        let run = run.expect("python3 runs");
        assert!(run.stderr.is_empty(), "{}", String::from_utf8_lossy(&run.stderr));
        run.status.success()
    };
    assert!(is_accepted(SECRET, body));
    assert!(!is_accepted(SECRET, &body.replace("confirmed", "refused")));
    assert!(!is_accepted(NEW_SECRET, body));
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_partition_has_a_sender_and_a_change_applies_to_all_partitions() {
    let (fixture, receiver) = (Fixture::open().await, Receiver::start().await);
    let (webhooks, tags) = ([("shop", &*receiver.url())], ("TIDEGATE_STREAM_PARTITIONS", "a,b"));
    let worker = fixture.sending("w", &webhooks).set("STREAM_PARTITIONS", "a,b").start();
    let change = |line: &str| {
        let program = Program::with_variables(&fixture.redis.url(), &fixture.mysql.url());
        let (list, words) = (fixture.webhooks(&webhooks), line.split(' ').collect::<Vec<_>>());
        program.run_with(&words, &[("TIDEGATE_WEBHOOKS", &list), tags]).expect(0).stdout
    };
    let publish = async |first: i64| {
        for (tag, order) in [("a", first), ("b", first + 1)] {
            let result = format!("orderId {order} state dead kind state step -1 entry 8-1 at 9");
            fixture.call(&format!("XADD {{{tag}}}:{RESULTS} * {result}")).await;
        }
    };
    until("both partitions have a group", || async {
        change("webhooks --json").matches("\"hasGroup\":true").count() == 2
    })
    .await;
    publish(1).await;
    has(&receiver, 1..=2).await;
    change("webhooks --pause shop --yes");
    until("both have stopped", || async {
        let samples = get(&worker, "/metrics").await.samples();
        let is_off = |tag| {
            samples.get(&format!("tidegate_webhook_sender{{partition=\"{tag}\",webhook=\"shop\"}}"))
                == Some(&0.0)
        };
        is_off("a") && is_off("b")
    })
    .await;
    publish(3).await;
    change("webhooks --resume shop --yes");
    has(&receiver, 1..=4).await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_partitions_leaves_no_result_of_a_removed_partition_unsent() {
    let (fixture, receiver) = (Fixture::open().await, Receiver::start().await);
    receiver.answers(|_| Reply::Status(503));
    let webhooks = [("shop", &*receiver.url())];
    let worker = |name: &str| fixture.sending(name, &webhooks).set("STREAM_PARTITIONS", "a,b").start();
    // The operator's configuration does not have the webhook.
    let (redis, mysql) = (fixture.redis.url(), fixture.mysql.url());
    let operator = Program::with_flags(&[
        "--redis-url",
        &redis,
        "--mysql-url",
        &mysql,
        "--set",
        "stream.partitions=a,b",
    ]);
    let run = |line: &str| operator.run(line);
    let change = "partitions change --to a --yes";
    let begin = || {
        let mut command = operator.command(&change.split(' ').collect::<Vec<_>>());
        let mut change = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(change.stderr.take().expect("a pipe")).lines();
        (change, lines.map(|line| line.expect("text")))
    };
    let publish = async |tag: &str, order: i64| {
        let result = format!("orderId {order} state dead kind state step -1 entry 8-1 at 9");
        fixture.call(&format!("XADD {{{tag}}}:{RESULTS} * {result}")).await;
    };
    let first = worker("w1");
    until("both partitions have a group", || async {
        run("webhooks --json").stdout.matches("\"hasGroup\":true").count() == 2
    })
    .await;
    publish("a", 1).await;
    publish("b", 2).await;
    until("both wait for a retry", || async {
        run("webhooks --json").stdout.matches("\"retrying\":1").count() == 2
    })
    .await;
    let refused = run(change).expect(1);
    let why = "that the new list leaves out: shop has 1 unsent result in {b} (retrying: repair the receiver). If you";
    assert!(refused.stdout.contains(why), "{refused:#?}");
    assert!(first.stop().await.success());
    let refused = run(change).expect(1);
    assert!(refused.stdout.contains("in {b} (no worker sends: start a worker)"), "{refused:#?}");

    let all_sent = async |orders| {
        has(&receiver, orders).await;
        until("nothing is pending", || async {
            run("webhooks --json").stdout.matches("\"oldestUnsentS\":null").count() == 2
        })
        .await;
    };
    receiver.answers(|_| Reply::Status(204));
    let second = worker("w2");
    all_sent(1..=2).await;
    // A backlog of results is sent before the sales are closed.
    let held = Arc::new(Semaphore::new(0));
    let hold = Arc::clone(&held);
    receiver.answers(move |_| Reply::AfterClosing(Arc::clone(&hold)));
    for order in 3..=8 {
        publish("b", order).await;
    }
    let (mut stopped, mut lines) = begin();
    let said = block_in_place(|| lines.find(|line| line.contains("sales are still open"))).expect("a line");
    assert!(said.contains("shop has 6 unsent results in {b} (sending)"), "{said}");
    kill(Pid::from_raw(i32::try_from(stopped.id()).unwrap()), Signal::SIGINT).expect("it is there");
    assert_eq!(stopped.wait().expect("it ends").code(), Some(6));
    let plan = run("partitions change --to a --dry-run --json").expect(0).json();
    assert_eq!((&plan["outcome"], &plan["unsent_results"]), (&json!("would_change"), &json!(6)));
    held.close();
    all_sent(3..=8).await;
    assert!(second.stop().await.success());

    // After the sales are closed, a change that is killed continues, although no worker sends the results.
    fixture.call("XADD {a}:stream.orders * id 1").await;
    let (mut killed, mut lines) = begin();
    let said = block_in_place(|| lines.find(|line| line.contains("sales are closed"))).expect("a line");
    assert!(said.contains("1 entry to be written, but no worker is alive"), "{said}");
    killed.kill().expect("killed");
    killed.wait().expect("gone");
    fixture.call("DEL {a}:stream.orders").await;
    publish("b", 9).await;
    let plan = run("partitions change --to a --dry-run").expect(0);
    assert!(plan.stdout.contains("send 1 result of removed partitions to webhooks"), "{plan:#?}");
    let (mut change, mut lines) = begin();
    let said = block_in_place(|| lines.find(|line| line.contains("sales are closed"))).expect("a line");
    assert!(said.contains("shop has 1 unsent result in {b} (no worker sends"), "{said}");
    assert!(said.contains("type tidegate partitions change --to 'a,b'"), "{said}");
    let mut third = worker("w3");
    assert_eq!(third.ended().await.code(), Some(2));
    assert!(block_in_place(|| change.wait()).expect("it ends").success());
    let received: BTreeSet<i64> = receiver.orders().into_iter().collect();
    assert_eq!(received, (1..=9).collect());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_redis_loses_no_result() {
    let (fixture, receiver) = (Fixture::open().await, Receiver::start().await);
    let url = receiver.url();
    let worker = fixture.sending("w", &[("shop", &url)]).start();
    fixture.has_groups(&["shop"]).await;
    fixture.publish(1..=300).await;
    until("some were sent", || async { receiver.received().len() > 20 }).await;
    fixture.redis.kill9().expect("Redis is killed");
    fixture.redis.restart().expect("Redis starts again");
    fixture.publish(301..=320).await;
    has(&receiver, 1..=320).await;
    until("nothing is pending", || async { fixture.unsent_by("shop").await == 0 }).await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_whose_group_is_gone_gets_all_results_that_the_stream_has() {
    let (fixture, receiver) = (Fixture::open().await, Receiver::start().await);
    let webhooks = [("shop", &*receiver.url())];
    fixture.publish([1]).await;
    fixture.webhook_command("webhooks --pause shop --reason early --yes", &webhooks).expect(0);
    let first = fixture.sending("w1", &webhooks).start();
    fixture.has_groups(&["shop"]).await;
    fixture.webhook_command("webhooks --resume shop --yes", &webhooks).expect(0);
    fixture.publish([2]).await;
    has(&receiver, [2]).await;
    until("nothing is pending", || async { fixture.unsent_by("shop").await == 0 }).await;
    assert_eq!(receiver.orders(), [2], "a webhook that was paused before it started is new");
    assert!(first.stop().await.success());

    fixture.redis_says(&["XGROUP", "DESTROY", RESULTS, "webhook:shop"]).await;
    fixture.publish([3]).await;
    // Also if the operator's configuration has no webhooks, as in a change of the partitions.
    for (webhooks, state) in [(&webhooks[..], "group_lost"), (&[], "not_configured")] {
        let shown = &fixture.shown(webhooks)[0];
        assert_eq!((&shown["state"], &shown["unread"]), (&state.into(), &3.into()), "{shown:#}");
    }
    let workers = ["w2", "w3"].map(|name| fixture.sending(name, &webhooks).start());
    has(&receiver, 1..=3).await;
    fixture.redis_says(&["DEL", RESULTS]).await;
    fixture.publish([4]).await;
    has(&receiver, 1..=4).await;
    for worker in workers {
        assert!(worker.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_secret_a_webhook_waits_and_orders_do_not() {
    let (fixture, receiver) = (Fixture::open().await, Receiver::start().await);
    let list = fixture.webhooks(&[("shop", &*receiver.url())]);
    std::fs::remove_file(fixture.webhook_secret_file()).expect("it is removed");
    fixture.load(1, 10).await;
    let worker = fixture.worker("w").set("WEBHOOKS", list).set("RESULTS_PUBLISH", "all").start();
    fixture.has_groups(&["shop"]).await;
    assert!(worker.log().contains("cannot read the secrets of the webhook: "), "{}", worker.log());
    fixture.admit(1, 1, 1, 1).await;
    fixture.settled().await;
    assert!(receiver.received().is_empty());
    fixture.webhook_secret_file();
    has(&receiver, [1]).await;
    assert!(receiver.received()[0].is_signed_by(SECRET));
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_of_a_later_version_is_sent_as_it_stands() {
    let (fixture, receiver) = (Fixture::open().await, Receiver::start().await);
    let worker = fixture.sending("w", &[("shop", &receiver.url())]).start();
    fixture.has_groups(&["shop"]).await;
    fixture.redis_says(&["XADD", RESULTS, "*", "no", "result"]).await;
    fixture.publish_result(1, "teleported", "*").await;
    fixture.publish([2]).await;
    has(&receiver, [1, 2]).await;
    worker.says("an entry is no result of an order").await;
    let first = &receiver.received()[0];
    assert_eq!(first.id(), "1_0_teleported_entry-8-1");
    let shown = json!({ "orderId": "1", "userId": "5", "voucherId": "7", "quantity": 1, "state": "teleported",
        "kind": "state", "step": 0, "entry": "8-1", "at": 9 });
    assert_eq!((first.json(), receiver.orders()), (shown, vec![1, 2]));
    until("nothing is pending", || async { fixture.unsent_by("shop").await == 0 }).await;
    assert!(worker.stop().await.success());
}
