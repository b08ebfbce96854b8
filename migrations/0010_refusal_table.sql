-- Orders that were refused, in the transaction that refused them. Between this and giving their unit back to Redis a
-- worker can die: the next one must give the same answer, even if stock has come back in the meantime, or the unit
-- would be given back and sold as well.
CREATE TABLE IF NOT EXISTS tidegate_refusal (
  order_id BIGINT NOT NULL,
  user_id BIGINT NOT NULL,
  voucher_id BIGINT NOT NULL,
  quantity INT UNSIGNED NOT NULL,
  reason VARCHAR(32) NOT NULL COMMENT 'user_has_order or out_of_stock',
  entry_id VARCHAR(41) NOT NULL COMMENT 'stream entry it came from',
  at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) COMMENT 'when it was refused',
  PRIMARY KEY (order_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;
