//! Who may ask the gate. Addresses of loopback stand for callers and proxies: 127.0.0.1 is a listed proxy.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use hyper::Method;
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};

use super::{Answer, address_of, ask_on};
use crate::{
    order_event::operator,
    site::{Site, Worker},
};

const PROXY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const JSON: (&str, &str) = ("Content-Type", "application/json");

struct Scene {
    site: Site,
    gate: Worker,
    address: SocketAddr,
}

impl Scene {
    /// A sale of so many units of voucher 7, and a gate with these settings that believes the proxy.
    async fn open(stock: u32, settings: &[(&str, &str)]) -> Self {
        let site = Site::open().await;
        operator(&site).run(&format!("voucher load --voucher 7 --stock {stock}")).expect(0);
        let plan = site.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").set("GATE_TRUSTED_PROXIES", PROXY);
        let plan = settings.iter().fold(plan, |plan, (name, value)| plan.set(name, value));
        let gate = plan.start_as("gate");
        let address = address_of(&gate).await;
        Self { site, gate, address }
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
    assert_eq!(scene.site.redis_stock(7).await, Some(9), "nobody has bought");

    assert_eq!(scene.post(PROXY, &[header], &unnamed).await.status, 202);
    assert_eq!(
        kind(&scene.post(PROXY, &[header], &named).await),
        (409, "second-order"),
        "it is the same user"
    );
    let own_word = scene.post(STRANGER, &[], &json!({ "voucherId": "7", "userId": "43" })).await;
    assert_eq!(own_word.status, 202, "{:#}", own_word.body);
    let buyers = scene.site.call("SMEMBERS seckill:order:7").await.into_array();
    let mut buyers: Vec<_> = buyers.iter().filter_map(fred::types::Value::as_string).collect();
    buyers.sort();
    assert_eq!(buyers, ["42", "43"]);
    scene.end().await;
}
