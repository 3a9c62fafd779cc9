// Package freshdb has databases for the tests of what writes to SQL: a new one for each.
package freshdb

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-locker/locker/fence/sqlfence"
	"github.com/go-locker/locker/internal/test/testserver"
)

// Database is one that no other test has. A test that uses it imports its driver.
type Database struct {
	Dialect sqlfence.Dialect
	Driver  string // of package database/sql
	DSN     string
	Locks   string // the URL of locks in memory that no other test has
}

// Of makes them.
var Of = map[sqlfence.Dialect]func(t testing.TB) Database{
	// On a server that tests share.
	sqlfence.Postgres: func(t testing.TB) Database {
		t.Helper()
		name, shared := newName(), testserver.SharedPostgres(t).URL()
		admin := Database{Driver: "pgx", DSN: shared}.Open(t)
		if _, err := admin.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
			t.Fatalf("freshdb: %v", err)
		}
		t.Cleanup(func() { _, _ = admin.ExecContext(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)") })
		return Database{sqlfence.Postgres, "pgx", strings.Replace(shared, "/postgres?", "/"+name+"?", 1), "mem://" + name}
	},
	// A file, for which whoever finds it locked waits.
	sqlfence.SQLite: func(t testing.TB) Database {
		t.Helper()
		file := filepath.Join(t.TempDir(), "db")
		return Database{sqlfence.SQLite, "sqlite", "file:" + file + "?_pragma=busy_timeout(5000)", "mem://" + newName()}
	},
}

var count atomic.Int64

func newName() string { return fmt.Sprint("test", count.Add(1)) }

// Each runs a test on each of them.
func Each(t *testing.T, test func(t *testing.T, d Database)) {
	t.Helper()
	t.Parallel()
	for dialect, fresh := range Of {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			test(t, fresh(t))
		})
	}
}

// Open returns connections to it, which are closed with the test.
func (d Database) Open(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.Driver, d.DSN)
	if err != nil {
		t.Fatalf("freshdb: %v", err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
