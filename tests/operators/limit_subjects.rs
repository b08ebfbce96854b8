//! Tests of hostile subjects, in commands and at the gate over HTTP: each is refused by name, and nothing is written.

use std::{collections::BTreeMap, ffi::OsStr, os::unix::ffi::OsStrExt};

use hyper::Method;
use serde_json::{Value, json};

use crate::{
    fixture::Fixture,
    http_gate::{address_of, ask, post},
    order_event::{count, operator},
    program::{Program, Run},
};

/// Texts that are neither a valid name of a subject nor a valid value.
const HOSTILE: [&str; 12] =
    ["", " ", "a b", "\"", "a'b", "<voucher>", "<owner>", "#complete", "#limited", "*", "a;b,c", "ü"];

/// The content of all keys, as Redis' own digest.
async fn digest(fixture: &Fixture) -> String {
    let digest: BTreeMap<String, String> = {
        let keys = fixture.call("KEYS *").await.into_array();
        let mut all = BTreeMap::new();
        for key in keys.iter().filter_map(fred::types::Value::as_string) {
            // The other keys hold order ids that gates allocated, and names of processes. They change without an order.
            if key.starts_with("seckill:") || key.starts_with("stream.") {
                all.insert(key.clone(), format!("{:?}", fixture.redis_says(&["DUMP", &key]).await));
            }
        }
        all
    };
    format!("{digest:?}")
}

/// A sale with a limit of phones, and a rate limit of devices.
async fn open() -> (Fixture, Program) {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    program.run("voucher load --voucher 7 --stock 10").expect(0);
    program
        .run("limit set --voucher 7 --name phones --subject phone --window day --orders 1 --yes")
        .expect(0);
    (fixture, program)
}

fn refused(run: &Run, shown: &str) {
    assert_eq!(run.code, 2, "{shown:?}: {:.2000}", run.all());
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_subjects_are_refused_by_the_commands_and_nothing_is_written() {
    let (fixture, program) = open().await;
    let (before, rules) = (digest(&fixture).await, count(&fixture, "tidegate_limit").await);
    let long = "x".repeat(64 << 10);
    for hostile in HOSTILE.into_iter().chain(["user", long.as_str()]) {
        for subject in [format!("{hostile}=a"), format!("phone={hostile}")] {
            if subject == "phone=user" {
                continue;
            }
            for command in ["admit", "voucher check"] {
                let mut words: Vec<&str> = command.split(' ').collect();
                words.extend(["--voucher", "7", "--user", "1", "--subject", &subject]);
                refused(&program.run_with(&words, &[]), &subject[..subject.len().min(80)]);
            }
        }
        let set = ["limit", "set", "--voucher", "7", "--window", "sale", "--orders", "1"];
        for flags in [["--name", "a", "--subject", hostile], ["--name", hostile, "--subject", "phone"]] {
            // These two are valid subjects, and one is a valid name.
            if ["*", "user"].contains(&hostile) {
                continue;
            }
            refused(&program.run_with(&[&set[..], &flags].concat(), &[]), &hostile[..hostile.len().min(80)]);
        }
    }
    for bytes in [&b"phone=\xff"[..], b"\xc3=a", b"phone=a\xed\xa0\x80"] {
        let mut command = program.command(&["admit", "--voucher", "7", "--user", "1", "--subject"]);
        let output = command.arg(OsStr::from_bytes(bytes)).output().expect("the program runs");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
    let twice = "admit --voucher 7 --user 1 --subject phone=a --subject phone=b";
    assert!(program.run(twice).expect(2).all().contains("phone is named twice"));
    assert_eq!((digest(&fixture).await, count(&fixture, "tidegate_limit").await), (before, rules));
    program.run("admit --voucher 7 --user 1 --subject phone=user").expect(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_subjects_are_refused_over_http_by_their_places_and_nothing_is_written() {
    let (fixture, _) = open().await;
    let gate = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
    let address = address_of(&gate).await;
    let before = digest(&fixture).await;
    let body =
        |name: &str, value: &str| json!({ "voucherId": "7", "userId": "1", "subjects": { name: value } });
    for hostile in HOSTILE.into_iter().chain(["a\0", "\0", "a\n", "\u{202e}a", "x".repeat(65).leak()]) {
        let as_value = post(address, &body("phone", hostile)).await;
        assert_eq!(as_value.status, 422, "{hostile:?}: {:#}", as_value.body);
        assert_eq!(as_value.body["errors"][0]["pointer"], "/subjects/phone", "{:#}", as_value.body);
        let as_name = post(address, &body(hostile, "a")).await;
        assert_eq!(as_name.status, 422, "{hostile:?}: {:#}", as_name.body);
        let pointer = as_name.body["errors"][0]["pointer"].as_str().expect("a place");
        assert!(pointer.starts_with("/subjects/"), "{:#}", as_name.body);
    }
    assert_eq!(post(address, &body("user", "2")).await.status, 422, "who the user is is said once");
    assert_eq!(post(address, &body("phone", &"x".repeat(64 << 10))).await.status, 413);
    for value in [json!(1), json!(null), json!(["a"]), json!({ "phone": "a" })] {
        let body = json!({ "voucherId": "7", "userId": "1", "subjects": { "phone": value } });
        assert_eq!(post(address, &body).await.status, 422);
    }
    // A body that is not UTF-8 is no JSON, and half of a surrogate pair is no text.
    let json_type = [("Content-Type", "application/json")];
    let cut = r#"{"voucherId":"7","userId":"1","subjects":{"phone":"\ud800"}}"#;
    let answer = ask(address, Method::POST, "/orders", &json_type, cut).await;
    assert_eq!((answer.status, &answer.body["type"]), (400, &Value::from("/problems/bad-json")));
    assert_eq!(digest(&fixture).await, before);
    assert_eq!(post(address, &body("phone", "user")).await.status, 202, "a word as any other");
    assert!(gate.stop().await.success());
}
