-- Since when every order of a voucher has to come by the gate that counts limits. It is checked with the stock, in the row that a
-- batch changes anyway, so a voucher without limits costs nothing. NULL: it has none.
ALTER TABLE tb_seckill_voucher
  ADD COLUMN limits_since BIGINT NULL COMMENT 'by the clock of Redis, in milliseconds: entries after it must say what they used';
