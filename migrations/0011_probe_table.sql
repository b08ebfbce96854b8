-- A row to write to when MySQL seems to be back: a server that answers SELECT but is read-only, or whose disk is full,
-- is not back. The worker's breaker updates it, so that no order has to try first.
CREATE TABLE IF NOT EXISTS tidegate_probe (
  id TINYINT NOT NULL,
  at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) COMMENT 'last probe',
  PRIMARY KEY (id)
) ENGINE = InnoDB;
