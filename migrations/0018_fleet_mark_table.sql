-- A number that a fleet raises here and in Redis while orders wait to be paid. Where one of the two has a lower number than it
-- should, that store went back in time: payments may be lost, so no order expires until somebody has looked.
CREATE TABLE IF NOT EXISTS tidegate_fleet_mark (
  stream VARCHAR(255) NOT NULL COMMENT 'the fleet: its stream of orders',
  mark BIGINT NOT NULL COMMENT 'the highest number that Redis may have',
  confirmed BIGINT NOT NULL COMMENT 'the highest number that Redis must have',
  PRIMARY KEY (stream)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
