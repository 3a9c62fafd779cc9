-- The tables of the locks, for those who make them by hand: mysql app < schema.sql. Locks need SELECT, INSERT, UPDATE and DELETE
-- on both.

CREATE TABLE IF NOT EXISTS `locker_locks` (
	lock_key VARBINARY(32) NOT NULL PRIMARY KEY, -- SHA-256 of name
	name     LONGBLOB NOT NULL,
	token    BIGINT NOT NULL,        -- of the last grant
	owner    VARBINARY(16) NOT NULL, -- who was granted it: random bytes
	metadata LONGBLOB NOT NULL,
	ttl      BIGINT NOT NULL,        -- microseconds
	until    BIGINT NOT NULL,        -- microseconds since 1970, by the server's clock
	released BIGINT NOT NULL         -- 0: not, -1: by force
) ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS `locker_locks_waiters` (
	lock_key VARBINARY(32) NOT NULL,
	ticket   BIGINT NOT NULL,        -- when it came
	owner    VARBINARY(16) NOT NULL,
	metadata LONGBLOB NOT NULL,
	until    BIGINT NOT NULL,        -- it counts
	PRIMARY KEY (lock_key, ticket, owner)
) ENGINE=InnoDB;

-- This row keeps the largest token of names whose rows were deleted.
INSERT IGNORE INTO `locker_locks` (lock_key, name, token, owner, metadata, ttl, until, released) VALUES ('', '', 0, '', '', 0, 0, 1);
