-- What the stock was when the voucher was loaded: without it, "never oversold" can only be audited as "stock is not
-- negative". NULL for vouchers that were taken over, because nobody knows what they began with.
ALTER TABLE tb_seckill_voucher
  ADD COLUMN initial_stock BIGINT NULL COMMENT 'units loaded at the start, NULL if unknown';
