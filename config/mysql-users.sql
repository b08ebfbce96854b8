-- Users of MySQL, each with the rights that it needs and no others; tests/pipeline/rights.rs runs Tidegate with exactly these.
-- Change passwords, hosts and the name of the database.

-- `tidegate worker`, and every command that changes no tables.
CREATE USER 'tidegate-worker'@'%' IDENTIFIED BY 'CHANGE-ME';
GRANT SELECT, INSERT, UPDATE, DELETE ON hmdp.* TO 'tidegate-worker'@'%';

-- In a replication group, each user that Tidegate has there needs this, too: a member that has left its group is told by it.
-- GRANT SELECT ON performance_schema.replication_group_members TO 'tidegate-worker'@'%';

-- `tidegate migrate`.
CREATE USER 'tidegate-owner'@'%' IDENTIFIED BY 'CHANGE-ME';
GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, CREATE VIEW ON hmdp.* TO 'tidegate-owner'@'%';

-- Whoever operates: as a worker, and sees whose transaction holds a row (PROCESS) and may end it (the right to KILL the
-- connections of others has another name on MariaDB; each server reads its own and takes the other for a comment). On
-- MySQL, a user with SYSTEM_USER, such as root, can be ended only by another one that has it.
CREATE USER 'tidegate-operator'@'%' IDENTIFIED BY 'CHANGE-ME';
GRANT SELECT, INSERT, UPDATE, DELETE ON hmdp.* TO 'tidegate-operator'@'%';
GRANT PROCESS /*M!, CONNECTION ADMIN */ /*!80000 , CONNECTION_ADMIN */ ON *.* TO 'tidegate-operator'@'%';

-- `tidegate status`, `tidegate top`.
CREATE USER 'tidegate-reader'@'%' IDENTIFIED BY 'CHANGE-ME';
GRANT SELECT ON hmdp.* TO 'tidegate-reader'@'%';
