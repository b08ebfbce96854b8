//! The results of the section "Trouble"; a part of the JSON file.

use serde::{Deserialize, Serialize};

use super::{Rate, cost::Cost};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Trouble {
    pub cases: Vec<CaseResult>,
    /// The cost of an order's life: payments, results, limits of time.
    #[serde(default)]
    pub life: Vec<CaseResult>,
    #[serde(default)]
    pub expirations: Option<Expirations>,
    pub held_voucher: Option<HeldVoucher>,
    pub long_hold: Option<LongHold>,
    pub large_entries: Option<LargeEntries>,
    pub cluster: Option<ClusterResult>,
}

/// The results of one kind of stream, at one size.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CaseResult {
    pub what: String,
    /// The entries in the stream, and the most rows of the voucher.
    pub entries: usize,
    pub entries_per_s: Rate,
    /// The rate, as a share of that of plain orders in the same round.
    pub share: Rate,
    /// The least share that is wanted; None for the plain case.
    pub wanted_share: Option<f64>,
    /// The cost of an entry, in the round with the median speed.
    pub cost: Cost,
}

/// Orders that are all due at once, until all have expired and their units are on sale again.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Expirations {
    pub orders: usize,
    pub per_s: f64,
}

/// The results while another session locks the row of one voucher, which every second entry is for. Rates are those of
/// the other vouchers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HeldVoucher {
    pub entries: usize,
    /// The rate of the same stream without a lock.
    pub plain_per_s: f64,
    pub held_per_s: f64,
    /// The time until the first order of the others was written.
    #[serde(default)]
    pub paused_s: f64,
    /// The orders of the others that were written during the lock, of `entries / 2`.
    pub written: usize,
}

impl HeldVoucher {
    pub fn share(&self) -> f64 {
        self.held_per_s / self.plain_per_s
    }

    /// The share, counted from the first order of the others on.
    pub fn share_after_pause(&self) -> f64 {
        let took_s = self.written as f64 / self.held_per_s;
        self.written as f64 / (took_s - self.paused_s) / self.plain_per_s
    }
}

/// The results while another session locks the rows of 20 of 40 vouchers for a long time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LongHold {
    pub entries: usize,
    pub held_s: f64,
    /// The time until the orders of the other 20 were written; None: they were not, during the lock.
    pub others_after_s: Option<f64>,
    pub livez_asked: usize,
    /// The answers other than 200, and requests without an answer within a second.
    pub livez_refused: usize,
    /// The time from the end of the lock until everything was written and acknowledged.
    pub all_after_s: f64,
}

/// The peak memory of a worker with entries that have a field of 64 KiB, in KiB.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LargeEntries {
    pub entries: usize,
    pub all_large_peak_kib: u64,
    pub all_large_per_s: f64,
    /// The peak if the entries are small at first, and large from the middle on.
    pub turning_peak_kib: u64,
}

/// The results of three workers on three nodes of a cluster, and of one worker on one node; one hot voucher.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ClusterResult {
    /// The kind: `Galera` or `group replication`.
    pub kind: String,
    pub entries: usize,
    pub one_worker_per_s: f64,
    pub three_workers_per_s: f64,
    /// The orders that were acknowledged and are missing on any node.
    pub lost: usize,
}

impl ClusterResult {
    pub fn share(&self) -> f64 {
        self.three_workers_per_s / self.one_worker_per_s
    }
}
