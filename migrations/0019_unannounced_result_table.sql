-- Results that Redis did not take (no memory, a key of another type, no permission): their orders are written and acknowledged
-- all the same. Workers announce them later and delete them here, so it is empty nearly always. An entry that comes again
-- finds its row: `id` is for the order in which they are announced.
CREATE TABLE IF NOT EXISTS tidegate_unannounced_result (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  order_id BIGINT NOT NULL,
  entry_id VARCHAR(41) NOT NULL COMMENT 'stream entry it came from',
  state VARCHAR(16) NOT NULL COMMENT 'what became of the order or the event',
  result TEXT NOT NULL COMMENT 'all fields of the result, as a JSON object of texts',
  at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) COMMENT 'when Redis refused it',
  PRIMARY KEY (id),
  UNIQUE KEY uk_order_entry_state (order_id, entry_id, state)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
