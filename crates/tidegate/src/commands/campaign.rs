//! The commands `tidegate campaign ...`: vouchers of several regions, sold under common limits.

pub mod load;
pub mod show;
