//! One file per command.

pub mod admit;
pub mod audit;
pub mod completions;
pub mod config;
pub mod doctor;
pub mod export;
pub mod log;
pub mod migrate;
pub mod pause;
pub mod replay;
pub mod resume;
pub mod status;
pub mod trim;
pub mod voucher_load;
pub mod voucher_show;
pub mod worker;
