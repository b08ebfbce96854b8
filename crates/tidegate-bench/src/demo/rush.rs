//! The buyers: clicks on a schedule, some of them twice, some of them again after a lost reply.

use std::{
    collections::HashSet,
    fmt,
    net::SocketAddr,
    num::NonZeroU32,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rand::seq::SliceRandom;
use tidegate_orders::{
    OrderId, Quantity, UserId,
    scripts::{Admission, AdmitReply},
};
use tokio::{
    sync::mpsc::UnboundedSender,
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    http_caller::{HttpCaller, Told},
    market::{Market, Stall, retry_until_ready},
};

/// The number of concurrent callers.
const CALLERS: usize = 64;
/// Every n-th buyer clicks twice, as two orders.
const CLICKS_TWICE: u32 = 10;
/// Every n-th click is sent again with the same order id, like the retry of a caller that got no reply.
const LOST_REPLY: usize = 25;

/// All clicks of a sale.
pub struct Rush {
    pub market: Arc<Market>,
    /// The addresses of the gates; empty: callers use Redis directly.
    pub gates: Vec<SocketAddr>,
    pub buyers: u32,
    /// The clicks per second.
    pub rate: NonZeroU32,
    /// The channel for the admitted orders and their users.
    pub admitted: UnboundedSender<(OrderId, UserId)>,
}

/// The answers that the buyers got.
#[derive(Default)]
pub struct Sales {
    clicks: AtomicU32,
    sold_out: AtomicU32,
    user_has_order: AtomicU32,
    over_limit: AtomicU32,
    asked_again: AtomicU32,
    admitted: Mutex<HashSet<i64>>,
}

impl Rush {
    /// The number of clicks.
    pub fn clicks(&self) -> u32 {
        self.buyers + self.buyers / CLICKS_TWICE
    }

    /// Sends every click at its time, whether or not earlier ones are answered.
    pub async fn run(self, sales: Arc<Sales>) -> Result<()> {
        let mut users: Vec<u32> = (1..=self.buyers).collect();
        users.extend((1..=self.buyers).filter(|user| user % CLICKS_TWICE == 0));
        users.shuffle(&mut rand::rng());
        let (rush, users) = (Arc::new(self), Arc::new(users));
        let (next, began) = (Arc::new(Mutex::new(0_usize)), Instant::now());
        let mut callers = JoinSet::new();
        for number in 0..CALLERS {
            let (rush, users, next, sales) =
                (Arc::clone(&rush), Arc::clone(&users), Arc::clone(&next), Arc::clone(&sales));
            callers.spawn(async move {
                let mut http = HttpCaller::new(&rush.gates, number);
                loop {
                    let at = {
                        let mut next = next.lock().expect("no caller panics with the lock");
                        *next += 1;
                        *next - 1
                    };
                    let Some(user) = users.get(at) else { return anyhow::Ok(()) };
                    sleep_until(began + Duration::from_secs_f64(at as f64 / f64::from(rush.rate.get())))
                        .await;
                    let user = UserId::try_from(i64::from(*user))?;
                    let is_reply_lost = at % LOST_REPLY == 0;
                    match rush.gates.is_empty() {
                        true => rush.click(user, is_reply_lost, &sales).await?,
                        false => rush.click_over_http(&mut http, user, at, is_reply_lost, &sales).await?,
                    }
                }
            });
        }
        while let Some(ended) = callers.join_next().await {
            ended??;
        }
        Ok(())
    }

    async fn click_over_http(
        &self,
        http: &mut HttpCaller,
        user: UserId,
        at: usize,
        is_reply_lost: bool,
        sales: &Sales,
    ) -> Result<()> {
        let region = self.market.of_user(user).region.context("Over HTTP, a campaign is sold")?;
        // Each click is one order, however often it is sent.
        let key = format!("click-{at}");
        let mut told = http.buy(region, user, &key).await?;
        if let (true, Told::Admitted(order)) = (is_reply_lost, told) {
            let again = http.buy(region, user, &key).await?;
            if again != Told::AdmittedBefore(order) {
                bail!("Order {order} was admitted, and asked again the gate says {again:?}");
            }
            sales.asked_again.fetch_add(1, Relaxed);
            told = again;
        }
        if let Told::Admitted(order) | Told::AdmittedBefore(order) = told {
            // The receiver is gone: the demo has failed elsewhere.
            let _ = self.admitted.send((order, user));
        }
        sales.note(told);
        Ok(())
    }

    async fn click(&self, user: UserId, is_reply_lost: bool, sales: &Sales) -> Result<()> {
        let Stall { voucher, gate, ids, .. } = self.market.of_user(user);
        let order = retry_until_ready(|| ids.next()).await.context("Failed to get an order id")?;
        let (quantity, traceparent) = (Quantity::ONE, None);
        let wanted = Admission {
            order,
            user,
            voucher: *voucher,
            quantity,
            subjects: tidegate_orders::Subjects::none(),
            traceparent,
        };
        let reply =
            retry_until_ready(|| gate.admissions().admit(&wanted)).await.context("Failed to ask the gate")?;
        if is_reply_lost && reply == AdmitReply::Admitted {
            let again = retry_until_ready(|| gate.admissions().admit(&wanted)).await;
            let again = again.context("Failed to ask the gate again")?;
            if again != AdmitReply::AdmittedBefore {
                bail!("Order {} was admitted, and asked again the gate says {again:?}", wanted.order);
            }
            sales.asked_again.fetch_add(1, Relaxed);
        }
        if reply.is_admitted() {
            // The receiver is gone: the demo has failed elsewhere.
            let _ = self.admitted.send((wanted.order, wanted.user));
        }
        let order = wanted.order;
        sales.note(match reply {
            AdmitReply::Admitted => Told::Admitted(order),
            AdmitReply::AdmittedBefore => Told::AdmittedBefore(order),
            AdmitReply::SoldOut => Told::SoldOut,
            AdmitReply::UserHasOrder => Told::UserHasOrder,
            other => bail!("The gate says {other:?} in the middle of the sale"),
        });
        Ok(())
    }
}

impl Sales {
    fn note(&self, told: Told) {
        let counted = match told {
            Told::Admitted(order) | Told::AdmittedBefore(order) => {
                self.admitted.lock().expect("nobody panics with the lock").insert(order.get());
                None
            }
            Told::SoldOut => Some(&self.sold_out),
            Told::UserHasOrder => Some(&self.user_has_order),
            Told::OverLimit => Some(&self.over_limit),
        };
        counted.map(|counted| counted.fetch_add(1, Relaxed));
        self.clicks.fetch_add(1, Relaxed);
    }

    /// The number of clicks that were answered.
    pub fn clicks(&self) -> u32 {
        self.clicks.load(Relaxed)
    }

    /// The number of orders that were admitted.
    pub fn admitted_count(&self) -> usize {
        self.admitted.lock().expect("nobody panics with the lock").len()
    }

    /// Whether a buyer got the answer "sold out".
    pub fn is_sold_out(&self) -> bool {
        self.sold_out.load(Relaxed) > 0
    }

    /// The ids of the orders that were reported as admitted.
    pub fn admitted(&self) -> HashSet<i64> {
        self.admitted.lock().expect("nobody panics with the lock").clone()
    }
}

impl fmt::Display for Sales {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} clicks: {} admitted, {} sold out, {} had an order already{}; {} asked again after a lost reply and got \
             the same order",
            self.clicks(),
            self.admitted_count(),
            self.sold_out.load(Relaxed),
            self.user_has_order.load(Relaxed),
            match self.over_limit.load(Relaxed) {
                0 => String::new(),
                refused => format!(", {refused} were over a limit"),
            },
            self.asked_again.load(Relaxed)
        )
    }
}
