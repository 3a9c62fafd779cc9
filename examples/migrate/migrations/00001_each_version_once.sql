-- goose's own table takes a version twice. With this index it does not: of two transactions that have run the same migration,
-- since the lock was lost in between, the second one is refused, and rolled back.

-- +goose Up
CREATE UNIQUE INDEX each_version_once ON goose_db_version (version_id);

-- +goose Down
DROP INDEX each_version_once;
