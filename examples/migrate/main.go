// Migrate runs the migrations of a database once, when many instances of a program start at the same time: the others wait, and
// find nothing to do. An instance that loses the lock halfway has its migration rolled back.
//
//	go run -C examples/migrate .                                                  # five instances, in memory, a new database
//	go run -C examples/migrate . -db /tmp/shop.sqlite redis://localhost:6379      # in several terminals, that share both
//
// Any URL of docs/urls.md will do. What to copy is migrate.go. The migrations are goose's (github.com/pressly/goose), by
// integrations/goose; the database is SQLite: a file, which processes of one machine share.
package main

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/go-locker/locker"
	_ "github.com/go-locker/locker/all" // so that the URL may name any backend
)

//go:embed migrations/*.sql
var embedded embed.FS

func main() {
	db := flag.String("db", "", "file of the SQLite database (default: a new one, which is removed)")
	instances := flag.Uint("instances", 5, "how many start at once in this process")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: migrate [-db file] [-instances 5] [URL]   (default mem://migrate)")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() > 1 {
		fmt.Fprintln(os.Stderr, "one URL at most, and flags come before the URL: -h tells them")
		os.Exit(2)
	}
	lock := "mem://migrate"
	if flag.NArg() > 0 {
		lock = flag.Arg(0)
	}
	// The first Ctrl-C, or a supervisor's SIGTERM, ends ctx: the migration under way is rolled back, and the lock released. A
	// second one ends the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Stdout, lock, *db, *instances)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run starts instances at the same time, each as a process of its own would: with its own Client and its own connections.
func run(ctx context.Context, out io.Writer, lock, db string, instances uint) error {
	if db == "" {
		dir, err := os.MkdirTemp("", "migrate")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		db = filepath.Join(dir, "shop.sqlite")
	}
	migrations, err := fs.Sub(embedded, "migrations")
	if err != nil {
		return err
	}
	var mu sync.Mutex
	say := func(i int, format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, "%d/%d  %s\n", os.Getpid(), i+1, fmt.Sprintf(format, args...))
	}
	var all sync.WaitGroup
	errs := make([]error, instances)
	for i := range errs {
		all.Go(func() {
			errs[i] = start(ctx, lock, db, migrations, func(format string, args ...any) { say(i, format, args...) })
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// start is how an instance starts.
func start(ctx context.Context, lock, file string, migrations fs.FS, say func(format string, args ...any)) error {
	client, err := locker.Open(ctx, lock)
	if err != nil {
		return err
	}
	defer client.Close()
	db, err := openSQLite(file)
	if err != nil {
		return err
	}
	defer db.Close()

	applied, err := migrate(ctx, client.Mutex("migrate"), db, migrations)
	for _, m := range applied {
		say("applied %s", filepath.Base(m.Source.Path))
	}
	if err != nil {
		return err
	}
	if len(applied) == 0 {
		say("found nothing to do")
	}
	return nil // and now it serves
}

// openSQLite opens a database, and makes it if it is missing. A process that finds it locked waits.
func openSQLite(file string) (*sql.DB, error) {
	dsn := url.URL{Scheme: "file", OmitHost: true, Path: file, RawQuery: "_pragma=busy_timeout(10000)"}
	return sql.Open("sqlite", dsn.String())
}
