//! Requests to a worker's pages, as a scraper or a probe sends them, and to a gate, as callers send them.
#![allow(dead_code, reason = "every test file uses a part of it")]

use std::{collections::BTreeMap, error::Error, net::SocketAddr};

use http_body_util::{BodyExt, Empty, Full};
use hyper::{Method, Request, body::Bytes, client::conn::http1, header::AUTHORIZATION};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::fixture::{Worker, until};

/// The answer of a worker.
#[derive(Debug)]
pub struct Page {
    pub status: u16,
    pub content_type: String,
    pub text: String,
}

impl Page {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("no JSON ({error}): {self:?}"))
    }

    /// The samples of the text format, by name and labels as they are written.
    pub fn samples(&self) -> BTreeMap<String, f64> {
        let lines = self.text.lines().filter(|line| !line.starts_with('#'));
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ').expect("a sample");
            (name.to_owned(), value.parse().expect("a number"))
        };
        lines.map(sample).collect()
    }
}

/// The address on which a worker listens, as its log names it.
pub async fn address_of(worker: &Worker) -> SocketAddr {
    worker.says("admin server listens address=").await;
    let log = worker.log();
    let address = log.split("admin server listens address=").nth(1).expect("it was said");
    address.split_whitespace().next().expect("an address").parse().expect("an address")
}

/// Requests a page.
pub async fn ask(method: Method, address: SocketAddr, path: &str, authorization: Option<&str>) -> Page {
    let stream = TcpStream::connect(address).await.expect("the worker listens");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path).header("Host", "worker");
    if let Some(authorization) = authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    let request = request.body(Empty::<Bytes>::new()).expect("a request");
    let response = sender.send_request(request).await.expect("an answer");
    let content_type = response.headers().get("content-type").expect("a content type");
    let content_type = content_type.to_str().expect("text").to_owned();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    Page { status, content_type, text: String::from_utf8(body.to_vec()).expect("text") }
}

/// The reason why a request has no answer.
pub type Unanswered = Box<dyn Error + Send + Sync>;

/// Sends JSON to a gate. The answer is its status and its body.
///
/// # Errors
/// Fails if the gate does not accept the connection, or closes it before the answer.
pub async fn post_json(
    gate: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> Result<(u16, Value), Unanswered> {
    let stream = TcpStream::connect(gate).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let mut request = Request::post(path).header("Host", "gate").header("Content-Type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = sender.send_request(request.body(Full::new(Bytes::from(body.to_string())))?).await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, serde_json::from_slice(&body)?))
}

/// Requests a page of a worker with GET.
pub async fn get(worker: &Worker, path: &str) -> Page {
    ask(Method::GET, address_of(worker).await, path, None).await
}

/// Waits until all lanes of a worker have this activity.
pub async fn until_all(worker: &Worker, activity: &str) {
    until(&format!("all lanes are {activity}"), || async {
        let status = get(worker, "/status").await.json();
        let lanes = status["worker"]["lanes"].as_array().expect("lanes").clone();
        !lanes.is_empty() && lanes.iter().all(|lane| lane["activity"] == activity)
    })
    .await;
}

/// Requests a page again and again, until it has this status and contains this text.
pub async fn until_page(worker: &Worker, path: &str, status: u16, text: &str) {
    until(&format!("{path} says {status} and {text:?}"), || async {
        let page = get(worker, path).await;
        page.status == status && page.text.contains(text)
    })
    .await;
}
