-- As 0013, for the moment of the order. In parentheses, as MySQL wants it here.
ALTER TABLE tb_voucher_order ALTER COLUMN create_time SET DEFAULT (CURRENT_TIMESTAMP);
