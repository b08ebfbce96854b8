//! The tasks that keep sales in Redis as the calendar of the shop, the rows in MySQL, says.

mod carry;
mod warm_up;

pub use self::{
    carry::{NotCarried, WindowCarrier, WindowChange},
    warm_up::{WarmUp, WarmUpPass},
};
