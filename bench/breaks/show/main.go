// Command show shows again how a lock broke: make show BREAK=redsync-stopped-node. Without a name
// it shows all, and fails if one of them does not show.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-locker/locker/bench/breaks"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "show: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("show", flag.ContinueOnError)
	f.SetOutput(stderr)
	version := f.String("version", "", "of the other library, in place of the one that bench/go.mod has")
	lock := f.String("lock", "", "all breaks of this library, or of what of this module")
	if err := f.Parse(args); err != nil {
		return err
	}
	some, err := chosen(f.Args(), *lock)
	if err != nil {
		return err
	}
	root, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return fmt.Errorf("the repository: %w", err)
	}
	return breaks.Show(ctx, filepath.Clean(strings.TrimSpace(string(root))), *version, stdout, some...)
}

func chosen(names []string, lock string) ([]breaks.Break, error) {
	var some []breaks.Break
	for _, name := range names {
		b, err := breaks.Find(name)
		if err != nil {
			return nil, err
		}
		some = append(some, b)
	}
	if len(names) > 0 {
		return some, nil
	}
	for _, b := range breaks.All() {
		if lock == "" || b.Lock == lock {
			some = append(some, b)
		}
	}
	if some == nil {
		return nil, fmt.Errorf("no break of %q is known", lock)
	}
	return some, nil
}
