//! Test of the tutorial's front end with the gate.

use hyper::Method;
use serde_json::json;

use super::{Answer, address_of, ask};
use crate::{
    fixture::{Fixture, tokens::token_entry, until},
    order_event::operator,
};

#[tokio::test(flavor = "multi_thread")]
async fn the_front_end_of_the_tutorial_is_answered_as_by_its_own_service() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    program.run("voucher load --voucher 7 --stock 2").expect(0);
    program.run("voucher load --voucher 8 --stock 2 --begin 2037-01-01T00:00:00Z").expect(0);
    for user in 1..=4 {
        let login = format!("HSET login:token:t{user} id {user} nickName n icon \"\"");
        fixture.call(&login).await;
    }
    let plan = fixture
        .worker("gate")
        .set("GATE_LISTEN", "127.0.0.1:0")
        .set("TOKENS", token_entry("shop", "order", "0123456789abcdef"));
    let gate = plan.set("GATE_TUTORIAL_LOGIN", "login:token:<token>").start_as("gate");
    let address = address_of(&gate).await;
    let buy = async |voucher: &str, token: &str| -> Answer {
        let path = format!("/voucher-order/seckill/{voucher}");
        ask(address, Method::POST, &path, &[("authorization", token)], "").await
    };
    let bought = buy("7", "t1").await;
    assert_eq!((bought.status, &bought.body["success"]), (200, &json!(true)), "{:#}", bought.body);
    assert!(bought.body["data"].as_str().is_some_and(|id| id.len() > 15), "{:#}", bought.body);
    for (voucher, token, message) in [
        ("7", "t1", Some("不能重复下单！")),
        ("7", "t2", None),
        ("7", "t3", Some("库存不足！")),
        ("8", "t3", Some("秒杀尚未开始！")),
        ("9", "t3", Some("优惠券不存在！")),
        ("x", "t3", Some("优惠券不存在！")),
    ] {
        let answer = buy(voucher, token).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.body["success"], json!(message.is_none()), "{voucher} {token}: {}", answer.text);
        assert_eq!(answer.body["errorMsg"].as_str(), message, "{voucher} {token}");
    }
    for nobody in ["", "t9", "no such"] {
        assert_eq!(buy("7", nobody).await.status, 401, "{nobody:?}");
    }
    let worker = fixture.worker("w").start();
    until("both are written", || async { fixture.live_orders().await.len() == 2 }).await;
    assert!(worker.stop().await.success());
    assert!(gate.stop().await.success());

    let gate = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
    let address = address_of(&gate).await;
    let off = ask(address, Method::POST, "/voucher-order/seckill/7", &[("authorization", "t4")], "").await;
    assert_eq!(off.status, 404, "it is off by default");
    assert!(gate.stop().await.success());
}
