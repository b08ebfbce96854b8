//! A buyer over HTTP, with two gates: if one does not answer, it sends the same request to the other.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, StatusCode,
    body::Bytes,
    client::conn::http1::{self, SendRequest},
    header::{CONTENT_TYPE, HOST},
};
use hyper_util::rt::TokioIo;
use tidegate_orders::{OrderId, UserId};
use tokio::{
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use super::market::{PATIENCE, phone_of};

/// The time to wait for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// The answer that a buyer got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Admitted(OrderId),
    AdmittedBefore(OrderId),
    SoldOut,
    UserHasOrder,
    OverLimit,
}

/// A client with its own connection.
#[derive(Debug)]
pub struct HttpCaller {
    gates: Vec<SocketAddr>,
    at: usize,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl HttpCaller {
    /// Creates a client that begins with gate number `at`.
    pub fn new(gates: &[SocketAddr], at: usize) -> Self {
        Self { gates: gates.to_vec(), at, connection: None }
    }

    /// Places an order with this idempotency key, and repeats that until there is an answer.
    pub async fn buy(&mut self, region: &str, user: UserId, key: &str) -> Result<Told> {
        let phone = phone_of(user);
        let body = format!(
            r#"{{"campaignId":"1","region":"{region}","userId":"{user}","subjects":{{"phone":"{phone}"}}}}"#
        );
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = timeout(ANSWER_WITHIN, self.ask(&body, key)).await;
            match answer {
                Ok(Ok((status, answer))) if !status.is_server_error() => return read(status, &answer),
                // The gate died, or cannot reach Redis: the other one knows the order, or admits it.
                _ if Instant::now() < deadline => {
                    (self.connection, self.at) = (None, self.at + 1);
                    sleep(Duration::from_millis(50)).await;
                }
                Ok(Ok((status, answer))) => bail!("The gate says {status}: {answer}"),
                Ok(Err(error)) => return Err(error),
                Err(_) => bail!("No gate answers in time"),
            }
        }
    }

    async fn ask(&mut self, body: &str, key: &str) -> Result<(StatusCode, String)> {
        let address = self.gates[self.at % self.gates.len()];
        if self.connection.as_ref().is_none_or(SendRequest::is_closed) {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            // The task ends with the sender.
            tokio::spawn(connection);
            self.connection = Some(sender);
        }
        let sender = self.connection.as_mut().context("It was made a moment ago")?;
        sender.ready().await?;
        let request = Request::post("/orders").header(HOST, address.to_string());
        let request = request.header(CONTENT_TYPE, "application/json").header("Idempotency-Key", key);
        let answer = sender.send_request(request.body(Full::new(Bytes::from(body.to_owned())))?).await?;
        let status = answer.status();
        let answer = answer.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8_lossy(&answer).into_owned()))
    }
}

fn read(status: StatusCode, answer: &str) -> Result<Told> {
    let has = |text: &str| answer.contains(text);
    if status == StatusCode::ACCEPTED {
        let id = answer.split_once(r#""orderId":""#).and_then(|(_, rest)| rest.split_once('"'));
        let (id, _) = id.with_context(|| format!("There is no order id in {answer}"))?;
        let order = OrderId::parse(id.as_bytes())?;
        let is_old = has(r#""outcome":"admitted_before""#);
        ensure!(is_old || has(r#""outcome":"admitted""#), "The gate says {answer}");
        return Ok(if is_old { Told::AdmittedBefore(order) } else { Told::Admitted(order) });
    }
    match () {
        () if has("/problems/sold-out\"") => Ok(Told::SoldOut),
        () if has("/problems/second-order\"") => Ok(Told::UserHasOrder),
        () if has("/problems/over-limit\"") => Ok(Told::OverLimit),
        () => bail!("In the middle of the sale the gate says {status}: {answer}"),
    }
}
