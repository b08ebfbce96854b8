//! The comparison for the gate: the same HTTP library, the same Redis client with as many connections, and nothing
//! else.

use std::{convert::Infallible, time::Duration};

use anyhow::Result;
use clap::Args;
use fred::{clients::Pool, interfaces::KeysInterface};
use http_body_util::Full;
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tidegate_stream::{RedisConnectionSettings, connect_pool};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

/// The key that the handler reads.
pub const KEY: &str = "bare";
/// The number of connections, as in a process of Tidegate (`REDIS_CONNECTIONS`).
const CONNECTIONS: usize = 2;

/// A handler that reads one value from Redis for each request: `bench` compares the gate with it
#[derive(Args, Debug)]
pub struct BareHandler {
    /// The URL of Redis
    redis: String,
}

impl BareHandler {
    /// Serves requests until SIGTERM.
    pub fn run(self) -> Result<()> {
        tokio::runtime::Runtime::new()?.block_on(self.serve())
    }

    async fn serve(self) -> Result<()> {
        let mut end = signal(SignalKind::terminate())?;
        let limit = Duration::from_secs(5);
        let redis: Pool = connect_pool(&RedisConnectionSettings {
            master: None,
            sentinels: None,
            url: self.redis,
            connections: CONNECTIONS,
            command_timeout: limit,
            connect_timeout: limit,
        })
        .await?
        .into();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        // The same line as in the gate's log.
        eprintln!(r#"{{"address":"{}"}}"#, listener.local_addr()?);
        loop {
            tokio::select! {
                accepted = listener.accept() => serve(accepted?.0, &redis),
                _ = end.recv() => return Ok(()),
            }
        }
    }
}

fn serve(client: tokio::net::TcpStream, redis: &Pool) {
    let _best_effort = client.set_nodelay(true);
    let redis = redis.clone();
    let service = service_fn(move |_request: Request<Incoming>| {
        let redis = redis.clone();
        async move { Ok::<_, Infallible>(answer(&redis).await) }
    });
    tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(client), service));
}

async fn answer(redis: &Pool) -> Response<Full<Bytes>> {
    match redis.get::<Option<Bytes>, _>(KEY).await {
        Ok(value) => Response::new(Full::new(value.unwrap_or_default())),
        Err(error) => {
            let mut answer = Response::new(Full::new(Bytes::from(error.to_string())));
            *answer.status_mut() = StatusCode::BAD_GATEWAY;
            answer
        }
    }
}
