//! What the section "Trouble" found; a part of the JSON file.

use serde::{Deserialize, Serialize};

use super::{Rate, cost::Cost};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Trouble {
    pub cases: Vec<CaseResult>,
    /// What an order's life costs: payments, results, limits of time.
    #[serde(default)]
    pub life: Vec<CaseResult>,
    #[serde(default)]
    pub expirations: Option<Expirations>,
    pub held_voucher: Option<HeldVoucher>,
    pub long_hold: Option<LongHold>,
    pub large_entries: Option<LargeEntries>,
    pub cluster: Option<ClusterResult>,
}

/// One kind of stream, at one size.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CaseResult {
    pub what: String,
    /// In the stream, and so many rows of the voucher at most.
    pub entries: usize,
    pub entries_per_s: Rate,
    /// Of the rate of plain orders in the same round.
    pub share: Rate,
    /// The least share that we want; None for what the others are compared with.
    pub wanted_share: Option<f64>,
    /// An entry's, in the round with the median speed.
    pub cost: Cost,
}

/// Orders that are due all at once, until all have expired and their units are on sale again.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Expirations {
    pub orders: usize,
    pub per_s: f64,
}

/// Another session holds the row of one voucher, of which every second entry is. Rates are those of the others.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HeldVoucher {
    pub entries: usize,
    /// The same stream while nobody holds anything.
    pub plain_per_s: f64,
    pub held_per_s: f64,
    /// Until the first order of the others was written.
    #[serde(default)]
    pub paused_s: f64,
    /// Orders of the others that were written while the row was held, of `entries / 2`.
    pub written: usize,
}

impl HeldVoucher {
    pub fn share(&self) -> f64 {
        self.held_per_s / self.plain_per_s
    }

    /// From the first order of the others on.
    pub fn share_after_pause(&self) -> f64 {
        let took_s = self.written as f64 / self.held_per_s;
        self.written as f64 / (took_s - self.paused_s) / self.plain_per_s
    }
}

/// Another session holds 20 of 40 vouchers' rows for a long time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LongHold {
    pub entries: usize,
    pub held_s: f64,
    /// Until the orders of the other 20 were written; None: they were not, while the rows were held.
    pub others_after_s: Option<f64>,
    pub livez_asked: usize,
    /// Answers other than 200, and none within a second.
    pub livez_refused: usize,
    /// From the end of the hold until everything was written and acknowledged.
    pub all_after_s: f64,
}

/// The most memory that a worker held which got entries with a field of 64 KiB, in KiB.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LargeEntries {
    pub entries: usize,
    pub all_large_peak_kib: u64,
    pub all_large_per_s: f64,
    /// Small entries first, large ones from the middle on.
    pub turning_peak_kib: u64,
}

/// Three workers on three nodes of a cluster, and one worker on one node of it; one hot voucher.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ClusterResult {
    /// `Galera` or `group replication`.
    pub kind: String,
    pub entries: usize,
    pub one_worker_per_s: f64,
    pub three_workers_per_s: f64,
    /// Orders that were acknowledged and are not in the table of each node.
    pub lost: usize,
}

impl ClusterResult {
    pub fn share(&self) -> f64 {
        self.three_workers_per_s / self.one_worker_per_s
    }
}
