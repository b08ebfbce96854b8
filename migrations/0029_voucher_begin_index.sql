-- The index by which workers find the vouchers that begin soon. Orders do not change it.
ALTER TABLE tb_seckill_voucher
  ADD KEY idx_begin_time (begin_time);
