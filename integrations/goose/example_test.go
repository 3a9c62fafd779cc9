package goose_test

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"testing/fstest"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite"

	"github.com/go-locker/locker"
	lockergoose "github.com/go-locker/locker/integrations/goose"
	_ "github.com/go-locker/locker/memory"
)

// migrate is how each of many instances of a program starts.
func migrate(ctx context.Context, client *locker.Client, db *sql.DB, migrations fs.FS) error {
	m := client.Mutex("migrate")
	store, err := lockergoose.NewStore(m, goose.DialectSQLite3, goose.DefaultTablename)
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectCustom, db, migrations,
		goose.WithStore(store), goose.WithLocker(lockergoose.New(m)))
	if err != nil {
		return err
	}
	ctx, cancel := lockergoose.Context(ctx) // ends if the lock is lost
	defer cancel()
	applied, err := provider.Up(ctx)
	for _, m := range applied {
		fmt.Println("applied version", m.Source.Version)
	}
	return err
}

func Example() {
	ctx := context.Background()
	client, err := locker.Open(ctx, "mem://shop") // or "redis://localhost:6379"
	if err != nil {
		panic(err)
	}
	defer client.Close()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)       // each connection to :memory: is a database of its own
	migrations := fstest.MapFS{ // or an embed.FS
		"00001_orders.sql": {Data: []byte("-- +goose Up\nCREATE TABLE orders (id INTEGER PRIMARY KEY);\n")},
	}
	fmt.Println(migrate(ctx, client, db, migrations))
	// Output:
	// applied version 1
	// <nil>
}
