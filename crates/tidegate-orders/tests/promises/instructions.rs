//! How many instructions the worker takes for an order, from the reply of Redis to the acknowledgement. The build is
//! not optimised, and the clients of both stores are included.

use std::{env, process::Command};

use anyhow::{Context, Result, ensure};
use tokio::runtime::Builder;

use crate::drain::Drain;

/// The number of orders that the program below writes.
const ORDERS: &str = "TIDEGATE_TEST_ORDERS";
const BATCH: usize = 1_000;
/// 5 % more than when this test was written.
const MOST: f64 = 105_500.0;

#[test]
#[ignore = "it is the program that the test below counts"]
fn orders_are_written() -> Result<()> {
    let Ok(orders) = env::var(ORDERS) else { return Ok(()) };
    let orders: i64 = orders.parse()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut drain = runtime.block_on(Drain::open())?;
    runtime.block_on(drain.fill(orders))?;
    runtime.block_on(drain.run(orders, BATCH, None))?;
    Ok(())
}

/// Both counts contain the instructions of the start and the end, so the difference does not.
#[test]
fn plain_orders_in_full_batches_take_so_many_instructions_each_and_no_more() -> Result<()> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("left out: instructions were not counted, because there is no valgrind");
        return Ok(());
    }
    // Other servers split their replies differently.
    if ["TIDEGATE_LAB_REDIS", "TIDEGATE_LAB_MYSQL"].iter().any(|name| env::var_os(name).is_some()) {
        eprintln!("left out: instructions are counted with the servers of the system only");
        return Ok(());
    }
    let (few, many) = (5_000, 15_000);
    let each = (instructions(many)? - instructions(few)?) as f64 / (many - few) as f64;
    assert!((10_000.0..MOST).contains(&each), "{each} instructions an order");
    Ok(())
}

fn instructions(orders: i64) -> Result<i64> {
    let counted = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(env::current_exe()?)
        .args(["--ignored", "--exact", "instructions::orders_are_written"])
        .env(ORDERS, orders.to_string())
        .output()?;
    let told = String::from_utf8_lossy(&counted.stderr);
    ensure!(counted.status.success(), "{told}");
    let count = told
        .lines()
        .find_map(|line| line.split_once("Collected :"))
        .context("valgrind tells what it counted")?;
    Ok(count.1.trim().parse()?)
}
