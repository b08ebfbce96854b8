//! The web shop of `examples/shop` beside the sale. It sells a voucher of its own through a gate, to visitors.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use rand::RngExt;
use sha2::{Digest, Sha256};

use super::fleet::Fleet;

/// The voucher that the shop sells. The buyers of the demo do not buy it.
pub const SHOP_VOUCHER: i64 = 1_000;
const STOCK: &str = "100";
/// The time that visitors have to pay.
const PAY_WITHIN: &str = "60s";
const SHOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/shop/shop.py");

/// The process of the shop.
pub struct Shop {
    child: Child,
    /// The line in which the shop names its address.
    opening: String,
}

impl Shop {
    /// Checks that the shop can run here.
    pub fn ensure_python() -> Result<()> {
        let is_new_enough = "import sys; sys.exit(sys.version_info < (3, 10))";
        let run = Command::new("python3").args(["-c", is_new_enough]).output();
        let is_here = run.is_ok_and(|run| run.status.success());
        ensure!(is_here, "The shop needs Python 3.10 or later: apt-get install python3");
        Ok(())
    }

    /// Puts the voucher on sale, and starts a gate and the shop.
    pub async fn open(fleet: &mut Fleet) -> Result<Self> {
        let voucher = SHOP_VOUCHER.to_string();
        let load = ["voucher", "load", "--voucher", &voucher, "--stock", STOCK, "--pay-within", PAY_WITHIN];
        fleet.tidegate(&load)?;
        let token = hex(&rand::rng().random::<[u8; 32]>());
        let tokens = format!("shop:order+event:{}", hex(&Sha256::digest(&token)));
        let gate = fleet.start_gate("gate", &[("TIDEGATE_TOKENS", &tokens)]).await?;
        let gate = format!("http://{gate}");
        let mut child = Command::new("python3")
            .arg(SHOP)
            .envs([("SHOP_GATE", &gate), ("SHOP_TOKEN", &token), ("SHOP_VOUCHER", &voucher)])
            .env("SHOP_LISTEN", "127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("Failed to start the shop")?;
        let mut opening = String::new();
        BufReader::new(child.stdout.take().context("It has an output")?).read_line(&mut opening)?;
        let shop = Self { child, opening: opening.trim().to_owned() };
        ensure!(!shop.opening.is_empty(), "The shop did not open (see above)");
        println!("  {}", shop.opening);
        Ok(shop)
    }

    /// Serves visitors until Ctrl-C.
    pub async fn serve(self) -> Result<()> {
        println!("\n{} (Ctrl-C closes it)", self.opening);
        Ok(tokio::signal::ctrl_c().await?)
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
