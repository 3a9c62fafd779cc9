// Package watch looks at locks, and remembers what it has seen. It prints nothing.
package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/timeline"
)

// Watcher looks at locks.
type Watcher struct {
	Locks  []*Lock
	Events []timeline.Event
	Note   string // what a list could not show

	client   *locker.Client
	names    []string // as given: a name, or a beginning and a *
	most     int      // locks
	interval time.Duration
	began    time.Time
	listed   time.Time
}

// Between is how often locks are listed.
const Between = 10 * time.Second

// New returns a Watcher of at most so many locks, of which Look is called after each interval. A
// name may be the beginning of names and a *; no name is all names.
func New(client *locker.Client, interval time.Duration, most int, names ...string) *Watcher {
	if len(names) == 0 {
		names = []string{"*"}
	}
	return &Watcher{client: client, names: names, most: most, interval: interval, began: time.Now()}
}

// Look looks at each lock once. It returns the last error.
func (w *Watcher) Look(ctx context.Context) (failed error) {
	if time.Since(w.listed) >= Between {
		if err := w.list(ctx); err != nil {
			failed = err
		} else {
			w.listed = time.Now()
		}
	}
	for _, l := range w.Locks {
		state, err := w.client.Inspect(ctx, l.Name)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			failed = err
		}
		w.see(l, time.Now(), state, err)
	}
	return failed
}

// list adds the names that are to be watched.
func (w *Watcher) list(ctx context.Context) error {
	w.Note = ""
	add := func(name string) bool {
		switch {
		case slices.ContainsFunc(w.Locks, func(l *Lock) bool { return l.Name == name }):
		case len(w.Locks) >= w.most:
			w.Note = fmt.Sprintf("there are more than %d: see --most", w.most)
			return false
		default:
			w.Locks = append(w.Locks, &Lock{Name: name})
		}
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
				w.Note = err.Error()
			case err != nil:
				return err
			case !add(held):
				return nil
			}
		}
	}
	return nil
}
