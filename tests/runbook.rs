//! RUNBOOK.md, typed word for word in the situations for which it was written: what it promises is then seen.

mod runbook {
    pub mod entries;
    pub mod recipes;
    pub mod stores;
}
mod site;
mod terminal;
