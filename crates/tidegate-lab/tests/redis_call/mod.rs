//! One command to a Redis, without a proxy.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// The raw reply to an inline command, such as `GET a`.
pub fn call(port: u16, command: &str) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connect");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("timeout");
    stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes()).expect("write");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("read");
    reply.strip_suffix("+OK\r\n").expect("the reply to QUIT").to_owned()
}
