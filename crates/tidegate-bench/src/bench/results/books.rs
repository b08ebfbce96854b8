//! What the section "Books" found; a part of the JSON file.

use serde::{Deserialize, Serialize};

use super::Rate;

/// Comparing both stores, and filling an empty Redis.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Books {
    /// Each at its size, ascending.
    pub sizes: Vec<AtSize>,
    pub beside_a_sale: Option<BesideASale>,
}

/// One voucher with so many orders.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AtSize {
    pub orders: usize,
    /// `tidegate rebuild`, from an empty Redis to "rebuilt".
    pub rebuild_s: f64,
    pub rebuild_peak_kib: u64,
    /// `tidegate reconcile` at full pace, nothing else at work.
    pub look_s: f64,
    pub look_peak_kib: u64,
}

/// Orders that drain while both stores are compared, again and again.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BesideASale {
    /// In both stores before.
    pub existing: usize,
    /// That drain.
    pub orders: usize,
    pub alone_per_s: Rate,
    /// Beside the timed task of the worker, as a share of the rate alone in the same round.
    pub task_share: Rate,
    /// Beside the command, which does not wait between pages.
    pub command_share: Rate,
}
