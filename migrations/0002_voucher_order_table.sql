-- The orders, as the tutorial has them. The id comes from the producer, so there is no AUTO_INCREMENT: the same
-- order that arrives twice must meet its own primary key.
CREATE TABLE IF NOT EXISTS tb_voucher_order (
  id BIGINT NOT NULL COMMENT 'order id, chosen by the producer',
  user_id BIGINT UNSIGNED NOT NULL COMMENT 'who bought',
  voucher_id BIGINT UNSIGNED NOT NULL COMMENT 'what was bought',
  pay_type TINYINT UNSIGNED NOT NULL DEFAULT 1 COMMENT '1 balance, 2 Alipay, 3 WeChat',
  status TINYINT UNSIGNED NOT NULL DEFAULT 1 COMMENT '1 unpaid, 2 paid, 3 used, 4 cancelled, 5 refunding, 6 refunded',
  create_time TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  pay_time TIMESTAMP NULL DEFAULT NULL,
  use_time TIMESTAMP NULL DEFAULT NULL,
  refund_time TIMESTAMP NULL DEFAULT NULL,
  update_time TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;
