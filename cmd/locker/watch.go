package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/go-locker/locker"
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
				return usagef("--interval: must be at least 100ms; --for: not below 0; --most: at least 1")
			}
			url, err := expandURL(args[0])
			if err != nil {
				return err
			}
			for _, name := range args[1:] {
				if err := checkName(name); err != nil {
					return err
				}
			}
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return o.watch(ctx, url, args[1:])
		},
	}
	f := c.Flags()
	f.DurationVar(&o.interval, "interval", time.Second, "time between two looks")
	f.DurationVar(&o.limit, "for", 0, "how long to watch (default: until Ctrl-C)")
	f.StringVar(&o.html, "html", "", "write a timeline to this file")
	f.IntVar(&o.most, "most", 50, "how many locks to watch")
	return c
}

// watcher looks at locks, and remembers what it has seen.
type watcher struct {
	*watchOptions
	client  *locker.Client
	title   string
	names   []string // as given: a name, or a beginning and a *
	history history
	note    string // what a list could not show
	listed  time.Time
	out     io.Writer
	screen  bool // out is a terminal
}

// between is how often locks are listed, and the page is written.
const between = 10 * time.Second

func (o *watchOptions) watch(ctx context.Context, url string, names []string) error {
	client, err := open(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	if o.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.limit)
		defer cancel()
	}
	if len(names) == 0 {
		names = []string{"*"}
	}
	w := &watcher{
		watchOptions: o, client: client, title: parse(url).String(), names: names, out: os.Stdout,
		history: history{began: time.Now(), interval: o.interval}, screen: term.IsTerminal(int(os.Stdout.Fd())),
	}
	tick := time.NewTicker(o.interval)
	defer tick.Stop()
	var written time.Time
	for first := true; ; first = false {
		if err := w.look(ctx); err != nil && first {
			return err
		}
		w.show()
		if o.html != "" && time.Since(written) >= between {
			if err := w.writePage(); err != nil {
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
			return w.writePage()
		}
	}
}

// look looks at each lock once. It returns the last error.
func (w *watcher) look(ctx context.Context) (failed error) {
	if time.Since(w.listed) >= between {
		if err := w.list(ctx); err != nil {
			failed = err
		} else {
			w.listed = time.Now()
		}
	}
	for _, l := range w.history.locks {
		state, err := w.client.Inspect(ctx, l.name)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			failed = err
		}
		w.history.see(l, time.Now(), state, err)
	}
	return failed
}

// list adds the names that are to be watched.
func (w *watcher) list(ctx context.Context) error {
	w.note = ""
	add := func(name string) bool {
		if len(w.history.locks) >= w.most && w.history.find(name) == nil {
			w.note = fmt.Sprintf("there are more than %d: see --most", w.most)
			return false
		}
		w.history.lock(name)
		return true
	}
	for _, name := range w.names {
		prefix, some := strings.CutSuffix(name, "*")
		if !some {
			add(name)
			continue
		}
		for held, err := range w.client.List(ctx, prefix) {
			switch {
			case errors.Is(err, locker.ErrUnsupported) && held == "":
				w.note = err.Error()
			case err != nil:
				return err
			case !add(held):
				return nil
			}
		}
	}
	return nil
}

// show prints a table on a terminal, and otherwise what has changed.
func (w *watcher) show() {
	events := w.history.events
	if !w.screen {
		for ; w.history.told < len(events); w.history.told++ {
			fmt.Fprintln(w.out, events[w.history.told])
		}
		return
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "\x1b[H\x1b[J%s  %s, every %v\n\n%s\n", w.title, time.Now().Format(time.TimeOnly), w.interval, w.table())
	if w.note != "" {
		fmt.Fprintln(&b, "\n"+w.note)
	}
	if len(events) > 0 {
		fmt.Fprintln(&b)
	}
	for _, e := range events[max(0, len(events)-8):] {
		fmt.Fprintln(&b, shortened(e.String(), columns))
	}
	_, _ = w.out.Write(b.Bytes())
}

func (w *watcher) table() string {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	t.AppendHeader(table.Row{"lock", "held by", "since", "expires in", "waiting"})
	locks := slices.Clone(w.history.locks)
	slices.SortFunc(locks, func(a, b *watched) int { return strings.Compare(a.name, b.name) })
	for _, l := range locks {
		name, who, since, left, waiting := shortened(printable(l.name), 22), "nobody", "", "", ""
		switch {
		case l.err != nil:
			who = "not known: " + l.err.Error()
		case l.state.Held:
			who, since = l.holders(), l.sinceWhen()
			if l.state.Left > 0 {
				left = l.state.Left.Round(100 * time.Millisecond).String()
			}
		}
		if n := len(l.state.Waiters); n > 0 && l.err == nil {
			waiting = fmt.Sprint(n)
		}
		t.AppendRow(table.Row{name, shortened(who, 30), since, left, waiting})
	}
	if len(locks) == 0 {
		return "nobody holds a lock"
	}
	return t.Render()
}

// writePage replaces the file of --html.
func (w *watcher) writePage() error {
	f, err := os.CreateTemp(filepath.Dir(w.html), ".locker-*.html")
	if err != nil {
		return usagef("--html: cannot create a file in that folder: %w", reason(err))
	}
	defer func() { _ = os.Remove(f.Name()) }() // unless it was renamed
	if err := errors.Join(w.history.page(f, w.title, time.Now()), f.Chmod(0o644), f.Close()); err != nil {
		return usagef("--html: %w", reason(err))
	}
	if err := os.Rename(f.Name(), w.html); err != nil {
		return usagef("--html: %w", reason(err))
	}
	return nil
}
