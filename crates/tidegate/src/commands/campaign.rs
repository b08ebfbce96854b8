//! `tidegate campaign ...`: vouchers that are sold under common limits, each for a region.

pub mod load;
pub mod show;
