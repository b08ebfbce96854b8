-- Within what time the orders of a voucher have to be paid. It is read and checked with the stock, in the row that a batch
-- changes anyway, so a voucher without it costs nothing. NULL: as `order.pay_within_s` of the configuration says.
ALTER TABLE tb_seckill_voucher
  ADD COLUMN pay_within INT UNSIGNED NULL COMMENT 'seconds in which an order has to be paid, 0: never expires';
