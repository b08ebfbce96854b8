//! `tidegate top`: a live view on a terminal.
#![expect(dead_code, reason = "the command comes when its parts are there")]

mod draw;
mod facts;
mod grid;
mod looks;
#[cfg(test)]
mod tests;
mod view;
mod wording;
mod worker_page;
