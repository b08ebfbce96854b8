-- Orders that were cancelled or refunded before the slot existed give it up, otherwise they would stand in the way
-- of the unique key. `update_time` is kept: for the business nothing has happened to these orders now.
UPDATE tb_voucher_order
SET slot = NULL, update_time = update_time
WHERE status IN (4, 6) AND slot IS NOT NULL;
