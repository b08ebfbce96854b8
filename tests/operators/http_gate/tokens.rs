//! Tests of tokens: what each token permits at the gate and at the admin pages, and how a token ends.

use std::{fs, net::SocketAddr};

use hyper::Method;
use serde_json::json;
use tempfile::TempDir;

use super::{address_of, ask};
use crate::{
    browser,
    fixture::{Fixture, tokens::token_digest, until},
    order_event::operator,
};

const SHOP: &str = "shop-0123456789abcdef";
const PAGE: &str = "page-0123456789abcdef";

fn entry(name: &str, digest: &str, scopes: &str) -> String {
    format!("[[tokens]]\nname = \"{name}\"\n{digest}\nscopes = [{scopes}]\n")
}

async fn status(address: SocketAddr, method: Method, path: &str, token: &str) -> u16 {
    let bearer = format!("Bearer {token}");
    let headers = [("Content-Type", "application/json"), ("Authorization", bearer.as_str())];
    let body = json!({ "voucherId": "7", "userId": "1" }).to_string();
    ask(address, method, path, &headers, &body).await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_permits_its_scopes_everywhere_and_ends_when_it_is_removed() {
    let fixture = Fixture::open().await;
    operator(&fixture).run("voucher load --voucher 7 --stock 9").expect(0);
    let dir = TempDir::new().expect("a folder");
    let (file, digest_file) = (dir.path().join("tidegate.toml"), dir.path().join("page.sha256"));
    let shop = entry("shop", &format!("sha256 = \"{}\"", token_digest(SHOP)), "\"order\", \"results\"");
    let page = entry("page", &format!("sha256_file = {digest_file:?}"), "\"read\"");
    fs::write(&digest_file, format!("{}  -\n", token_digest(PAGE))).expect("it is written");
    fs::write(&file, format!("{shop}{page}")).expect("it is written");
    let plan = fixture.worker("w").set("CONFIG", file.display()).set("GATE_LISTEN", "127.0.0.1:0");
    let both = plan.start_with(&["worker", "--gate"]);
    let (gate, admin) = (address_of(&both).await, browser::address_of(&both).await);

    for (method, path, of_shop, of_page) in [
        (Method::POST, "/orders", 202, 403),
        (Method::GET, "/orders/1?voucherId=7", 404, 404),
        (Method::GET, "/results", 200, 403),
        (Method::GET, "/metrics", 403, 200),
        (Method::GET, "/openapi.json", 200, 200),
    ] {
        let told = [SHOP, PAGE, "x"].map(|token| status(gate, method.clone(), path, token));
        let [shop, page, other] = told;
        assert_eq!((shop.await, page.await), (of_shop, of_page), "{method} {path}");
        assert_eq!(other.await, if path == "/openapi.json" { 200 } else { 401 }, "{method} {path}");
    }
    let told =
        ask(gate, Method::POST, "/orders", &[("Authorization", &format!("Bearer {PAGE}"))], "").await.body;
    assert_eq!(
        (&told["type"], &told["scopes"]),
        (&json!("/problems/no-scope"), &json!(["order"])),
        "{told:#}"
    );
    for (path, token, expected) in
        [("/status", PAGE, 200), ("/status", SHOP, 403), ("/status", "x", 401), ("/livez", "x", 200)]
    {
        assert_eq!(status(admin, Method::GET, path, token).await, expected, "{path} {token}");
    }

    let page_bearer = format!("Bearer {PAGE}");
    let turns = async |token: &str, expected: u16| {
        until("the list was read again", || async {
            status(gate, Method::GET, "/orders/1?voucherId=7", token).await == expected
        })
        .await;
    };
    fs::remove_file(&digest_file).expect("it is there");
    turns(PAGE, 401).await;
    assert_eq!(status(gate, Method::POST, "/orders", SHOP).await, 409, "the other token still works");
    both.says("cannot read a token again").await;
    fs::write(&digest_file, token_digest(PAGE)).expect("it is written");
    turns(PAGE, 404).await;
    fs::write(&file, "[[tokens]]\nname =").expect("it is written");
    both.says("is not TOML").await;
    assert_eq!(status(gate, Method::POST, "/orders", SHOP).await, 409, "a mistake takes no token away");
    // A stream that is open ends with the list, and its client is asked for its token again.
    let bearer = format!("Bearer {SHOP}");
    let headers = [("Authorization", bearer.as_str()), ("Accept", "text/event-stream")];
    let followed = ask(gate, Method::GET, "/results", &headers, "");
    let (followed, ()) = tokio::join!(followed, async {
        let metrics =
            async || ask(gate, Method::GET, "/metrics", &[("Authorization", &page_bearer)], "").await.text;
        until("the stream is open", || async {
            metrics().await.contains("tidegate_gate_result_followers 1")
        })
        .await;
        fs::write(&file, &page).expect("it is written");
    });
    assert!(followed.text.contains(": come again"), "{}", followed.text);
    turns(SHOP, 401).await;
    fs::write(&file, "").expect("it is written");
    turns(PAGE, 401).await;
    assert_eq!(ask(gate, Method::GET, "/metrics", &[], "").await.status, 401, "an empty list opens no door");
    assert!(both.stop().await.success());
}
