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
    url: String,
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

    /// Puts the voucher on sale, and starts a gate and the shop. Workers that start later send their results to the
    /// shop.
    pub async fn open(fleet: &mut Fleet) -> Result<Self> {
        let voucher = SHOP_VOUCHER.to_string();
        let load = ["voucher", "load", "--voucher", &voucher, "--stock", STOCK, "--pay-within", PAY_WITHIN];
        fleet.tidegate(&load)?;
        let (token, secret) = (random_digits(), format!("whsec_{}", random_digits()));
        let digest = hex(&Sha256::digest(&token));
        fleet.set("TIDEGATE_TOKENS", format!("shop:order+event:{digest}"));
        let gate = format!("http://{}", fleet.start_gate("gate").await?);
        let mut child = Command::new("python3")
            .arg(SHOP)
            .envs([("SHOP_GATE", &gate), ("SHOP_TOKEN", &token), ("SHOP_VOUCHER", &voucher)])
            .envs([("SHOP_LISTEN", "127.0.0.1:0"), ("SHOP_WEBHOOK_SECRET", &secret)])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("Failed to start the shop")?;
        let mut opening = String::new();
        let output = child.stdout.take().context("The shop has an output")?;
        BufReader::new(output).read_line(&mut opening)?;
        let url = opening.split_whitespace().last().unwrap_or_default().to_owned();
        let shop = Self { child, url };
        ensure!(!shop.url.is_empty(), "The shop did not open (see above)");
        let file = fleet.file("webhook-secret", &secret)?;
        fleet.set("TIDEGATE_WEBHOOKS", format!("shop:{file}:{}/hooks", shop.url));
        println!("  a web shop is open, too: {}", shop.url);
        Ok(shop)
    }

    /// Serves visitors until Ctrl-C.
    pub async fn serve(self) -> Result<()> {
        println!("\nThe shop stays open: {} (Ctrl-C closes it)", self.url);
        Ok(tokio::signal::ctrl_c().await?)
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Digits that are base64, too.
fn random_digits() -> String {
    hex(&rand::rng().random::<[u8; 32]>())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
