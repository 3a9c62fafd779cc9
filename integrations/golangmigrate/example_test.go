package golangmigrate_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing/fstest"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence/sqlfence"
	"github.com/go-locker/locker/integrations/golangmigrate"
	_ "github.com/go-locker/locker/memory"
)

// up is how each of many instances of a program starts.
func up(client *locker.Client, db *sql.DB, files fstest.MapFS) error {
	inner, err := sqlite.WithInstance(db, &sqlite.Config{})
	if err != nil {
		return err
	}
	driver, err := golangmigrate.NewFenced(client.Mutex("migrate"), inner, 0, sqlfence.SQLite, sqlite.DefaultMigrationsTable)
	if err != nil {
		return err
	}
	source, err := iofs.New(files, ".")
	if err != nil {
		return err
	}
	m, err := migrate.NewWithInstance("iofs", source, "sqlite", driver)
	if err != nil {
		return err
	}
	return m.Up()
}

func Example() {
	client, err := locker.Open(context.Background(), "mem://shop") // or "redis://localhost:6379"
	if err != nil {
		panic(err)
	}
	defer client.Close()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection to :memory: is a database of its own

	create := []byte("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
	files := fstest.MapFS{"1_orders.up.sql": {Data: create}} // or an embed.FS
	fmt.Println(up(client, db, files))
	fmt.Println(up(client, db, files))
	// Output:
	// <nil>
	// no change
}
