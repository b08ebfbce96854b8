-- The stream entry that the order came from, `<ms>-<seq>` (two 20-digit numbers at most): from a row in MySQL back to
-- what Redis said. NULL for older orders.
ALTER TABLE tb_voucher_order
  ADD COLUMN entry_id VARCHAR(41) NULL COMMENT 'stream entry this order came from';
