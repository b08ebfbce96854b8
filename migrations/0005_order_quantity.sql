-- Units in one order. Every order of the tutorial is for one unit, hence the default.
ALTER TABLE tb_voucher_order
  ADD COLUMN quantity INT UNSIGNED NOT NULL DEFAULT 1 COMMENT 'units in this order';
