// Fencedwrite shows why a lock alone protects nothing, and what does: the story that Martin Kleppmann tells in "How to do
// distributed locking" (2016), on real parts. A process that holds the lock is stopped past its TTL (SIGSTOP, as a long pause of
// any other kind); another gets the lock and writes; the first goes on, and writes too. Without a fence the other's write is lost.
// With it, the token in the statement that writes, the late write is refused.
//
//	go run -C examples/fencedwrite .                                             # a lock in memory, a file of SQLite
//	go run -C examples/fencedwrite . redis://localhost:6379                      # any URL of docs/urls.md
//	go run -C examples/fencedwrite . -db postgres://localhost/test etcd://localhost:2379
//
// The database is the name of a file, which is SQLite's, postgres://… or mysql://…: there it makes a table of its own, and drops
// it. A URL with a password is best kept in the environment, FENCEDWRITE_LOCK and FENCEDWRITE_DB.
//
// What to copy is account.go.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	_ "github.com/go-locker/locker/all" // so that the URL may name any backend
)

const lockName = "accounts/1"

func main() {
	// The first Ctrl-C, or a supervisor's SIGTERM, ends ctx, Alice and the story. A second one ends the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	var err error
	if encoded := os.Getenv(aliceVariable); encoded != "" {
		err = runAlice(ctx, encoded)
	} else {
		err = run(ctx, configure(), os.Stdout)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// configure takes the settings from the flags, else from the environment.
func configure() settings {
	var s settings
	flag.StringVar(&s.Database, "db", os.Getenv("FENCEDWRITE_DB"), "file, postgres://… or mysql://… (default: a new file)")
	flag.DurationVar(&s.TTL, "ttl", 0, "of the lock (default 1s; etcd 2s and zookeeper 4s, which is the least that they are set up for)")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: fencedwrite [-db database] [-ttl 1s] [URL]   (default mem://fencedwrite)")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() > 1 {
		fmt.Fprintln(os.Stderr, "one URL at most, and flags come before the URL: -h tells them")
		os.Exit(2)
	}
	s.Lock = cmp.Or(flag.Arg(0), os.Getenv("FENCEDWRITE_LOCK"), memoryScheme+"fencedwrite")
	s.TTL = cmp.Or(s.TTL, leastTTL(s.Lock))
	return s
}

// leastTTL is one that the backend honours unless it was set up otherwise, and that is over soon.
func leastTTL(url string) time.Duration {
	switch scheme, _, _ := strings.Cut(url, "://"); scheme {
	case "etcd", "etcds":
		return 2 * time.Second
	case "zookeeper", "zookeepers":
		return 4 * time.Second
	default:
		return time.Second
	}
}

// run tells the story twice: without the fence, and with it.
func run(ctx context.Context, s settings, out io.Writer) (err error) {
	if err := stopSupported(); err != nil {
		return err
	}
	if s.Database == "" {
		dir, err := os.MkdirTemp("", "fencedwrite")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		s.Database = filepath.Join(dir, "accounts.sqlite")
	}
	s.Table = newTable()
	accounts, err := openAccount(s.Database, s.Table)
	if err != nil {
		return err
	}
	defer accounts.db.Close()
	if err := accounts.create(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, accounts.drop(context.WithoutCancel(ctx))) }()

	fmt.Fprintln(out, "Without a fence: UPDATE … SET balance = ? WHERE id = ?")
	s.Account = 1
	if err := s.tell(ctx, accounts, out); err != nil {
		return err
	}
	fmt.Fprintln(out, "With a fence: UPDATE … SET balance = ?, token = ? WHERE id = ? AND token <= ?")
	s.Account, s.Fenced = 2, true
	return s.tell(ctx, accounts, out)
}
