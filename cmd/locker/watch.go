package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/go-locker/locker/cmd/locker/internal/outcome"
	"github.com/go-locker/locker/cmd/locker/internal/secret"
	"github.com/go-locker/locker/cmd/locker/internal/show"
	"github.com/go-locker/locker/cmd/locker/internal/target"
	"github.com/go-locker/locker/cmd/locker/internal/watch"
	"github.com/go-locker/locker/internal/timeline"
)

const watchHelp = `Watch shows which locks are held, by whom, since when, and how many wait. It
reads again after each --interval, until Ctrl-C, or until the time of --for is
over. It changes nothing.

NAME is a lock, or the beginning of names and a *, as in 'orders/*'. Without
NAME, watch shows all locks under the prefix of the URL. Without NAME, or with a
*, it lists the locks every ten seconds: on Redis this goes through all keys.

On a terminal watch shows a table. Otherwise it prints a line for each change:
who has the lock, and whether the hold before was released, or expired because
its holder did not renew it.

With --html it writes a page with a timeline of holders and waiters, every ten
seconds and at the end. The page needs no network. A hold that is shorter than
--interval may be missing.

` + exitHelp

type watchOptions struct {
	interval time.Duration
	limit    time.Duration // 0: until a signal
	html     string
	most     int
}

func newWatch() *cobra.Command {
	var o watchOptions
	c := &cobra.Command{
		Use:               "watch [flags] URL [NAME…]",
		Short:             "Watch who holds locks, and who waits, as a table or a timeline",
		Long:              watchHelp,
		Example:           "  locker watch redis://localhost:6379\n  locker watch --for 10m --html timeline.html - nightly 'orders/*'",
		Args:              args(1, 0, "want URL [NAME…], as in: locker watch redis://localhost:6379 backup"),
		ValidArgsFunction: schemes,
		RunE: func(c *cobra.Command, args []string) error {
			if o.interval < 100*time.Millisecond || o.limit < 0 || o.most < 1 {
				return outcome.Usagef("--interval: must be at least 100ms; --for: not below 0; --most: at least 1")
			}
			url, err := target.Expand(args[0])
			if err != nil {
				return err
			}
			for _, name := range args[1:] {
				if err := checkName(name); err != nil {
					return err
				}
			}
			_ = interruptible(c, func(ctx context.Context) error { // a signal is no failure
				err = o.watch(ctx, url, args[1:])
				if o, ours := errors.AsType[*outcome.Error](err); ctx.Err() != nil && (!ours || o.Err == nil) {
					err = nil // it was ended before its first look
				}
				return nil
			})
			return err
		},
	}
	f := c.Flags()
	f.DurationVar(&o.interval, "interval", time.Second, "time between two looks")
	f.DurationVar(&o.limit, "for", 0, "how long to watch (default: until Ctrl-C)")
	f.StringVar(&o.html, "html", "", "write a timeline to this file")
	f.IntVar(&o.most, "most", 50, "how many locks to watch")
	return c
}

// screen shows what a Watcher has seen.
type screen struct {
	*watch.Watcher
	*watchOptions
	title    string
	out      io.Writer
	terminal bool // out is one
	told     int  // of the events, elsewhere
	noted    string
}

func (o *watchOptions) watch(ctx context.Context, url string, names []string) error {
	client, err := target.Open(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	if o.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.limit)
		defer cancel()
	}
	s := &screen{
		Watcher: watch.New(client, o.interval, o.most, names...), watchOptions: o,
		title: target.Parse(url).String(), out: os.Stdout, terminal: term.IsTerminal(int(os.Stdout.Fd())),
	}
	tick := time.NewTicker(o.interval)
	defer tick.Stop()
	var written time.Time
	for first := true; ; first = false {
		if err := s.Look(ctx); err != nil && first {
			return err
		}
		s.show()
		if o.html != "" && time.Since(written) >= watch.Between {
			if err := s.writePage(); err != nil {
				return err
			}
			written = time.Now()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if o.html == "" {
				return nil
			}
			return s.writePage()
		}
	}
}

// show prints a table on a terminal, and otherwise what has changed.
func (s *screen) show() {
	events := s.Events
	if !s.terminal {
		for ; s.told < len(events); s.told++ {
			fmt.Fprintln(s.out, happened(events[s.told]))
		}
		if s.Note != s.noted && s.Note != "" {
			fmt.Fprintln(os.Stderr, "locker: "+strings.TrimPrefix(s.Note, "locker: "))
		}
		s.noted = s.Note
		return
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s  %s, every %v\n\n%s\n", s.title, time.Now().Format(time.TimeOnly), s.interval, s.table())
	if s.Note != "" {
		fmt.Fprintf(&text, "\n%s\n", s.Note)
	}
	for _, e := range events[max(0, len(events)-8):] {
		fmt.Fprintf(&text, "\n%s", happened(e))
	}
	columns, rows := show.Terminal(os.Stdout)
	fmt.Fprint(s.out, "\x1b[H\x1b[J"+show.Screenful(text.String(), columns, rows))
}

// happened returns a line.
func happened(e timeline.Event) string { return e.At.Format(time.TimeOnly) + " " + e.Text }

func (s *screen) table() string {
	t := plainTable()
	t.AppendHeader(table.Row{"lock", "held by", "since", "expires in", "waiting"})
	locks := slices.Clone(s.Locks)
	slices.SortFunc(locks, func(a, b *watch.Lock) int { return strings.Compare(a.Name, b.Name) })
	for _, l := range locks {
		name, who, since, left, waiting := show.Shortened(show.Printable(l.Name), 22), "nobody", "", "", ""
		switch {
		case l.Err != nil:
			who = "not known: " + l.Err.Error()
		case l.State.Held:
			who, since = l.Holders(), l.Since()
			if l.State.Left > 0 {
				left = l.State.Left.Round(100 * time.Millisecond).String()
			}
		}
		if len(l.State.Waiters) > 0 && l.Err == nil {
			waiting = show.Waiters(l.State)
		}
		t.AppendRow(table.Row{name, show.Shortened(who, 30), since, left, waiting})
	}
	if len(locks) == 0 {
		return "nobody holds a lock"
	}
	return t.Render()
}

// writePage replaces the file of --html, but no device or link.
func (s *screen) writePage() error {
	if info, err := os.Lstat(s.html); err == nil && !info.Mode().IsRegular() {
		return outcome.Usagef("--html: there is something that is no regular file, which the page would replace")
	}
	f, err := os.CreateTemp(filepath.Dir(s.html), ".locker-*.html")
	if err != nil {
		return outcome.Usagef("--html: cannot create a file in that folder: %w", secret.Reason(err))
	}
	defer func() { _ = os.Remove(f.Name()) }() // unless it was renamed
	if err := errors.Join(s.Page(s.title, time.Now()).Write(f), f.Chmod(0o644), f.Close()); err != nil {
		return outcome.Usagef("--html: %w", secret.Reason(err))
	}
	if err := os.Rename(f.Name(), s.html); err != nil {
		return outcome.Usagef("--html: %w", secret.Reason(err))
	}
	return nil
}
