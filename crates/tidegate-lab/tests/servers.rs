//! What the lab promises about its servers.

use std::time::Instant;

use tidegate_lab::{MysqlServer, RedisServer};

#[test]
fn start_times() {
    let begun = Instant::now();
    let redis = RedisServer::start().unwrap();
    println!("redis: {:?} {}", begun.elapsed(), redis.url());
    for _ in 0..2 {
        let begun = Instant::now();
        let mysql = MysqlServer::start().unwrap();
        println!("mysql: {:?} {}", begun.elapsed(), mysql.url());
        mysql.kill9().unwrap();
        let begun = Instant::now();
        mysql.restart().unwrap();
        println!("after kill: {:?}", begun.elapsed());
        mysql.stop().unwrap();
        mysql.cont().unwrap();
    }
}
