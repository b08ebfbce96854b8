-- The partition of an unpaid order. A sweeper reads only its own rows; before, it read those of all partitions.
-- The index keeps its name, because workers of earlier versions ask for it by that name. They read more rows until
-- they are replaced, and go on inserting: rows that they leave at 0 are assigned by the sweepers.
ALTER TABLE tidegate_unpaid_order
  ADD COLUMN partition_code SMALLINT UNSIGNED NOT NULL DEFAULT 0 COMMENT '64 P + i is partition i of P, 0 is not known yet',
  DROP KEY idx_ask,
  ADD KEY idx_ask (partition_code, ask_ms, due_ms);
