-- Orders that are not paid yet and expire if they are not paid in time. A row is written with its order, and deleted in the
-- transaction that moves the order on. A table of its own: an index on the orders would cost each of them a sixth of its rate,
-- also those without a limit. Times are milliseconds since 1970, by the clock of this server.
CREATE TABLE IF NOT EXISTS tidegate_unpaid_order (
  order_id BIGINT NOT NULL,
  user_id BIGINT NOT NULL COMMENT 'as the order was written',
  voucher_id BIGINT NOT NULL COMMENT 'as the order was written',
  due_ms BIGINT NOT NULL COMMENT 'until when it has to be paid',
  ask_ms BIGINT NOT NULL COMMENT 'when it is looked at next: due_ms, and later where an event is on its way',
  PRIMARY KEY (order_id),
  KEY idx_ask (ask_ms, due_ms)
) ENGINE = InnoDB;
