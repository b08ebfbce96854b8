-- Since when the sale of a voucher is over for good. Its row says so to whoever would put it on sale again, or fill Redis from it,
-- also when its keys in Redis are gone. NULL: not delisted.
ALTER TABLE tb_seckill_voucher
  ADD COLUMN delisted_at TIMESTAMP NULL COMMENT 'the sale is over for good since';
