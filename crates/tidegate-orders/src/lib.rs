//! What an order is.
