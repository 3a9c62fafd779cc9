package main

import (
	"context"
	"database/sql"
	"io/fs"

	"github.com/pressly/goose/v3"

	"github.com/go-locker/locker"
)

// migrate brings db up to date, and returns what it has applied: nothing, if another instance has done so, for whom it waits.
//
// Goose has interfaces for locks (WithLocker, WithSessionLocker), and ours would fit them. But they have no word for a lock that
// is lost, so that goose would go on; Do ends ctx then. What ends halfway is safe to run again: each migration is one transaction
// together with its version, and each version is there once (see migrations/00001_each_version_once.sql). A migration without a
// transaction (NO TRANSACTION; in MySQL all that change tables) has to bear being run again, lock or no lock, for its process may
// die in the midst of it.
func migrate(ctx context.Context, lock *locker.Mutex, db *sql.DB, migrations fs.FS, opts ...goose.ProviderOption) (
	applied []*goose.MigrationResult, err error,
) {
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, migrations, opts...)
	if err != nil {
		return nil, err
	}
	err = lock.Do(ctx, func(ctx context.Context) (err error) {
		applied, err = provider.Up(ctx)
		return err
	})
	return applied, err
}
