-- Users of MySQL, each with the rights that it needs and no others; tests/rights.rs runs Tidegate with exactly these.
-- Change passwords, hosts and the name of the database.

-- `tidegate worker`, and every command that changes no tables.
CREATE USER 'tidegate-worker'@'%' IDENTIFIED BY 'CHANGE-ME';
GRANT SELECT, INSERT, UPDATE, DELETE ON hmdp.* TO 'tidegate-worker'@'%';

-- `tidegate migrate`.
CREATE USER 'tidegate-owner'@'%' IDENTIFIED BY 'CHANGE-ME';
GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX ON hmdp.* TO 'tidegate-owner'@'%';

-- `tidegate status`, `tidegate top`.
CREATE USER 'tidegate-reader'@'%' IDENTIFIED BY 'CHANGE-ME';
GRANT SELECT ON hmdp.* TO 'tidegate-reader'@'%';
