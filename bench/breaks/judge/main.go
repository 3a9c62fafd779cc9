// Command judge puts locks that are known to be broken through the usual conformance suite, which
// is not told how they are: make judge BREAK=redis-late-take-holds-longer. Without a name it judges
// all that were not judged yet, for hours. It needs the servers of make setup.
//
// It writes docs/known-breaks.json, from which make matrix writes docs/known-breaks.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-locker/locker/bench/breaks"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "judge: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("judge", flag.ContinueOnError)
	f.SetOutput(stderr)
	limit := f.Duration("limit", 5*time.Minute, "for one run of the suite")
	total := f.Duration("total", 0, "after which no other lock is judged; 0: all are")
	if err := f.Parse(args); err != nil {
		return err
	}
	says, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return fmt.Errorf("the repository: %w", err)
	}
	root := filepath.Clean(strings.TrimSpace(string(says)))
	file := filepath.Join(root, "docs", breaks.JudgementsFile)
	names, err := chosen(f.Args(), file)
	if err != nil {
		return err
	}
	began := time.Now()
	err = breaks.Judge(ctx, root, *limit, stdout, names, func(j breaks.Judgement) error {
		if err := breaks.SaveJudgement(file, j); err != nil {
			return err
		}
		if *total > 0 && time.Since(began) > *total {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

var errEnough = errors.New("no time is left")

// chosen returns what is to be judged: those that are named, or all that file does not have.
func chosen(names []string, file string) ([]string, error) {
	all := breaks.Judged()
	if len(names) > 0 {
		for _, name := range names {
			if !slices.Contains(all, name) {
				return nil, fmt.Errorf("%q is none of these: %s", name, strings.Join(all, ", "))
			}
		}
		return names, nil
	}
	judged, err := breaks.ReadJudgements(file)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(name string) bool {
		return slices.ContainsFunc(judged, func(j breaks.Judgement) bool { return j.Name == name })
	}), nil
}
