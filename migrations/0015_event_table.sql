-- What happened to orders after they were placed, in the transaction that moved them: payments, cancellations, refunds, and
-- what could not be done of them. Append-only. An entry that comes again finds its row here and changes nothing, so units go
-- back once, however often it comes. Texts are compared byte for byte: `ref` is somebody else's id.
CREATE TABLE IF NOT EXISTS tidegate_event (
  order_id BIGINT NOT NULL,
  step INT UNSIGNED NOT NULL COMMENT 'which event of the order, from 1',
  event VARCHAR(16) NOT NULL COMMENT 'paid, cancelled, used, refunding, refunded, refund_failed or expired',
  outcome VARCHAR(32) NOT NULL COMMENT 'applied, unchanged, refund_due, or why it was rejected',
  user_id BIGINT NOT NULL COMMENT 'whose, as the event says',
  voucher_id BIGINT NOT NULL COMMENT 'of what, as the event says',
  ref VARCHAR(64) NULL COMMENT 'the id that a payment or a refund has elsewhere',
  payment VARCHAR(64) NULL COMMENT 'of a refund: the ref of the payment that is given back',
  reason VARCHAR(64) NULL COMMENT 'why, in a word of the sender',
  from_status TINYINT NULL COMMENT 'status before. NULL: the order did not move, or had no row',
  to_status TINYINT NULL COMMENT 'status after. NULL: the order did not move',
  released INT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'units given back',
  entry_id VARCHAR(41) NOT NULL COMMENT 'stream entry it came from',
  at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) COMMENT 'when it was decided',
  PRIMARY KEY (order_id, step)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
