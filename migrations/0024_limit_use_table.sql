-- What an order used of limits, written with its row: from it the counters in Redis are compared and restored. Only orders of vouchers
-- with limits have one. The text is that of the field `uses` of its entry (lua/README.md, "Limits").
CREATE TABLE IF NOT EXISTS tidegate_limit_use (
  voucher_id BIGINT NOT NULL,
  order_id BIGINT NOT NULL,
  uses VARBINARY(1024) NOT NULL,
  PRIMARY KEY (order_id),
  KEY idx_voucher (voucher_id, order_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;
