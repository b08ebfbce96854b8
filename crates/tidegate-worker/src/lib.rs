//! The running worker process: lanes, heartbeat, sweepers, admin HTTP, metrics, traces.

pub mod admin;
pub mod admin_client;
mod cached;
mod gather;
mod http_answer;
pub mod http_gate;
mod http_server;
pub mod metrics;
mod on_heap;
mod order_pages;
mod pause_signals;
mod process;
pub mod service;
mod settings;
mod trace;
mod view;
mod worker;

pub use pause_signals::PauseSignals;
pub use process::Process;
pub use settings::{
    AdminSettings, AttemptRate, AttemptSettings, CallerSettings, GateSettings, ProcessSettings, ProxyNet,
    TlsSettings, UserHeader, WorkerSettings,
};
pub use trace::Traces;
pub use worker::NameTaken;
