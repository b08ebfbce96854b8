-- The sale windows in MySQL that Redis last got. A worker compares them with the vouchers' rows, and so finds the windows that a shop
-- changed since. Only vouchers that Redis sells have a row here, so that the query does not read the shop's other vouchers.
CREATE TABLE IF NOT EXISTS tidegate_carried_window (
  voucher_id BIGINT UNSIGNED NOT NULL,
  begin_ms BIGINT NULL COMMENT 'begin_time of the voucher as a Unix time in milliseconds',
  end_ms BIGINT NULL COMMENT 'end_time, likewise',
  PRIMARY KEY (voucher_id),
  KEY idx_end (end_ms)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;
