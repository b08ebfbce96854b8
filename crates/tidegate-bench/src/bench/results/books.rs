//! The results of the section "Books"; a part of the JSON file.

use serde::{Deserialize, Serialize};

use super::Rate;

/// The results of comparing both stores, and of filling an empty Redis.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Books {
    /// The results at each size, ascending.
    pub sizes: Vec<AtSize>,
    pub beside_a_sale: Option<BesideASale>,
}

/// The results for one voucher with this many orders.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AtSize {
    pub orders: usize,
    /// The time of `tidegate rebuild`, from an empty Redis to the end.
    pub rebuild_s: f64,
    pub rebuild_peak_kib: u64,
    /// The time of `tidegate reconcile` at full pace, with no other work.
    pub look_s: f64,
    pub look_peak_kib: u64,
}

/// A drain of orders while both stores are compared repeatedly.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BesideASale {
    /// The orders that both stores held before.
    pub existing: usize,
    /// The orders that drain.
    pub orders: usize,
    pub alone_per_s: Rate,
    /// The rate during the timed task of the worker, as a share of the rate alone in the same round.
    pub task_share: Rate,
    /// The rate during the command, which does not wait between pages, as a share.
    pub command_share: Rate,
}
