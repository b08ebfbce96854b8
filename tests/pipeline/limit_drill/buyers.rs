//! A buyer in the regions of a campaign, and the events of the buyer's orders.

use std::sync::atomic::Ordering::Relaxed;

use rand::{RngExt, rngs::StdRng, seq::IndexedRandom};
use tidegate_orders::{
    Subjects,
    scripts::{Admission, AdmitReply},
};

use super::{Drill, REGIONS};

const STEPS: usize = 30;

/// The order and its voucher.
type Bought = (i64, i64);

/// Places random orders, and reports random events of them.
pub async fn buys(drill: &Drill<'_>, user: i64, mut random: StdRng) {
    let mut orders: Vec<Bought> = Vec::new();
    for _ in 0..STEPS {
        let events: &[&str] = match random.random_range(0..12) {
            0..6 => {
                orders.extend(asks(drill, user, &mut random).await);
                continue;
            }
            6..9 => &["cancelled"],
            9 => &["paid"],
            10 => &["paid", "refunding", "refunded"],
            _ => &["paid", "used"],
        };
        if let Some(order) = orders.choose(&mut random) {
            for event in events {
                happens(drill, event, user, *order).await;
            }
        }
    }
}

/// Requests an order. Some callers get no reply, and repeat their request.
async fn asks(drill: &Drill<'_>, user: i64, random: &mut StdRng) -> Option<Bought> {
    let (order, voucher) = (drill.next.fetch_add(1, Relaxed), *REGIONS.choose(random).expect("three"));
    let subjects = Subjects::none()
        .with("phone", &format!("p{}", random.random_range(0..8)))
        .and_then(|all| all.with("address", &format!("a/{}", random.random_range(0..5))))
        .and_then(|all| all.with("device", &format!("d{}", random.random_range(0..12))));
    let admission = Admission {
        order: order.try_into().expect("an order id"),
        user: user.try_into().expect("a user id"),
        voucher: voucher.try_into().expect("a voucher id"),
        quantity: random.random_range(1..=2).try_into().expect("a quantity"),
        subjects: subjects.expect("names and values"),
        traceparent: None,
    };
    let is_lost = random.random_range(0..4) == 0;
    let mut reply = drill.store.admissions().admit(&admission).await.expect("the store answers");
    if is_lost {
        let was_admitted = reply.is_admitted();
        reply = drill.store.admissions().admit(&admission).await.expect("the store answers");
        assert!(reply == AdmitReply::AdmittedBefore || !was_admitted, "order {order}: {reply:?}");
    }
    reply.is_admitted().then_some((order, voucher))
}

async fn happens(drill: &Drill<'_>, event: &str, user: i64, (order, voucher): Bought) {
    let reference = format!("{event}-{order}");
    let (order, user, voucher) = (order.to_string(), user.to_string(), voucher.to_string());
    let fields = [
        ("event", event),
        ("orderId", &*order),
        ("userId", &user),
        ("voucherId", &voucher),
        ("ref", &reference),
    ];
    drill.fixture.add(&fields).await;
}
