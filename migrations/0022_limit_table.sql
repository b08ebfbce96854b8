-- Who may buy how much in which time: the limits of vouchers and of campaigns, those that were taken away included. What is counted in
-- Redis is counted under the number of a limit, so a number is never used again. Redis has what is shown to it by `tidegate limit set`.
CREATE TABLE IF NOT EXISTS tidegate_limit (
  owner_kind VARCHAR(8) NOT NULL COMMENT 'voucher or campaign',
  owner_id BIGINT NOT NULL,
  number INT UNSIGNED NOT NULL COMMENT 'of this definition: another subject or window is another one',
  name VARBINARY(32) NOT NULL COMMENT 'what refusals call it',
  subject VARBINARY(32) NOT NULL COMMENT 'user, or what callers send under this name, *: all orders together',
  period VARCHAR(10) NOT NULL COMMENT 'order, sale, day, month, rate, or a number of seconds',
  offset_s INT NOT NULL DEFAULT 0 COMMENT 'of days and months: seconds east of Greenwich',
  orders INT UNSIGNED NULL COMMENT 'most orders in a period, or at once of a rate, NULL: as many as there are',
  units INT UNSIGNED NULL COMMENT 'most units in a period, NULL: as many as there are',
  period_us INT UNSIGNED NULL COMMENT 'of a rate: microseconds from one admission to the next',
  changed_by VARCHAR(64) NOT NULL COMMENT 'who set it, changed it or took it away last',
  set_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  removed_at TIMESTAMP(3) NULL COMMENT 'NULL: it counts',
  PRIMARY KEY (owner_kind, owner_id, number)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;
