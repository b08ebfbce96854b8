-- The users of MySQL, each with only the rights that it needs; tests/pipeline/rights.rs runs Tidegate with exactly these.
-- Change passwords, hosts and the name of the database.

-- `tidegate worker`, and every command that changes no tables.
CREATE USER 'tidegate-worker'@'%' IDENTIFIED BY 'CHANGE-ME';
GRANT SELECT, INSERT, UPDATE, DELETE ON hmdp.* TO 'tidegate-worker'@'%';

-- In a replication group, each user of Tidegate also needs this right: it shows whether a member has left its group.
-- GRANT SELECT ON performance_schema.replication_group_members TO 'tidegate-worker'@'%';

-- `tidegate migrate`.
CREATE USER 'tidegate-owner'@'%' IDENTIFIED BY 'CHANGE-ME';
GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, CREATE VIEW ON hmdp.* TO 'tidegate-owner'@'%';

-- An operator: the rights of a worker, and the rights to see which transaction locks a row (PROCESS) and to end it. The
-- right to KILL connections of other users has another name on MariaDB; each server reads its own name and skips the
-- other as a comment. On MySQL, only a user with SYSTEM_USER can end connections of a user with SYSTEM_USER, such as root.
CREATE USER 'tidegate-operator'@'%' IDENTIFIED BY 'CHANGE-ME';
GRANT SELECT, INSERT, UPDATE, DELETE ON hmdp.* TO 'tidegate-operator'@'%';
GRANT PROCESS /*M!, CONNECTION ADMIN */ /*!80000 , CONNECTION_ADMIN */ ON *.* TO 'tidegate-operator'@'%';

-- `tidegate status`, `tidegate top`.
CREATE USER 'tidegate-reader'@'%' IDENTIFIED BY 'CHANGE-ME';
GRANT SELECT ON hmdp.* TO 'tidegate-reader'@'%';
