//! Tests of the documents, the runbook and the examples of `deploy/`: their statements are true.

#[path = "../browser/mod.rs"]
mod browser;
#[path = "../../crates/tidegate-http/src/metrics/catalog.rs"]
mod catalog;
#[path = "../fixture/mod.rs"]
mod fixture;
#[path = "../program/mod.rs"]
mod program;
#[path = "../terminal/mod.rs"]
mod terminal;

mod book;
mod chinese;
mod dependencies;
mod deploy;
mod figures;
mod first_evening;
mod glossary;
mod imports;
mod markdown;
mod matrix;
mod references;
mod runbook;
mod seeds;
mod statements;
mod structure;
mod tree;
