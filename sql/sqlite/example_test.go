package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/sql/sqlite"
)

// Any program of this machine that opens the file has the same locks.
func Example() {
	dir, err := os.MkdirTemp("", "locks")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx := context.Background()
	client, err := locker.Open(ctx, "sqlite://"+filepath.ToSlash(filepath.Join(dir, "locks.db")))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Close() }()
	err = client.Mutex("backup").Do(ctx, func(context.Context) error {
		fmt.Println("one at a time")
		return nil
	})
	fmt.Println(err)
	// Output:
	// one at a time
	// <nil>
}

// Locks may be in the file that the application has its data in.
func ExampleNew() {
	db, err := sql.Open("sqlite", "file:app.db?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = db.Close() }()
	client, err := sqlite.New(db)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Close() }()
	err = client.Mutex("backup").Do(context.Background(), func(context.Context) error { return nil })
	if err != nil {
		fmt.Println(err)
	}
}
