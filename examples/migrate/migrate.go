package main

import (
	"context"
	"database/sql"
	"io/fs"

	"github.com/pressly/goose/v3"

	"github.com/go-locker/locker"
	lockergoose "github.com/go-locker/locker/integrations/goose"
)

// migrate brings db up to date, and returns what it has applied: nothing, if another instance has done so, for whom it waits.
//
// Goose's interfaces for locks have no word for a lock that is lost, but its Store has, which records each version in the transaction of its
// migration. Package lockergoose, of integrations/goose, checks the fencing token there: the migration of an instance that has lost the lock is rolled back. A
// migration without a transaction (NO TRANSACTION) has to bear being run again, lock or no lock, for its process may die in the midst of it.
func migrate(ctx context.Context, lock *locker.Mutex, db *sql.DB, migrations fs.FS, opts ...goose.ProviderOption) (
	applied []*goose.MigrationResult, err error,
) {
	store, err := lockergoose.NewStore(lock, goose.DialectSQLite3, goose.DefaultTablename)
	if err != nil {
		return nil, err
	}
	opts = append(opts, goose.WithStore(store), goose.WithLocker(lockergoose.New(lock)))
	provider, err := goose.NewProvider(goose.DialectCustom, db, migrations, opts...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := lockergoose.Context(ctx) // ends if the lock is lost
	defer cancel()
	return provider.Up(ctx)
}
