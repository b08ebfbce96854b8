//! What an order's library promises, shown on real servers.

mod allocations;
mod announcer;
mod confirmed;
mod dead_letters;
mod drain;
mod error_texts;
mod events;
mod fold;
mod gate;
mod gate_model;
mod ground;
mod idempotency;
mod instructions;
mod ledger;
mod ledger_cost;
mod limits;
mod lua_headers;
mod moment;
mod order_ids;
mod repair;
mod replica_drain;
mod row_state;
mod schema;
mod switch_over;
mod time_limits;
mod user_lock;
