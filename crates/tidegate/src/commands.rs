//! One file per command.

pub mod admit;
pub mod audit;
pub mod completions;
pub mod config;
pub mod consumers_list;
pub mod consumers_remove;
pub mod dead;
pub mod doctor;
pub mod export;
mod lines;
pub mod log;
pub mod migrate;
pub mod order_find;
pub mod order_show;
pub mod pause;
pub mod pending_bury;
pub mod pending_claim;
pub mod pending_list;
pub mod pending_show;
pub mod probe;
pub mod replay;
pub mod resume;
pub mod status;
pub mod trim;
pub mod voucher_load;
pub mod voucher_show;
pub mod worker;
