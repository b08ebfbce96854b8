//! Tests of the documented readers of results (docs/results.md). Each ends with the states of the orders and handles each
//! fact once, whatever the sequence and the repetitions of results.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::Path,
    process::Command,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{RESULTS, Told, a_day, event, publishing, results};
use crate::fixture::{Fixture, until};

/// A reader that follows the rules of the documents.
#[derive(Debug, Default, PartialEq, Eq)]
struct Shop {
    /// The state of each order, with its step.
    orders: BTreeMap<String, (i64, String)>,
    /// The facts to handle, by order and entry: `refund_due b`.
    facts: BTreeMap<(String, String), String>,
}

impl Shop {
    fn take(&mut self, result: &Told) {
        let order = result["orderId"].clone();
        if result["kind"] == "fact" {
            let words = [result["state"].as_str(), result.get("ref").map_or("", String::as_str)];
            let fact = words.join(" ").trim_end().to_owned();
            self.facts.entry((order, result["entry"].clone())).or_insert(fact);
            return;
        }
        let step = result["step"].parse().expect("a number");
        let known = self.orders.get(&order).map(|(step, _)| *step);
        if known.is_none_or(|known| step > known) {
            self.orders.insert(order, (step, result["state"].clone()));
        }
    }

    fn of(results: &[Told]) -> Self {
        let mut shop = Self::default();
        results.iter().for_each(|result| shop.take(result));
        shop
    }

    /// The facts with their orders: `1 refund_due b`.
    fn facts(&self) -> BTreeSet<String> {
        self.facts.iter().map(|((order, _), fact)| format!("{order} {fact}")).collect()
    }
}

/// The programs of the documents: one that reads from Redis, and one that reads over HTTP.
fn programs() -> [&'static str; 2] {
    let documented = include_str!("../../../docs/results.md");
    let parts: Vec<&str> = documented.split("```python\n").skip(1).collect();
    let programs = parts.iter().map(|part| part.split_once("\n```").expect("its end").0);
    programs.collect::<Vec<_>>().try_into().expect("two programs in docs/results.md")
}

/// Runs a program of the documents with these arguments. Returns what it wrote to its standard error.
fn run(program: &Path, arguments: &[&str], database: &Path) -> String {
    let run = Command::new("python3").arg(program).args(arguments).arg(database).output();
    let run = run.expect("python3 runs");
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success(), "{told}");
    told
}

/// The data that a program of the documents has stored in this database.
fn stored(database: &Path) -> Shop {
    let read = "import sqlite3, sys\n\
        for row in sqlite3.connect(sys.argv[1]).execute(\"SELECT 'order', id, step, state, '' FROM orders UNION ALL \
        SELECT 'fact', order_id, entry, state, coalesce(ref, '') FROM facts WHERE done = 0\"):\n    print(*row, sep='\\t')";
    let read = Command::new("python3").args(["-c", read]).arg(database).output().expect("python3 runs");
    let mut shop = Shop::default();
    for line in String::from_utf8(read.stdout).expect("text").lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        let [what, order, key, state, reference] = columns.as_slice() else { panic!("{line}") };
        if *what == "order" {
            shop.orders.insert((*order).to_owned(), (key.parse().expect("a step"), (*state).to_owned()));
        } else {
            let fact = format!("{state} {reference}").trim_end().to_owned();
            shop.facts.insert(((*order).to_owned(), (*key).to_owned()), fact);
        }
    }
    shop
}

/// Whether the gate is ready.
async fn is_ready(gate: SocketAddr) -> bool {
    let mut stream = TcpStream::connect(gate).await.expect("the gate listens");
    stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").await.expect("it is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("the gate answers");
    answer.starts_with("HTTP/1.0 200 ")
}

fn has_python() -> bool {
    Command::new("python3").args(["-c", "import sqlite3"]).output().is_ok_and(|run| run.status.success())
}

/// Replaces the results of the stream by these, without any group.
async fn put(fixture: &Fixture, results: &[Told]) {
    fixture.redis_says(&["DEL", RESULTS]).await;
    for result in results {
        let fields = result.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]);
        fixture.redis_says(&["XADD", RESULTS, "*"].into_iter().chain(fields).collect::<Vec<_>>()).await;
    }
}

/// Possible sequences of the same results, with each of them twice.
fn deliveries(told: &[Told]) -> Vec<Vec<Told>> {
    let twice = [told, told].concat();
    let reversed: Vec<Told> = twice.iter().rev().cloned().collect();
    let strided =
        |stride: usize| (0..twice.len()).map(|at| twice[at * stride % twice.len()].clone()).collect();
    // These strides have no factor in common with the number of results, so each result occurs.
    let strides = [7, 11, 13, 17].into_iter().filter(|stride| twice.len() % stride != 0);
    [twice.clone(), reversed].into_iter().chain(strides.map(strided)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_follows_the_documents_loses_no_refund_in_whatever_order_results_come() {
    let fixture = Fixture::open().await;
    a_day(&fixture).await;
    // One order is refunded, and paid once more before that is known. Another event cannot be applied, because its
    // order is a dead letter.
    event(&fixture, "paid", 5, &[("ref", "late")]).await;
    event(&fixture, "used", 9, &[]).await;
    let worker = publishing(&fixture, "all").start();
    fixture.settled().await;
    assert!(worker.stop().await.success());
    let told = results(&fixture).await;

    let shop = Shop::of(&told);
    let states: Vec<String> =
        shop.orders.iter().map(|(order, (_, state))| format!("{order} {state}")).collect();
    let expected = [
        "1 used",
        "2 cancelled",
        "3 expired",
        "31 confirmed",
        "32 refused",
        "4 refund_failed",
        "5 refunded",
        "6 confirmed",
        "77 cancelled",
        "8 dead",
        "9 dead",
    ];
    assert_eq!(states, expected);
    let due =
        "SELECT CONCAT_WS(' ', order_id, 'refund_due', ref) FROM tidegate_event WHERE outcome = 'refund_due'";
    let due: BTreeSet<String> =
        sqlx::query_scalar(due).fetch_all(&fixture.pool).await.expect("MySQL answers").into_iter().collect();
    let is_due = |fact: &String| fact.contains(" refund_due");
    assert_eq!(shop.facts().into_iter().filter(is_due).collect::<BTreeSet<_>>(), due);
    assert!(due.contains("5 refund_due late") && due.len() == 3, "{due:?}");
    let others: BTreeSet<String> = shop.facts().into_iter().filter(|fact| !is_due(fact)).collect();
    assert_eq!(others, ["1 refunded", "1 rejected", "9 rejected"].map(str::to_owned).into());
    assert_eq!(shop.facts.len(), 7, "two events of order 1 were rejected");

    let python = has_python();
    if !python {
        eprintln!(
            "left out: the programs of docs/results.md were not run, because there is no python3 with sqlite3"
        );
    }
    let gate = publishing(&fixture, "all").set("GATE_LISTEN", "127.0.0.1:0").log_as("gate").start_as("gate");
    let address = gate.gate_address().await;
    until("the gate has reached Redis", || is_ready(address)).await;
    let url = format!("http://{address}");
    let [over_redis, over_http] = programs();
    let over_redis = fixture.file("results.py", over_redis);
    let over_http = fixture.file("results_http.py", over_http);
    let port = fixture.redis.port().to_string();
    for (at, delivery) in deliveries(&told).iter().enumerate() {
        assert_eq!(Shop::of(delivery), shop, "delivery {at}");
        if python {
            put(&fixture, delivery).await;
            let database = fixture.file(&format!("shop-{at}.sqlite"), "");
            // The reader has acknowledged all results, and its next run finds no new ones.
            for _ in 0..2 {
                run(&over_redis, &["127.0.0.1", &port], &database);
                assert_eq!(stored(&database), shop, "delivery {at}");
                let pending = fixture.redis_says(&["XPENDING", RESULTS, "shop"]).await.into_array();
                assert_eq!(pending[0].as_i64(), Some(0), "{pending:?}");
            }
            let database = fixture.file(&format!("shop-http-{at}.sqlite"), "");
            for _ in 0..2 {
                assert_eq!(run(&over_http, &[&url], &database), "");
                assert_eq!(stored(&database), shop, "delivery {at} over HTTP");
            }
            if at == 0 {
                // A reader whose results were deleted says so, and reads the rest.
                put(&fixture, delivery).await;
                let lost = run(&over_http, &[&url], &database);
                assert!(lost.contains("ask for the state of your open orders"), "{lost}");
                assert_eq!(stored(&database), shop);
            }
        }
    }
    assert!(gate.stop().await.success());
}
