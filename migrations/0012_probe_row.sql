-- The one row of the probe.
INSERT INTO tidegate_probe (id) VALUES (1) ON DUPLICATE KEY UPDATE id = id;
