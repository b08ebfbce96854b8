-- The vouchers on sale, as the tutorial has them, so that one program works on a new database and on one that
-- was taken over. `stock` is signed, as there: the worker's guard `stock >= n` keeps it from going below zero, and
-- the audit can see it if something else did not.
CREATE TABLE IF NOT EXISTS tb_seckill_voucher (
  voucher_id BIGINT UNSIGNED NOT NULL COMMENT 'the voucher',
  stock INT NOT NULL COMMENT 'units left',
  create_time TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  begin_time TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP COMMENT 'the sale begins',
  end_time TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP COMMENT 'the sale ends',
  update_time TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  PRIMARY KEY (voucher_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;
