//! Arrivals on a schedule, on a separate thread and connection. An order that is sent late is late for its buyer, too:
//! latencies count from the schedule, whatever delayed the sender.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, ensure};

use super::{
    fixture::STREAM,
    orders::{NewOrder, Orders},
    resp::put_command,
};

/// Sends `orders` at `rate` a second, from `begin` on; ends when all are sent.
pub fn start(port: u16, orders: Orders, rate: f64, begin: Instant) -> Result<JoinHandle<Result<()>>> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    Ok(thread::spawn(move || {
        let count = orders.len();
        let answers = stream.try_clone()?;
        let reader = thread::spawn(move || count_answers(answers, count));
        send(stream, &orders.iter().collect::<Vec<_>>(), rate, begin)?;
        reader.join().map_err(|_| anyhow!("The reader of answers panicked"))?
    }))
}

/// The time at which order number `at` is due.
pub fn due(begin: Instant, rate: f64, at: usize) -> Instant {
    begin + Duration::from_secs_f64(at as f64 / rate)
}

fn send(mut stream: TcpStream, orders: &[NewOrder], rate: f64, begin: Instant) -> Result<()> {
    let mut packet = Vec::new();
    let mut next = 0;
    while next < orders.len() {
        thread::sleep(due(begin, rate, next).saturating_duration_since(Instant::now()));
        let now = Instant::now();
        packet.clear();
        while next < orders.len() && due(begin, rate, next) <= now {
            let NewOrder { id, user, voucher } = orders[next];
            let [id, user, voucher] = [id, user, voucher].map(|number| number.to_string());
            let words = ["XADD", STREAM, "*", "userId", &user, "voucherId", &voucher, "id", &id];
            put_command(&mut packet, &words);
            next += 1;
        }
        stream.write_all(&packet)?;
    }
    Ok(())
}

/// Counts the answers. Each is an entry id; an error among them ends the measurement.
fn count_answers(mut stream: TcpStream, count: usize) -> Result<()> {
    let (mut lines, mut is_line_start) = (0, true);
    let mut chunk = vec![0; 64 * 1024];
    while lines < 2 * count {
        let read = stream.read(&mut chunk)?;
        ensure!(read > 0, "Redis has closed the connection");
        for byte in &chunk[..read] {
            ensure!(!(is_line_start && *byte == b'-'), "{}", String::from_utf8_lossy(&chunk[..read]));
            is_line_start = *byte == b'\n';
            lines += usize::from(is_line_start);
        }
    }
    Ok(())
}
