-- Which of the orders that a user may have for one voucher this is; 1 where only one is allowed. A cancelled (4) or
-- refunded (6) order has NULL: NULLs never collide in a unique key, so the user may buy again and the old row stays.
-- The default keeps the tutorial's own consumer working beside ours during a takeover.
ALTER TABLE tb_voucher_order
  ADD COLUMN slot INT UNSIGNED NULL DEFAULT 1 COMMENT 'which order of this user for this voucher, NULL once cancelled';
