//! Tests of callers: which may use the gate, and how often. Loopback addresses represent callers and proxies; 127.0.0.1
//! is a listed proxy.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use futures_util::future::join_all;
use hyper::Method;
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};

use super::{Answer, address_of, ask_on};
use crate::{
    fixture::{Fixture, Worker},
    order_event::operator,
};

const PROXY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const JSON: (&str, &str) = ("Content-Type", "application/json");

struct Scene {
    fixture: Fixture,
    gate: Worker,
    address: SocketAddr,
}

impl Scene {
    /// A sale of this many units of voucher 7, and a gate with these settings that trusts the proxy.
    async fn open(stock: u32, settings: &[(&str, &str)]) -> Self {
        let fixture = Fixture::open().await;
        operator(&fixture).run(&format!("voucher load --voucher 7 --stock {stock}")).expect(0);
        let plan =
            fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").set("GATE_TRUSTED_PROXIES", PROXY);
        let plan = settings.iter().fold(plan, |plan, (name, value)| plan.set(name, value));
        let gate = plan.start_as("gate");
        let address = address_of(&gate).await;
        Self { fixture, gate, address }
    }

    async fn connect(&self, from: Ipv4Addr) -> TcpStream {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::new(IpAddr::V4(from), 0)).expect("all of 127.0.0.0/8 is ours");
        socket.connect(self.address).await.expect("the gate listens")
    }

    async fn post(&self, from: Ipv4Addr, headers: &[(&str, &str)], body: &Value) -> Answer {
        let headers = [&[JSON], headers].concat();
        let stream = self.connect(from).await;
        ask_on(stream, Method::POST, "/orders", &headers, &body.to_string()).await.expect("an answer")
    }

    /// The number of script calls. The gate admits orders with scripts only.
    async fn admissions(&self) -> u64 {
        self.fixture.calls_of("evalsha").await
    }

    async fn end(self) {
        assert!(self.gate.stop().await.success());
    }
}

fn kind(answer: &Answer) -> (u16, &str) {
    (answer.status, answer.body["type"].as_str().unwrap_or_default().trim_start_matches("/problems/"))
}

#[tokio::test(flavor = "multi_thread")]
async fn who_the_user_is_a_header_says_of_listed_proxies_only_and_nobody_else_can_forge_it() {
    let scene = Scene::open(9, &[("GATE_USER_HEADER", "X-User-Id")]).await;
    let (unnamed, named) = (json!({ "voucherId": "7" }), json!({ "voucherId": "7", "userId": "42" }));
    let header = ("X-User-Id", "42");

    let forged = scene.post(STRANGER, &[header], &unnamed).await;
    assert_eq!(kind(&forged), (403, "not-a-proxy"), "{:#}", forged.body);
    let forged = scene.post(STRANGER, &[header, ("X-Forwarded-For", "127.0.0.1")], &named).await;
    assert_eq!(kind(&forged), (403, "not-a-proxy"), "the peer is what counts");
    let nobody = scene.post(PROXY, &[], &named).await;
    assert_eq!(kind(&nobody), (403, "no-user"), "a caller whom the proxy does not know is nobody");
    for wrong in [vec![header, header], vec![("x-user-id", "42,43")], vec![("X-User-Id", "")]] {
        assert_eq!(kind(&scene.post(PROXY, &wrong, &unnamed).await), (403, "no-user"), "{wrong:?}");
    }
    let other = scene.post(PROXY, &[("X-User-Id", "43")], &named).await;
    assert_eq!(kind(&other), (422, "bad-input"));
    assert_eq!(other.body["errors"][0]["pointer"], "/userId");
    assert_eq!(
        kind(&scene.post(STRANGER, &[], &unnamed).await),
        (422, "bad-input"),
        "somebody has to say it"
    );
    let chosen = json!({ "voucherId": "7", "orderId": "4711" });
    let chosen = scene.post(PROXY, &[header], &chosen).await;
    assert_eq!(kind(&chosen), (422, "bad-input"), "a user who chooses ids can take another's");
    assert_eq!(chosen.body["errors"][0]["pointer"], "/orderId");
    assert_eq!(scene.fixture.redis_stock(7).await, Some(9), "nobody has bought");

    assert_eq!(scene.post(PROXY, &[header], &unnamed).await.status, 202);
    assert_eq!(
        kind(&scene.post(PROXY, &[header], &named).await),
        (409, "second-order"),
        "it is the same user"
    );
    let own_word = scene.post(STRANGER, &[], &json!({ "voucherId": "7", "userId": "43" })).await;
    assert_eq!(own_word.status, 202, "{:#}", own_word.body);
    let buyers = scene.fixture.call("SMEMBERS seckill:order:7").await.into_array();
    let mut buyers: Vec<_> = buyers.iter().filter_map(fred::types::Value::as_string).collect();
    buyers.sort();
    assert_eq!(buyers, ["42", "43"]);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_behind_a_proxy_sees_no_order_of_another_user() {
    let scene = Scene::open(9, &[("GATE_USER_HEADER", "X-User-Id")]).await;
    let bought = scene.post(PROXY, &[("X-User-Id", "42")], &json!({ "voucherId": "7" })).await;
    let page = bought.headers["location"].to_str().expect("a path").to_owned();
    let events = page.replace('?', "/events?");
    let look = async |from: Ipv4Addr, path: &str, headers: &[(&str, &str)]| {
        ask_on(scene.connect(from).await, Method::GET, path, headers, "").await.expect("an answer")
    };
    let own = look(PROXY, &page, &[("X-User-Id", "42")]).await;
    assert_eq!((own.status, &own.body["userId"]), (200, &json!("42")), "{:#}", own.body);
    assert_eq!(look(STRANGER, &page, &[]).await.status, 200, "an application sees all orders");
    let nobody = look(PROXY, "/orders/1?voucherId=7", &[("X-User-Id", "43")]).await;
    for path in [&page, &events] {
        let other = look(PROXY, path, &[("X-User-Id", "43")]).await;
        assert_eq!((other.status, &other.body["state"]), (404, &json!("unknown")), "{path}");
        let id = other.body["orderId"].as_str().expect("its id");
        assert_eq!(
            other.text,
            nobody.text.replace("\"1\"", &format!("\"{id}\"")),
            "as an order that nobody has"
        );
        assert_eq!(kind(&look(PROXY, path, &[]).await), (403, "no-user"));
        assert_eq!(kind(&look(STRANGER, path, &[("X-User-Id", "42")]).await), (403, "not-a-proxy"));
    }
    let payment = json!({ "event": "paid", "ref": "p", "voucherId": "7", "userId": "42" }).to_string();
    for path in [events.split('?').next().unwrap(), "/events"] {
        let forged = [JSON, ("X-User-Id", "42")];
        let forged = ask_on(scene.connect(PROXY).await, Method::POST, path, &forged, &payment).await;
        assert_eq!(
            kind(&forged.expect("an answer")),
            (403, "not-for-users"),
            "no user says that it has paid"
        );
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_by_one_address_is_refused_without_redis_and_holds_up_nobody_else() {
    let scene = Scene::open(1_000, &[("GATE_ATTEMPTS_BY_ADDRESS", "20/1h")]).await;
    // Each request begins its chain with an invented address, before the address that the proxy appended.
    let flood = (0..200).map(async |nth: u32| {
        let chain = format!("203.0.113.{}, 10.9.{nth}.1, 198.51.100.7", nth % 250);
        let body = json!({ "voucherId": "7", "userId": 1_000 + nth });
        scene.post(PROXY, &[("X-Forwarded-For", &chain)], &body).await
    });
    let ordinary = (1..=10).map(async |user: u32| {
        let body = json!({ "voucherId": "7", "userId": 100 + user });
        scene.post(PROXY, &[("X-Forwarded-For", "198.51.100.8, 127.0.0.1")], &body).await.status
    });
    let (flood, ordinary) = tokio::join!(join_all(flood), join_all(ordinary));
    assert_eq!(ordinary, [202; 10]);
    let refused: Vec<&Answer> =
        flood.iter().filter(|answer| kind(answer) == (429, "too-many-attempts")).collect();
    assert_eq!(refused.len(), 180);
    for answer in refused {
        let wait_ms = answer.body["retryAfterMs"].as_u64().expect("a number");
        let wait_s: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=180_000).contains(&wait_ms) && wait_s == wait_ms.div_ceil(1000), "{:#}", answer.body);
        assert!(answer.body["subject"].is_null());
    }
    assert_eq!(scene.fixture.redis_stock(7).await, Some(970), "20 and 10");
    let asked = scene.admissions().await;
    for _ in 0..20 {
        let body = json!({ "voucherId": "7", "userId": "1" });
        let refused = scene.post(PROXY, &[("X-Forwarded-For", "198.51.100.7")], &body).await;
        assert_eq!(kind(&refused), (429, "too-many-attempts"));
    }
    assert_eq!(scene.admissions().await, asked, "Redis was not asked");

    let metrics =
        ask_on(scene.connect(PROXY).await, Method::GET, "/metrics", &[], "").await.expect("an answer");
    let line = "tidegate_gate_requests_total{outcome=\"too-many-attempts\"} 200";
    assert!(metrics.text.lines().any(|found| found == line), "{}", metrics.text);

    // The header of a client that is no proxy does not count: the client changes the header each time, and not its
    // address.
    let strangers = (0..30).map(async |nth: u32| {
        let chain = format!("203.0.113.{nth}");
        let body = json!({ "voucherId": "7", "userId": 2_000 + nth });
        scene.post(STRANGER, &[("X-Forwarded-For", &chain)], &body).await.status
    });
    let strangers = join_all(strangers).await;
    assert_eq!(strangers.iter().filter(|status| **status == 202).count(), 20, "{strangers:?}");
    for page in ["/livez", "/readyz", "/openapi.json"] {
        let stream = scene.connect(STRANGER).await;
        assert_eq!(
            ask_on(stream, Method::GET, page, &[], "").await.expect("an answer").status,
            200,
            "{page}"
        );
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_user_and_phone_has_its_attempts_and_the_refusal_names_which() {
    let scene = Scene::open(1_000, &[("GATE_ATTEMPTS_BY_SUBJECT", "user=3/1h phone=2/1h")]).await;
    let order = |user: u32, phone: Option<&str>| match phone {
        Some(phone) => json!({ "voucherId": "7", "userId": user, "subjects": { "phone": phone } }),
        None => json!({ "voucherId": "7", "userId": user }),
    };
    for user in [1, 2] {
        assert_eq!(scene.post(STRANGER, &[], &order(user, Some("a"))).await.status, 202);
    }
    let asked = scene.admissions().await;
    let refused = scene.post(STRANGER, &[], &order(3, Some("a"))).await;
    assert_eq!(kind(&refused), (429, "too-many-attempts"));
    assert_eq!(refused.body["subject"], "phone", "{:#}", refused.body);
    assert_eq!(scene.admissions().await, asked, "Redis was not asked");
    for _ in 0..2 {
        assert_eq!(kind(&scene.post(STRANGER, &[], &order(1, None)).await), (409, "second-order"));
    }
    let refused = scene.post(STRANGER, &[], &order(1, None)).await;
    assert_eq!((refused.status, &refused.body["subject"]), (429, &json!("user")));

    // Any number of users may order, each with a phone of its own, and the gate still remembers the first one.
    let many = join_all((10..300).map(async |user: u32| {
        scene.post(STRANGER, &[], &order(user, Some(&format!("p{user}")))).await.status
    }));
    assert!(many.await.iter().all(|status| *status == 202));
    assert_eq!(kind(&scene.post(STRANGER, &[], &order(4, Some("a"))).await), (429, "too-many-attempts"));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_as_long_as_it_was_told_may_ask_again() {
    let scene = Scene::open(10, &[("GATE_ATTEMPTS_BY_SUBJECT", "user=1/1s")]).await;
    let body = json!({ "voucherId": "7", "userId": "1" });
    assert_eq!(scene.post(STRANGER, &[], &body).await.status, 202);
    let refused = scene.post(STRANGER, &[], &body).await;
    assert_eq!(kind(&refused), (429, "too-many-attempts"));
    let wait_ms = refused.body["retryAfterMs"].as_u64().expect("a number");
    tokio::time::sleep(std::time::Duration::from_millis(wait_ms)).await;
    assert_eq!(kind(&scene.post(STRANGER, &[], &body).await), (409, "second-order"));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_front_end_of_the_tutorial_hears_in_its_own_way_that_it_asked_too_often() {
    let login = ("GATE_TUTORIAL_LOGIN", "login:token:<token>");
    let limits = [("GATE_ATTEMPTS_BY_SUBJECT", "user=1/1h"), ("GATE_ATTEMPTS_BY_ADDRESS", "3/1h")];
    let scene = Scene::open(10, &[&[login], &limits[..]].concat()).await;
    for user in [1, 2] {
        scene.fixture.call(&format!("HSET login:token:t{user} id {user}")).await;
    }
    let buy = async |token: &str| -> Value {
        let stream = scene.connect(STRANGER).await;
        let headers = [("authorization", token)];
        let answer = ask_on(stream, Method::POST, "/voucher-order/seckill/7", &headers, "").await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body
    };
    let too_often = json!({ "success": false, "errorMsg": "操作太频繁，请稍后再试！" });
    assert_eq!(buy("t1").await["success"], true);
    assert_eq!(buy("t1").await, too_often, "this user");
    assert_eq!(buy("t2").await["success"], true);
    assert_eq!(buy("t2").await, too_often, "this address");
    scene.end().await;
}
