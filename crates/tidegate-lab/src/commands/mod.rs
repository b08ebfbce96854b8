//! One file per subcommand.

pub mod down;
mod standing;
pub mod up;
