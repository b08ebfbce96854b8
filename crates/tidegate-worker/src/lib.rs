//! The worker process: its lanes, heartbeat, background tasks and traces, and its reports to a service manager.

mod on_heap;
pub mod pause_signals;
mod process;
pub mod service;
mod settings;
mod trace;
mod view;
mod worker;

pub use process::Process;
pub use settings::{ProcessSettings, WorkerSettings};
pub use trace::Traces;
pub use view::{Parts, Phase, View, WorkerView};
pub use worker::{NameTaken, VERSION};
