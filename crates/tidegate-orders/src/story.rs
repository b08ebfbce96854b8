//! What became of one order: what both sides hold of it, with times. Reads only.

mod mysql_side;

pub use mysql_side::{Decided, OrderRow, RefusalRow, decided, find_refusal, find_row, refusals_of, rows_of};
