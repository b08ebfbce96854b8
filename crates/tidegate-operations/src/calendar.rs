//! The tasks that load vouchers, and that carry changed windows from MySQL to Redis.

mod carry;
mod warm_up;

pub(crate) use self::warm_up::is_loaded_later;
pub use self::{
    carry::{CarryPass, NotCarried, WindowCarrier, WindowChange},
    warm_up::{WarmUp, WarmUpPass},
};
