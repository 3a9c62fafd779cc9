// Service is a program whose operator chooses the backend of its locks, in a YAML file. Its processes do each thing once: one migrates the
// database, one runs the job of each tick, and one obtains the certificate of the domain.
//
//	go run -C examples/service .                 # in memory, with a new database, for three seconds
//	go run -C examples/service . service.yaml    # until Ctrl-C; in several terminals
//
// What to copy is service.go: the adapters to goose, gocron and certmagic, over one Client.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	_ "github.com/go-locker/locker/all"        // so that the URL may name any backend
	_ "github.com/go-locker/locker/kubernetes" // a module of its own: 6 MB of client-go
	_ "github.com/go-locker/locker/s3"         // the same: 10 MB of Amazon's SDK
)

func main() {
	// The first Ctrl-C, or a supervisor's SIGTERM, ends ctx: what is under way is rolled back, and locks are released. A second one
	// ends the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	var err error
	switch files := os.Args[1:]; len(files) {
	case 0:
		err = demo(ctx)
	case 1:
		var c config
		if c, err = load(files[0]); err == nil {
			err = newService(c).run(ctx)
		}
	default:
		err = fmt.Errorf("usage: service [file.yaml]   (default: in memory, for %v)", demonstration)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const demonstration = 3 * time.Second

func demo(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "service")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := newService(config{
		Lock: "mem://service", Database: filepath.Join(dir, "service.sqlite"), Certificates: filepath.Join(dir, "certificates"),
		Domain: "shop.example", Listen: "localhost:0", Report: job{Every: time.Second, Minimum: 500 * time.Millisecond},
	})
	s.lasts = demonstration
	return s.run(ctx)
}

func newService(c config) *service {
	return &service{config: c, log: log.New(os.Stdout, fmt.Sprintf("%d  ", os.Getpid()), 0)}
}
