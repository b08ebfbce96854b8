//! What an order's library promises, shown on real servers.

mod dead_letters;
mod error_texts;
mod events;
mod gate;
mod gate_model;
mod ground;
mod ledger;
mod ledger_cost;
mod lua_headers;
mod order_ids;
mod row_state;
mod schema;
mod user_lock;
