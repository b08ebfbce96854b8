-- Vouchers that are sold under common limits, each for a region of its own.
CREATE TABLE IF NOT EXISTS tidegate_campaign (
  campaign_id BIGINT NOT NULL,
  region VARBINARY(32) NOT NULL COMMENT 'a name of its own in the campaign',
  voucher_id BIGINT NOT NULL COMMENT 'whose stock is that of the region',
  PRIMARY KEY (campaign_id, region),
  UNIQUE KEY uk_voucher (voucher_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;
