//! The commands of `tidegate-lab`, one file each.

pub mod down;
mod standing;
pub mod up;
