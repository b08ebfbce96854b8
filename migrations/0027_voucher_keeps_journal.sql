-- Whether the programs that sell a voucher keep a journal in Redis. A Redis that was emptied no longer says so: a rebuild would mark the
-- journal of the tutorial's own script as complete, and an audit would then miss every later order of that script. NULL: it is not known.
ALTER TABLE tb_seckill_voucher
  ADD COLUMN keeps_journal TINYINT NULL COMMENT '1 if its producers keep a journal in Redis, 0 if they keep none';
