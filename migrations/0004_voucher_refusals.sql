-- How many orders for this voucher were refused. While it is 0, and it mostly stays 0, a batch need not look up whether
-- one of its orders was refused before; the guarded stock update tests it in passing.
ALTER TABLE tb_seckill_voucher
  ADD COLUMN refusals INT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'orders refused, listed in tidegate_refusal';
