//! The gate over HTTP, compared with a bare handler of the same HTTP library that reads one value from the same Redis
//! for each request. It measures the answers per second, the latency at half of that rate, and the memory for idle
//! clients.

mod answers;
mod bare_handler;
pub mod callers;
mod idle;
mod open_loop;
pub mod server;

use std::time::Duration;

use anyhow::Result;

use self::{
    callers::{CALLERS, Load, request},
    server::Server,
};
use super::{
    admission::open_sale,
    fixture::Fixture,
    meter::RedisReading,
    results::{
        AtRate, Rate,
        gate::{GateResults, HttpCalls},
    },
    sizes::Sizes,
    writers::tell,
};

pub use self::bare_handler::BareHandler;

/// The most calls before a measurement.
pub const WARM_UP: usize = 5_000;

/// The server under test.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    Gate,
    BareHandler,
}

/// Measures the gate and the bare handler `rounds` times in turn, then the gate alone.
pub async fn measure(fixture: &mut Fixture, sizes: &Sizes) -> Result<GateResults> {
    let mut found = [const { Vec::new() }; 2];
    for _ in 0..sizes.rounds {
        for (at, asked) in [Asked::Gate, Asked::BareHandler].into_iter().enumerate() {
            found[at].push(once(fixture, asked, sizes.calls).await?);
        }
    }
    let [gate, bare_handler] = found.map(conclude);
    tell("gate, at half of its rate");
    let at_half = at_half(fixture, sizes, gate.per_s.median / 2.0).await?;
    tell("gate, idle connections");
    let idle = idle::measure(fixture, sizes.idle).await?;
    Ok(GateResults { callers: callers::CALLERS, gate, bare_handler, at_half, idle })
}

/// The result of one run: calls per second, and the CPU time of a call in microseconds, of the server and of Redis.
pub type Run = (f64, f64, f64);

pub fn conclude(runs: Vec<Run>) -> HttpCalls {
    let of = |figure: fn(&Run) -> f64| Rate::of(runs.iter().map(figure).collect());
    HttpCalls { per_s: of(|run| run.0), server_cpu_us: of(|run| run.1), redis_cpu_us: of(|run| run.2) }
}

/// Measures one run.
pub async fn once(fixture: &mut Fixture, asked: Asked, calls: usize) -> Result<Run> {
    let (server, wanted_status) = start(fixture, asked).await?;
    let load = Load { address: server.address(), wanted_status };
    load.closed_loop(requests(fixture, calls.min(WARM_UP)), CALLERS).await?;
    let requests = requests(fixture, calls);
    let run = measured(fixture, &server, calls, load.closed_loop(requests, CALLERS)).await?;
    server.stop()?;
    Ok(run)
}

/// Measures `work`, which makes this many calls and returns its duration.
pub async fn measured(
    fixture: &mut Fixture,
    server: &Server,
    calls: usize,
    work: impl Future<Output = Result<Duration>>,
) -> Result<Run> {
    let (redis_before, cpu_before_s) = (RedisReading::take(&mut fixture.redis).await?, server.cpu_s());
    let took = work.await?;
    let (redis_after, cpu_after_s) = (RedisReading::take(&mut fixture.redis).await?, server.cpu_s());
    let of_a_call = |seconds: f64| seconds * 1e6 / calls as f64;
    Ok((
        calls as f64 / took.as_secs_f64(),
        of_a_call(cpu_after_s - cpu_before_s),
        of_a_call(redis_after.cpu_s - redis_before.cpu_s),
    ))
}

/// Requests of this many new orders.
fn requests(fixture: &mut Fixture, calls: usize) -> Vec<Vec<u8>> {
    fixture.numbers.take(calls, 1).iter().map(request).collect()
}

/// Starts the server with an empty Redis and one voucher on sale. Returns it with the expected status of an answer.
async fn start(fixture: &mut Fixture, asked: Asked) -> Result<(Server, u16)> {
    let _gate = open_sale(fixture).await?;
    let redis = fixture.redis_server.url();
    Ok(match asked {
        Asked::Gate => (Server::gate(&fixture.program, &redis, &[]).await?, 202),
        Asked::BareHandler => {
            fixture.redis.call(&["SET", bare_handler::KEY, "what a handler looks up"]).await?;
            (Server::bare_handler(&redis).await?, 200)
        }
    })
}

/// Measures several runs, and returns the one whose p99 is the median.
async fn at_half(fixture: &mut Fixture, sizes: &Sizes, rate: f64) -> Result<AtRate> {
    let mut runs = Vec::new();
    for _ in 0..sizes.rounds {
        let (server, wanted_status) = start(fixture, Asked::Gate).await?;
        let load = Load { address: server.address(), wanted_status };
        load.closed_loop(requests(fixture, sizes.calls.min(WARM_UP)), CALLERS).await?;
        let orders = fixture.numbers.take(((rate * sizes.latency.as_secs_f64()) as usize).max(100), 1);
        runs.push(open_loop::measure(load, &orders, rate).await?);
        server.stop()?;
    }
    runs.sort_by(|a, b| a.p99_ms.total_cmp(&b.p99_ms));
    Ok(runs.swap_remove(runs.len() / 2))
}
